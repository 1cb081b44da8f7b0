"""quadrat.bert_padding on a GPU, with the emulated kernels and CPU tensors in their place, against its oracles.

`tests/cuda/test_varlen.py` runs the same on a GPU.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat import bert_padding
from quadrat.ops import _device, _tokens
from quadrat.support import memory
from quadrat.varlen import bert_padding as functions
from support import flash
from support.on_device import emulated_launches
from support.varlen import CHECKS

WAITING = ["tolist", "item", "__bool__", "__int__", "nonzero", "cpu"]
RIGHT = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
HOLES = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


@contextlib.contextmanager
def gpu() -> Iterator[list[str]]:
    """Within, all CPU tensors count as those of a GPU; the kernels that are launched."""
    with pytest.MonkeyPatch.context() as patch, emulated_launches() as names:
        for module in (_device, _tokens, functions):
            patch.setattr(module, "on_gpu", memory.is_tensor)
        yield names


@contextlib.contextmanager
def waits() -> Iterator[list[str]]:
    """What would wait for a GPU meanwhile."""
    seen: list[str] = []

    def counting(name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return original(self, *args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WAITING:
            patch.setattr(torch.Tensor, name, counting(name))
        yield seen


@pytest.mark.parametrize("check", CHECKS)
@given(data=st.data())
def test_as_the_oracles(check: Any, data: Any) -> None:
    with gpu():
        check(data, "cpu")


@pytest.mark.parametrize("mask", [RIGHT, RIGHT.flip(1), HOLES], ids=["right", "left", "holes"])
def test_waits_once_for_a_mask(mask: Any) -> None:
    hidden = torch.randn(3, 4, 2)
    with gpu() as names, waits() as seen:
        tokens, indices, *_ = bert_padding.unpad_input(hidden, mask)
        back = bert_padding.pad_input(tokens, indices, 3, 4)
    assert seen == ["tolist"]
    assert names == ["mask_layout", "take_tokens", "take_tokens"]
    assert torch.equal(back, torch.where(mask[..., None] != 0, hidden, 0))


def test_waits_once_for_several_tensors() -> None:
    with gpu(), waits() as seen:
        quadrat.varlen.unpad_many(HOLES, HOLES, torch.randn(3, 4), torch.randn(3, 4, 2))
    assert seen == ["tolist"]


def test_waits_once_for_concatenated_sequences() -> None:
    lengths = torch.tensor([[2, 1, 0, 0], [4, 0, 0, 0]])
    hidden = torch.randn(2, 4, 3)
    with gpu(), waits() as seen:
        got = bert_padding.unpad_input_for_concatenated_sequences(hidden, lengths)
    assert seen == ["tolist"]
    flash.assert_same(got, flash.unpad_input_for_concatenated_sequences(hidden, lengths))


def test_indices_that_are_no_tokens() -> None:
    with gpu():
        taken = bert_padding.index_first_axis(torch.arange(1.0, 4.0), torch.tensor([2, -1, 3, 0]))
    assert taken.tolist() == [3, 0, 0, 1]
