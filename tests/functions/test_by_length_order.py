"""by_length and map_by_length: each row once, and its result in its place."""

import collections
import contextlib
import random

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat.batching import by_length, map_by_length
from support.numbered import pad, rows_of

Pair = collections.namedtuple("Pair", ["one", "other"])
# What a function may return of a padded batch, whose first token is the row's number.
STRUCTURES = {
    "array": lambda ids: ids[:, 0],
    "pooled": lambda ids: ids[:, :1] * np.ones((1, 3), np.float32),
    "padded": lambda ids: ids + 0.5,
    "tensor": torch.from_numpy,
    "list": lambda ids: [str(row[0]) for row in ids],
    "lists of any length": lambda ids: [row[row > 0] for row in ids],
    "ragged": lambda ids: quadrat.unpad(ids, mask=ids > 0),
    "ragged tensor": lambda ids: quadrat.unpad(torch.from_numpy(ids), mask=torch.from_numpy(ids > 0)),
    "dict": lambda ids: {"sum": ids.sum(1), 3: [*ids[:, 0]], "none": None},
    "nested": lambda ids: (Pair(ids[:, 0], {"more": torch.from_numpy(ids[:, :1])}), (ids.sum(1),)),
    "ordered": lambda ids: collections.defaultdict(list, rows=ids[:, 0]),
}


def same(expected, result):
    """Equal, up to what a row is padded with."""
    assert type(expected) is type(result)
    if isinstance(expected, dict):
        assert expected.keys() == result.keys()
        for key in expected:
            same(expected[key], result[key])
    elif isinstance(expected, (tuple, list)):
        assert len(expected) == len(result)
        for pair in zip(expected, result, strict=True):
            same(*pair)
    elif isinstance(expected, quadrat.Ragged):
        assert expected.to_lists() == result.to_lists()
    elif isinstance(expected, (np.ndarray, torch.Tensor)):
        assert (expected.dtype, expected.ndim) == (result.dtype, result.ndim)
        width = expected.shape[-1] if expected.ndim else 0
        np.testing.assert_array_equal(expected, result[..., :width] if width else result)
    else:
        assert expected == result


def row_of(whole, row):
    if isinstance(whole, dict):
        mapping = type(whole)(list) if isinstance(whole, collections.defaultdict) else {}
        return mapping | {key: row_of(part, row) for key, part in whole.items()}
    if isinstance(whole, tuple):
        parts = [row_of(part, row) for part in whole]
        return Pair(*parts) if isinstance(whole, Pair) else tuple(parts)
    return None if whole is None else whole[row]


class Gathering:
    """Stands for `torch.distributed`, with processes that run one after the other, until each has the others' parts."""

    def __init__(self, ranks):
        self.parts = [None] * ranks

    def of(self, world_size, rank):
        self.rank = rank
        return self

    def all_gather_object(self, parts, local_part):
        self.parts[self.rank] = local_part
        parts[:] = self.parts
        if any(part is None for part in parts):
            raise TimeoutError


def check_order(draw, monkeypatch):
    """One random trial: rows, a structure, a budget, windows and ranks."""
    lengths = [draw.choice((1, 2, 3, draw.randint(1, 30))) for _ in range(draw.randint(1, 20))]
    function = STRUCTURES[draw.choice(list(STRUCTURES))]
    rows, budget = rows_of(lengths), draw.choice(("auto", 1, draw.randint(1, 90)))
    expected = [row_of(function(pad([row])), 0) for row in rows]
    options = {"collator": pad, "max_tokens": budget, "max_batch_size": draw.choice((None, draw.randint(1, 4)))}
    ranks = draw.choice((1, 1, 2, 3))
    if ranks == 1 and draw.random() < 0.5:
        return same(expected, list(map_by_length(function, iter(rows), window=draw.randint(1, 25), **options)))
    monkeypatch.setattr("quadrat.batching.any_loop._require_processes", Gathering(ranks).of)
    for rank in [*range(ranks)] * 2:
        with contextlib.suppress(TimeoutError):
            whole = map_by_length(function, rows, world_size=ranks, rank=rank, **options)
            same(expected, [row_of(whole, row) for row in range(len(rows))])
    return None


@pytest.mark.parametrize("seed", range(4))
def test_order_in_random_trials(seed, monkeypatch):
    draw = random.Random(seed)
    for _ in range(250):
        check_order(draw, monkeypatch)


@given(
    st.lists(st.integers(1, 40) | st.integers(1, 3), min_size=1, max_size=50),
    st.integers(1, 200),
    st.integers(1, 4),
    st.none() | st.integers(1, 7),
    st.sampled_from([1, 4]),
)
def test_each_row_once_longest_first_within_the_budget(lengths, budget, ranks, most, multiple):
    def collator(rows):
        return quadrat.pad([row["input_ids"] for row in rows], pad_to_multiple_of=multiple)

    collator.pad_to_multiple_of = multiple
    budget = max(budget, multiple)
    options = {"collator": collator, "max_tokens": budget, "max_batch_size": most}
    shares = [by_length(rows_of(lengths), world_size=ranks, rank=rank, **options) for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1
    seen = []
    for share in shares:
        longest = [lengths[numbers[0]] for numbers, _ in share]
        if ranks == 1:
            assert longest == sorted(longest, reverse=True)
        for numbers, batch in share:
            seen += numbers.tolist()
            assert (batch[:, 0] == numbers + 1).all()
            assert batch.size <= budget or len(numbers) == 1
            assert most is None or len(numbers) <= most
    assert set(seen) == set(range(len(lengths)))
    assert len(seen) - len(lengths) < ranks
