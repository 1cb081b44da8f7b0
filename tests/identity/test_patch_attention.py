"""patch_transformers and patch_flash_attn: the same logits and gradients, and no error or number of its own."""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support import flash
from support.masks import masks

utils = pytest.importorskip("transformers.modeling_flash_attention_utils")
NAMES = ["_get_unpad_data", "_unpad_input", "_index_first_axis", "_pad_input"]
if any(name not in vars(utils) for name in NAMES):
    pytest.skip("a transformers with other functions", allow_module_level=True)
ORIGINALS = {name: getattr(utils, name) for name in NAMES}
LAYERS = 5


def test_swapped() -> None:
    with quadrat.patch_transformers():
        assert all(getattr(utils, name) is not ORIGINALS[name] for name in NAMES)
        assert all(inspect.signature(getattr(utils, name)) == inspect.signature(ORIGINALS[name]) for name in NAMES)
    with quadrat.patch_transformers(attention=False):
        assert {name: getattr(utils, name) for name in NAMES} == ORIGINALS


def test_what_is_in_use_is_swapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "_pad_fn", utils._pad_input)
    monkeypatch.setattr(utils, "_unpad_fn", utils._unpad_input)
    with quadrat.patch_transformers():
        assert utils._pad_fn is utils._pad_input is not ORIGINALS["_pad_input"]
        assert utils._unpad_fn is utils._unpad_input
    assert (utils._pad_fn, utils._unpad_fn) == (ORIGINALS["_pad_input"], ORIGINALS["_unpad_input"])


@given(masks(st.sampled_from([1, 1, 1, 2])), st.booleans())
def test_the_functions_give_what_they_gave(mask: Any, unused: bool) -> None:
    if not len(mask):
        return
    mask = torch.from_numpy(mask)
    hidden = torch.randn(*mask.shape, 2, 3)
    others = ((torch.rand(mask.shape) < 0.3).to(mask.dtype),) if unused else ()
    results = []
    for patched in (False, True):
        functions = ORIGINALS
        if patched:
            with quadrat.patch_transformers():
                functions = {name: getattr(utils, name) for name in NAMES}
        found = functions["_get_unpad_data"](mask)
        tokens = functions["_index_first_axis"](hidden, found[0])
        padded = functions["_pad_input"](tokens, found[0], *mask.shape)
        results.append((*found, tokens, padded, *functions["_unpad_input"](hidden, mask, *others)))
    flash.assert_same(*results)


def _with_tensors(name: str) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        found = ORIGINALS[name](*arguments)
        return tuple(torch.tensor(value, dtype=torch.int32) if isinstance(value, int) else value for value in found)

    return function


def test_the_longest_length_is_a_tensor_where_the_original_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    for name, arguments in {"_get_unpad_data": (mask,), "_unpad_input": (torch.randn(2, 3, 4), mask)}.items():
        monkeypatch.setattr(utils, name, _with_tensors(name))
        expected = getattr(utils, name)(*arguments)
        with quadrat.patch_transformers():
            flash.assert_same(getattr(utils, name)(*arguments), expected)


def test_indices_of_others_are_left_to_the_original() -> None:
    tensor = torch.randn(2, 3, 2, requires_grad=True)
    with quadrat.patch_transformers():
        taken = utils._index_first_axis(tensor, torch.tensor([-1, 0, 0]))
        padded = utils._pad_input(torch.ones(2, 1), torch.tensor([-1, 0], dtype=torch.int32), 2, 2)
        found, *_ = utils._get_unpad_data(torch.ones(2, 3, dtype=torch.int64))
        found[0] = 1
        utils._index_first_axis(tensor, found).sum().backward()
    assert torch.equal(taken, tensor.reshape(6, 2)[[-1, 0, 0]])
    assert padded.flatten().tolist() == [1, 0, 0, 1]
    assert tensor.grad is not None
    assert tensor.grad[0].flatten().tolist() == [0, 0, 2, 2, 1, 1]


