"""Gathering tensors of a GPU, against what transformers makes of them."""

import functools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from transformers import trainer_pt_utils

import quadrat
from support.gpu import NEEDS_GPU, torch

pytestmark = NEEDS_GPU

WIDTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
DTYPES = st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.bool])


def batch(width: int, dtype: Any) -> tuple[Any, dict[str, Any]]:
    numbers = torch.arange(2 * width * 3, device="cuda").reshape(2, width, 3)
    return numbers.to(dtype), {"labels": torch.arange(2, device="cuda")}


@given(WIDTHS, DTYPES)
def test_concat_padded_stays_there(widths: list[int], dtype: Any) -> None:
    batches = [batch(width, dtype) for width in widths]
    tensor, named = quadrat.concat_padded(batches)
    expected = functools.reduce(trainer_pt_utils.nested_concat, batches)
    assert tensor.is_cuda
    assert torch.equal(tensor, expected[0])
    assert torch.equal(named["labels"], expected[1]["labels"])


@given(WIDTHS, DTYPES, st.sampled_from([1, 2, 9]), st.booleans())
def test_containers(widths: list[int], dtype: Any, every: int, overwrite: bool) -> None:
    arrays = []
    for make in (trainer_pt_utils.EvalLoopContainer, quadrat.EvalLoopContainer):
        container = make()
        for step, width in enumerate(widths, start=1):
            given_batch = batch(width, dtype)
            container.add(given_batch)
            if overwrite:
                given_batch[0].zero_()
            if step % every == 0:
                container.to_cpu_and_numpy()
        arrays.append(container.get_arrays())
    (expected, expected_named), (tensor, named) = arrays
    assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
    assert tensor.tobytes() == expected.tobytes()
    assert named["labels"].tolist() == expected_named["labels"].tolist()


@given(WIDTHS.filter(any), DTYPES)
def test_ragged_containers(widths: list[int], dtype: Any) -> None:
    container = quadrat.EvalLoopContainer(ragged=True)
    for width in widths:
        container.add(batch(width, dtype))
    rows, named = container.get_arrays()
    assert [len(row) for row in rows] == [width for width in widths for _ in range(2)]
    assert named["labels"].tolist() == [0, 1] * len(widths)
