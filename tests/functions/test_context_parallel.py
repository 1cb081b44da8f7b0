"""The slices of context parallelism against plain PyTorch."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import quadrat
from quadrat.varlen import context_parallel as module

torch = pytest.importorskip("torch")
from support.thd import DTYPES, a_column, boundaries, rank_slice, same  # noqa: E402

SIZE_AND_RANK = st.integers(1, 5).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


@given(
    chunks=st.lists(st.integers(0, 9), max_size=6),
    group=SIZE_AND_RANK,
    dtype=DTYPES,
    trailing=st.sampled_from([(), (3,)]),
    dim=st.sampled_from([0, 1]),
)
def test_a_slice_as_sequence_by_sequence(*, chunks, group, dtype, trailing, dim):
    size, rank = group
    bounds = boundaries([2 * size * length for length in chunks])
    column = a_column(int(bounds[-1]), dtype, trailing)
    column = column[None] if dim else column
    expected = rank_slice(column, bounds, size, rank, dim)
    made = quadrat.varlen.context_parallel_slice(bounds, column, cp_size=size, cp_rank=rank, dim=dim)
    assert same(made, expected)
    assert made.is_contiguous()
    both = quadrat.varlen.context_parallel_slice(bounds, None, column, cp_size=size, cp_rank=rank, dim=dim)
    assert both[0] is None
    assert same(both[1], expected)
    if dtype != torch.bfloat16:
        options = {"cp_size": size, "cp_rank": rank, "dim": dim}
        array = quadrat.varlen.context_parallel_slice(bounds.tolist(), column.numpy(), **options)
        assert same(torch.from_numpy(array), expected)
    on_device = object.__new__(module._Slicer)
    on_device._dim = dim
    on_device._on_gpu(bounds.long(), column.shape[dim], 2 * size, rank)
    assert same(on_device(column), expected)


def test_gradients_go_back_to_the_tokens():
    bounds = torch.tensor([0, 4, 12])
    values = torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    made = quadrat.varlen.context_parallel_slice(bounds, values, cp_size=2, cp_rank=1)
    made.sum().backward()
    assert torch.equal(values.grad[:, 0].nonzero().flatten(), torch.tensor([1, 2, 6, 7, 8, 9]))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cp_size": 0, "cp_rank": 0}, ValueError, "cp_size must be positive, not 0"),
        ({"cp_size": 2, "cp_rank": 2}, ValueError, r"cp_rank must be in \[0, 2\), but is 2"),
        ({"cp_size": 2, "cp_rank": -1}, ValueError, r"cp_rank must be in \[0, 2\)"),
        ({"cp_size": 2.0, "cp_rank": 0}, TypeError, "cp_size must be an int"),
        (
            {"cp_size": 4, "cp_rank": 0},
            ValueError,
            r"sequence 0 has 4 tokens, which is not a multiple .* quadrat.varlen.align",
        ),
    ],
)
def test_a_slice_refuses(options, error, words):
    with pytest.raises(error, match=words):
        quadrat.varlen.context_parallel_slice(np.array([0, 4, 12]), np.arange(12), **options)
