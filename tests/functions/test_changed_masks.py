"""Nothing is remembered of a mask: what others write to its memory, unknown to torch, is seen at once."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from quadrat.bert_padding import pad_input, unpad_input
from support import flash

utils = pytest.importorskip("transformers.modeling_flash_attention_utils")

NEW = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
WAYS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda mask: np.copyto(mask.numpy(), NEW.numpy()),
    "data": lambda mask: mask.data.copy_(NEW),
    "other data": lambda mask: setattr(mask, "data", NEW.clone()),
    "storage": lambda mask: mask.untyped_storage().copy_(NEW.clone().untyped_storage()),
    "dlpack": lambda mask: torch.from_dlpack(mask.__dlpack__()).copy_(NEW),
    "in place": lambda mask: mask.copy_(NEW),
}


def a_mask() -> Any:
    return torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def by_unpad_input(hidden: Any, mask: Any) -> Any:
    return unpad_input(hidden, mask)[:4]


def by_unpad_many(hidden: Any, mask: Any) -> Any:
    (tokens,), indices, cu_seqlens, longest = quadrat.varlen.unpad_many(mask, hidden)
    assert torch.equal(quadrat.varlen.pad_many(mask, tokens)[0], torch.where(mask != 0, hidden, 0))
    return tokens, indices, cu_seqlens, longest


def by_patched_transformers(hidden: Any, mask: Any) -> Any:
    with quadrat.patch_transformers():
        indices, cu_seqlens, longest = utils._get_unpad_data(mask)
        return utils._index_first_axis(hidden, indices), indices, cu_seqlens, int(longest)


@pytest.mark.parametrize("unpad", [by_unpad_input, by_unpad_many, by_patched_transformers])
@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_a_mask_that_was_written_to(unpad: Any, write: Any) -> None:
    mask, hidden = a_mask(), torch.arange(12.0).reshape(3, 4)
    for _ in range(2):
        flash.assert_same(unpad(hidden, mask), flash.unpad_input(hidden, mask)[:4])
        write(mask)
        assert torch.equal(mask, NEW)


def test_indices_that_were_written_to() -> None:
    hidden, mask = torch.arange(12.0).reshape(3, 4), a_mask()
    tokens, indices, *_ = unpad_input(hidden, mask)
    indices.numpy()[:] = [0, 5, 6, 7]
    expected = torch.zeros(12)
    expected[[0, 5, 6, 7]] = tokens
    assert torch.equal(pad_input(tokens, indices, 3, 4).flatten(), expected)


@pytest.mark.parametrize("unpad", [by_unpad_input, by_unpad_many])
def test_what_is_returned_is_plain(unpad: Any) -> None:
    found = unpad(torch.ones(3, 4), a_mask())
    assert all(not vars(part) for part in found[:3])
    file = io.BytesIO()
    torch.save(found, file)
    file.seek(0)
    flash.assert_same(torch.load(file, weights_only=True), found)


def test_masks_may_be_swapped() -> None:
    mask, other = a_mask(), NEW.clone()
    hidden = torch.ones(3, 4)
    unpad_input(hidden, mask)
    torch.utils.swap_tensors(mask, other)
    flash.assert_same(unpad_input(hidden, mask), flash.unpad_input(hidden, NEW))
