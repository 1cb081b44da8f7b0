"""The slices of context parallelism, and TransformerEngine's functions, against plain PyTorch."""

import doctest

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import quadrat
from quadrat.varlen import context_parallel as module

torch = pytest.importorskip("torch")
from support.thd import (  # noqa: E402
    DTYPES,
    LENGTHS,
    MULTIPLES,
    a_column,
    boundaries,
    pad_sequences,
    padded_boundaries,
    positions,
    rank_slice,
    same,
)

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
    made = quadrat.context_parallel_slice(bounds, column, cp_size=size, cp_rank=rank, dim=dim)
    assert same(made, expected)
    assert made.is_contiguous()
    both = quadrat.context_parallel_slice(bounds, None, column, cp_size=size, cp_rank=rank, dim=dim)
    assert both[0] is None
    assert same(both[1], expected)
    if dtype != torch.bfloat16:
        options = {"cp_size": size, "cp_rank": rank, "dim": dim}
        array = quadrat.context_parallel_slice(bounds.tolist(), column.numpy(), **options)
        assert same(torch.from_numpy(array), expected)
    on_device = object.__new__(module._Slicer)
    on_device._dim = dim
    on_device._on_gpu(bounds.long(), column.shape[dim], 2 * size, rank, True)
    assert same(on_device(column), expected)


@given(lengths=LENGTHS, group=SIZE_AND_RANK, dim=st.sampled_from([0, 1]))
def test_get_batch_as_published(*, lengths, group, dim):
    size, rank = group
    bounds = boundaries(lengths)
    batch = [a_column(int(bounds[-1]), torch.int64) for _ in range(2)]
    batch = [one[None] for one in batch] if dim else batch
    made = module.get_batch_on_this_cp_rank(bounds, *batch, None, cp_size=size, cp_rank=rank)
    assert made[2] is None
    for one, column in zip(made, batch, strict=False):
        where = dim if not dim or bounds[-1] != 1 else 1
        assert same(one, column if size == 1 else rank_slice(column, bounds, size, rank, where))
    on_device = object.__new__(module._Slicer)
    on_device._dim = dim
    on_device._on_gpu(bounds.long(), int(bounds[-1]), 2 * size, rank, False)
    assert same(on_device(batch[0]), rank_slice(batch[0], bounds, size, rank, dim))


@given(lengths=LENGTHS, multiple=MULTIPLES, flat=st.booleans(), kinds=st.tuples(DTYPES, DTYPES))
def test_padding_as_published(*, lengths, multiple, flat, kinds):
    bounds = boundaries(lengths)
    columns = [a_column(int(bounds[-1]), dtype) for dtype in kinds]
    given_columns = columns if flat or bounds[-1] == 1 else [one[None] for one in columns]
    made = module.pad_thd_sequences_for_cp(*given_columns, bounds, multiple, 1, 0)
    assert same(made[0], pad_sequences(columns[0], bounds, multiple, 1))
    assert same(made[1], pad_sequences(columns[1], bounds, multiple, 0))
    assert same(made[2], padded_boundaries(bounds, multiple))


@given(lengths=LENGTHS, multiple=MULTIPLES, dtype=st.sampled_from([None, torch.int32, torch.int64]))
def test_positions_as_published(*, lengths, multiple, dtype):
    bounds = boundaries(lengths)
    made = module.generate_positional_ids_for_cp(bounds, multiple, *([] if dtype is None else [dtype]))
    assert same(made, positions(bounds, multiple, dtype or torch.int64))


def test_gradients_go_back_to_the_tokens():
    bounds = torch.tensor([0, 4, 12])
    values = torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    made = quadrat.context_parallel_slice(bounds, values, cp_size=2, cp_rank=1)
    made.sum().backward()
    assert torch.equal(values.grad[:, 0].nonzero().flatten(), torch.tensor([1, 2, 6, 7, 8, 9]))


def test_all_ranks_have_each_token_once():
    bounds, values = torch.tensor([0, 8, 8, 40]), torch.arange(40)
    parts = [quadrat.context_parallel_slice(bounds, values, cp_size=4, cp_rank=rank) for rank in range(4)]
    assert sorted(torch.cat(parts).tolist()) == list(range(40))


def test_by_a_process_group():
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        batch = torch.arange(4), None, torch.arange(4)
        assert module.get_batch_on_this_cp_rank(torch.tensor([0, 4]), *batch) == batch
    finally:
        dist.destroy_process_group()


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
            r"sequence 0 has 4 tokens, which is not a multiple .* quadrat.align",
        ),
    ],
)
def test_a_slice_refuses(options, error, words):
    with pytest.raises(error, match=words):
        quadrat.context_parallel_slice(np.array([0, 4, 12]), np.arange(12), **options)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ((torch.arange(8), None, None), {"qvk_format": "no"}, "Unsupported qvk_format: no!"),
        ((torch.arange(8), None, None), {"qvk_format": "bshd"}, "Support not implemented yet for qvk_format: bshd!"),
        ((torch.arange(7), None, None), {}, "no dimension of a tensor of shape"),
        ((torch.arange(8), None, None), {"cp_rank": None}, "give both cp_size and cp_rank"),
    ],
)
def test_get_batch_refuses(columns, options, words):
    with pytest.raises(ValueError, match=words):
        module.get_batch_on_this_cp_rank(torch.tensor([0, 8]), *columns, **{"cp_size": 2, "cp_rank": 0, **options})


def test_the_examples_in_their_docstrings():
    assert doctest.testmod(module).failed == 0