@pytest.mark.parametrize("side", ["right", "left"])
def test_layers_learn_the_same_and_the_mask_is_read_once(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    lengths, width = torch.tensor([5, 9, 1]), 9
    mask = (torch.arange(width) < lengths[:, None]).long()
    mask = mask.flip(1) if side == "left" else mask
    counted, nonzero = [0], torch.nonzero

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted[0] += 1
        return nonzero(*args, **kwargs)

    monkeypatch.setattr(torch, "nonzero", counting)  # which would wait for a GPU
    results = []
    for patched in (False, True):
        torch.manual_seed(0)
        start = torch.randn(3, width, 4, 8, requires_grad=True)
        hidden, counted[0] = start, 0
        patch = quadrat.patch_transformers() if patched else None
        for _ in range(LAYERS):  # as transformers around `flash_attn_varlen_func`
            found = utils._upad_input(hidden, hidden.cos(), hidden.sin(), mask, width, utils._unpad_input)
            q, k, v, indices, (bounds, _), (longest, _) = found
            hidden = utils._pad_input(q * k + v + bounds[1:].sum() + longest, indices, 3, width)
        hidden.sum().backward()
        if patch is not None:
            patch.undo()
        results.append([hidden, start.grad])
        assert counted == [0 if patched else LAYERS]
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="torch 2.4 traces what the originals do")
def test_compiled_code_calls_the_originals() -> None:
    def layer(hidden: Any, mask: Any) -> Any:
        indices, bounds, _ = utils._get_unpad_data(mask)
        return utils._pad_input(utils._index_first_axis(hidden, indices).sin(), indices, *mask.shape), bounds

    mask, hidden = torch.tensor([[1, 1, 0], [0, 1, 0]]), torch.randn(2, 3, 2)
    with quadrat.patch_transformers():
        got = torch.compile(layer, fullgraph=True, backend="aot_eager")(hidden, mask)
    flash.assert_same(got, layer(hidden, mask))


def _stand_in(five: bool) -> Any:
    """A `flash_attn` that is installed, as far as the import system knows."""
    package, module = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.bert_padding")

    def unpad_five(hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> Any:
        return flash.unpad_input(hidden_states, attention_mask, unused_mask)

    def unpad_four(hidden_states: Any, attention_mask: Any) -> Any:
        return flash.unpad_input(hidden_states, attention_mask)[:4]

    vars(module).update(
        unpad_input=unpad_five if five else unpad_four,
        pad_input=flash.pad_input,
        index_put_first_axis=flash.index_put_first_axis,
    )
    vars(package).update(bert_padding=module, __path__=[])
    return package, module


@pytest.mark.parametrize("five", [True, False])
def test_flash_attn(monkeypatch: pytest.MonkeyPatch, five: bool) -> None:
    package, module = _stand_in(five)
    using = types.ModuleType("flash_attn.using")
    using.pad_input = module.pad_input  # type: ignore[attr-defined]
    for name, one in (("flash_attn", package), ("flash_attn.bert_padding", module), ("flash_attn.using", using)):
        monkeypatch.setitem(sys.modules, name, one)
    monkeypatch.setattr(utils, "_pad_fn", module.pad_input)
    before = dict(vars(module))
    mask, hidden = torch.tensor([[1, 1, 0], [0, 1, 0]]), torch.randn(2, 3, 2)
    expected = module.unpad_input(hidden, mask)
    with quadrat.varlen.patch_flash_attn():
        assert module.pad_input is using.pad_input is utils._pad_fn is quadrat.bert_padding.pad_input  # type: ignore[attr-defined]
        assert module.unpad_input is not before["unpad_input"]
        assert not hasattr(module, "index_first_axis"), "nothing is added"
        flash.assert_same(module.unpad_input(hidden, mask), expected)
        assert len(expected) == (5 if five else 4)
    assert dict(vars(module)) == before
    assert using.pad_input is utils._pad_fn is before["pad_input"]  # type: ignore[attr-defined]


def test_without_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    monkeypatch.setitem(sys.modules, "flash_attn.bert_padding", None)
    with pytest.raises(ModuleNotFoundError, match=r"quadrat\.varlen\.patch_flash_attn needs flash_attn"):
        quadrat.varlen.patch_flash_attn()
