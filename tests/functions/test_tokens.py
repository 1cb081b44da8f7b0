"""`quadrat.ops.tokens`: tokens that a mask keeps, taken out of a batch and put back, against plain PyTorch."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat.ops.tokens import layout_of, put, take
from support import kept_tokens

MASK = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def floats(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("check", kept_tokens.CHECKS)
@given(data=st.data())
def test_as_the_oracles(check: Any, data: Any) -> None:
    check(data, "cpu")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (ValueError, lambda: put(floats(3), torch.tensor([1, 2]), (2, 2)), "3 tokens and 2 indices"),
        (IndexError, lambda: put(floats(2), torch.tensor([1, 4]), (2, 2)), r"indices\[1\] is 4"),
        (IndexError, lambda: take(floats(2), torch.tensor([-1])), r"indices\[0\] is -1"),
    ],
)
def test_bad_arguments_are_named(error: Any, call: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_mask_of_floats_and_other_numbers() -> None:
    for mask in (MASK.float(), MASK.bfloat16(), MASK * 3, -MASK):
        kept_tokens.assert_same(layout_of(mask), kept_tokens.layout(mask))
