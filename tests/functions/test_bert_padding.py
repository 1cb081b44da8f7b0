"""quadrat.bert_padding: flash-attn's functions in plain PyTorch are the oracles, and torch's own checks pass."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat import bert_padding
from support import flash
from support.varlen import CHECKS

pytest.importorskip("quadrat.ops.library", reason="needs torch 2.4", exc_type=ImportError)
MASK = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def floats(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("check", CHECKS)
@given(data=st.data())
def test_as_the_oracles(check: Any, data: Any) -> None:
    check(data, "cpu")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8])
def test_residual_gives_the_input_itself_back(dtype: torch.dtype) -> None:
    x = floats(3, 2)
    taken, residual = bert_padding.index_first_axis_residual(x, torch.tensor([2, 2], dtype=dtype))
    assert torch.equal(taken, x[[2, 2]])
    assert residual.data_ptr() == x.data_ptr()
    (taken.sum() + 2 * residual.sum()).backward()
    assert x.grad.tolist() == [[2, 2], [2, 2], [4, 4]]


@pytest.mark.parametrize("module", [bert_padding, flash], ids=["quadrat", "oracle"])
def test_compiles_whole(module: Any) -> None:
    def model(hidden: Any, mask: Any) -> Any:
        tokens, indices, cu_seqlens, longest, used = module.unpad_input(hidden.sin(), mask)
        return module.pad_input(tokens.square(), indices, *mask.shape), cu_seqlens, longest + 1, used

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for mask in (MASK, torch.ones(3, 4, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.int64)):
        hidden = floats(3, 4, 2)
        got, expected = compiled(hidden, mask), model(hidden, mask)
        flash.assert_same(got, expected)
        assert torch.equal(*(torch.autograd.grad(out[0].sum(), hidden)[0] for out in (got, expected)))


def test_the_others_compile_whole() -> None:
    def model(hidden: Any, indices: Any, lengths: Any) -> Any:
        taken, residual = bert_padding.index_first_axis_residual(hidden.flatten(0, 1), indices)
        several = bert_padding.unpad_input_for_concatenated_sequences(hidden, lengths)
        return taken, residual, *several

    arguments = floats(3, 4, 2), torch.tensor([2, 0, 2]), MASK * 2
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    flash.assert_same(compiled(*arguments), model(*arguments))


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (TypeError, lambda: bert_padding.unpad_input(floats(3, 4), MASK.numpy()), "must be a torch tensor"),
        (ValueError, lambda: bert_padding.unpad_input(floats(3, 5), MASK), r"must be \[3, 5\], not \[3, 4\]"),
        (ValueError, lambda: bert_padding.unpad_input(floats(3, 4), MASK[0]), "the mask must be"),
        (ValueError, lambda: bert_padding.unpad_input(floats(3, 4), MASK.to("meta")), "the mask is on meta"),
        (ValueError, lambda: bert_padding.pad_input(floats(3), torch.tensor([1, 2]), 2, 2), "3 tokens and 2 indices"),
        (ValueError, lambda: bert_padding.pad_input(floats(3), MASK, 2, 2), "indices must be integers, one per token"),
        (TypeError, lambda: bert_padding.pad_input(floats(2), np.arange(2), 2, 2), "torch tensor, not ndarray"),
        (TypeError, lambda: bert_padding.index_first_axis(floats(2), [0]), "indices must be a torch tensor, not list"),
        (ValueError, lambda: bert_padding.pad_input(floats(3), floats(3), 2, 2), "indices must be integers, one per"),
        (IndexError, lambda: bert_padding.pad_input(floats(2), torch.tensor([1, 4]), 2, 2), r"indices\[1\] is 4"),
        (IndexError, lambda: bert_padding.index_first_axis(floats(2), torch.tensor([-1])), r"indices\[0\] is -1"),
        (ValueError, lambda: bert_padding.index_first_axis(floats(2), torch.tensor([0]).to("meta")), "are on meta"),
    ],
)
def test_bad_arguments_are_named(error: Any, call: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_mask_of_floats_and_other_numbers() -> None:
    hidden = torch.arange(12.0).reshape(3, 4)
    for mask in (MASK.float(), MASK.bfloat16(), MASK * 3, -MASK):
        flash.assert_same(bert_padding.unpad_input(hidden, mask), flash.unpad_input(hidden, mask))


def test_what_others_import_from_there() -> None:
    with pytest.raises((ModuleNotFoundError, AttributeError), match=r"einops|no attribute"):
        _ = bert_padding.neither
    assert dir(bert_padding) == sorted(bert_padding.__all__)
