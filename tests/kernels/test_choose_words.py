"""choose_words, compiled, against its oracle."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from quadrat.input.columns import LABELS, OUT_OF_RANGE, PAD, BatchLayout
from quadrat.support import generators

# By id; the last one is special besides, and 5 has no token.
TOKENS = ["a", "##b", "[CLS]", "[SEP]", "##", None, "c", "##c"]
PIECES = np.array([0, 1, 2, 2, 1, 8, 0, 1 | 4], np.uint8)
KNOWN = [0, 0, 1, 1, 2, 3, 4, 6, 7]
INT64 = _core.kinds.index("int64")

LENGTHS = st.integers(0, 12) | st.sampled_from([60, 623, 1300])
ROWS = st.tuples(LENGTHS, st.integers(0, 10**6)).map(lambda pair: random.Random(pair[1]).choices(KNOWN, k=pair[0]))


def draws_of(source, seed):
    """(who shuffles or None, (source, generator), permutation as the library draws it from a generator like it)."""
    if source == "torch":
        ours, theirs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        return None, (generators.TORCH, ours), lambda n: torch.randperm(n, generator=theirs).tolist()
    if source == "numpy":
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        origin = generators.NUMPY, ours
    else:
        ours, theirs = random.Random(seed), random.Random(seed)
        origin = generators.TORCH, torch.Generator().manual_seed(1)

    def permutation(n):
        order = list(range(n))
        theirs.shuffle(order)
        return order

    return (None if source == "numpy" else ours), origin, permutation


def masked(interop, rows, shuffle, origin, *, width, joined=None, probability=0.5, side="right", before=None):
    """The batch in which chosen tokens stay as they are: those that are labels, or where it failed."""
    columns = _core.Columns()
    columns.add_values(rows, interop)
    if joined is not None:
        columns.add_values(joined, interop)
    replacement = 0.0, None, 5, len(TOKENS)
    labels = _core.WordLabels(shuffle, *origin, probability, replacement, PIECES, joined is not None, before)
    steps = (("input_ids", 0, PAD, INT64), ("labels", 0, LABELS, INT64))
    return columns.run(steps, {"input_ids": 5, "labels": labels}, interop, False, BatchLayout(width, 1, side == "left"))


@pytest.mark.parametrize("source", ["python", "torch", "numpy"])
@given(
    rows=st.lists(ROWS, min_size=1, max_size=5),
    refers=st.booleans(),
    probability=st.sampled_from([0.0, 0.15, 0.5, 0.625, 1.0]) | st.floats(0, 1),
    side=st.sampled_from(["right", "left"]),
    extra=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
def test_chooses_as_the_oracle(interops, source, *, rows, refers, probability, side, extra, seed):
    draw = random.Random(seed)
    joined = [[draw.randint(-2, len(row) + 1) for _ in range(draw.randint(0, 6))] if refers else [] for row in rows]
    shuffle, origin, permutation = draws_of(source, seed)
    width = max(map(len, rows)) + extra
    options = {"joined": joined if refers else None, "probability": probability, "side": side}
    batch = masked(interops["exchange"], rows, shuffle, origin, width=width, **options)
    chosen = oracles.choose_words([[TOKENS[i] for i in row] for row in rows], joined, probability, permutation)
    expected = np.full((len(rows), width), -100)
    for row, positions, labels in zip(rows, chosen, expected, strict=True):
        start = width - len(row) if side == "left" else 0
        for position in positions:
            if not PIECES[row[position]] & 4:
                labels[start + position] = row[position]
    assert np.array_equal(batch["labels"], expected)


@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_says_which_id_has_no_token_and_draws_nothing(interops, rows, data):
    row = data.draw(st.integers(0, len(rows) - 1))
    position = data.draw(st.integers(0, len(rows[row])))
    rows[row].insert(position, data.draw(st.sampled_from([5, -1, len(TOKENS), -(2**63), 2**63 - 1])))
    shuffle = random.Random(3)
    before, generator = shuffle.getstate(), np.random.default_rng(3)
    width = max(map(len, rows))
    for who in (shuffle, None):
        failed = masked(interops["exchange"], rows, who, (generators.NUMPY, generator), width=width)
        assert failed == (1, OUT_OF_RANGE, row, position)
    assert shuffle.getstate() == before
    assert generator.bit_generator.state == np.random.default_rng(3).bit_generator.state


def test_what_is_called_before_may_stop_it(interops):
    shuffle = random.Random(3)
    before = shuffle.getstate()

    def stop():
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        masked(interops["exchange"], [[0]], shuffle, (generators.TORCH, torch.Generator()), width=1, before=stop)
    assert shuffle.getstate() == before


def test_pieces_are_the_same_in_python():
    from quadrat.planning import vocabulary

    assert [vocabulary._piece(token) for token in TOKENS[:-1]] == PIECES[:-1].tolist()
    assert PIECES[-1] == vocabulary.JOINS | vocabulary.KEPT
