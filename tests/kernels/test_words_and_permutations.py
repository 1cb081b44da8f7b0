"""choose_words and permutation_mask, compiled, against their oracles, which get what the libraries draw."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from quadrat.support import generators
from quadrat.support.columns import LABELS, OUT_OF_RANGE, PAD, BatchLayout

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
    from quadrat.masking import vocabulary

    assert [vocabulary._piece(token) for token in TOKENS[:-1]] == PIECES[:-1].tolist()
    assert PIECES[-1] == vocabulary.JOINS | vocabulary.KEPT


BAD_ARGUMENT = (7, -1, -1)


class Torch:
    """All from one generator."""

    slack = 0

    def __init__(self, seed):
        self.generators = torch.Generator().manual_seed(seed), None

    def below(self, n):
        return int(torch.randint(n, (1,), generator=self.generators[0]))

    def order(self, n):
        return torch.randperm(n, generator=self.generators[0]).numpy()

    def state(self):
        return self.generators[0].get_state().tolist()


class NumPy:
    """Spans from Python's generator, orders from NumPy's; both ends of a range count."""

    slack = 1

    def __init__(self, seed):
        self.generators = random.Random(seed), np.random.RandomState(seed)

    def below(self, n):
        return self.generators[0].randint(0, n - 1)

    def order(self, n):
        pairs = np.arange(2 * n).reshape(2, n).T  # a matrix, as the reference shuffles it
        self.generators[1].shuffle(pairs)
        return pairs[:, 0].copy()

    def state(self):
        return self.generators[0].getstate(), self.generators[1].get_state()[1].tolist(), self.generators[1].get_state()


SOURCES = {"pt": Torch, "np": NumPy}


def spans_of(source, contexts, width):
    reserved, spans = 0, []
    while reserved < width:
        length = 1 + source.below(len(contexts))
        spans.append((reserved + source.below(contexts[length - 1] - length + source.slack + 1), length))
        reserved += contexts[length - 1]
    return spans


@st.composite
def contexts_of(draw, slack):
    """At least as many tokens as the span itself, or `slack` fewer."""
    return [
        max(1, n - slack + draw(st.integers(0, 20) | st.sampled_from([0, 1000])))
        for n in range(1, 1 + draw(st.integers(1, 7)))
    ]


class Call:
    """The arguments of a call, guarded, and a picture of what it made."""

    def __init__(self, guarded, ids, functional):
        rows, width = ids.shape
        shapes = {"ids": (rows, width), "labels": (rows, width), "perm_mask": (rows, width, width)}
        shapes["target_mapping"] = (rows, width, width)
        kinds = {"ids": "int64", "labels": "int64", "perm_mask": "float32", "target_mapping": "float32"}
        self.out = {name: guarded(kinds[name], shape) for name, shape in shapes.items()}
        self.out["ids"].array[:] = ids
        self.functional = None if functional is None else guarded("uint8", (rows, width))
        if functional is not None:
            self.functional.array[:] = functional

    def run(self, generators, contexts, special=(), mask_id=9, width=None):
        rows, tokens = self.out["ids"].array.shape
        addresses = [out.address for out in self.out.values()]
        flags = 0 if self.functional is None else self.functional.address
        width = tokens if width is None else width
        return _core.permutation_mask(*generators, contexts, special, mask_id, rows, width, flags, *addresses)

    def arrays(self):
        assert all(out.intact() for out in self.out.values())
        return {name: out.array for name, out in self.out.items()}


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), rows=st.integers(0, 4), half=st.integers(0, 20))
def test_masks_as_the_oracle(guarded, source, *, data, seed, rows, half):
    ours, theirs = SOURCES[source](seed), SOURCES[source](seed)
    contexts = data.draw(contexts_of(ours.slack))
    width = 2 * half
    ids = np.array(data.draw(st.lists(st.integers(-3, 70), min_size=rows * width, max_size=rows * width)), np.int64)
    ids = ids.reshape(rows, width)
    special = data.draw(st.lists(st.sampled_from([0, 3, 5, 63, 64, 70]), max_size=4))
    given_flags = data.draw(st.booleans())
    functional = np.isin(ids, special).astype(np.uint8)
    call = Call(guarded, ids, functional if given_flags else None)
    assert call.run(ours.generators, contexts, () if given_flags else special, mask_id=77) is None
    arrays = call.arrays()
    expected = {name: np.empty_like(array) for name, array in arrays.items()}
    expected["ids"][:] = ids
    spans = [spans_of(theirs, contexts, width) for _ in range(rows)]
    order = np.array([theirs.order(half) for _ in range(rows)], np.int64).reshape(rows, half)
    oracles.permutation_mask(spans, order, functional, mask_id=77, **expected)
    for name, array in expected.items():
        assert arrays[name].tobytes() == array.tobytes(), name
    assert str(ours.state()) == str(theirs.state())


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("contexts", [[], [0], [-1], [2, -3], [1, 0], [2**28], [1, 2, 2**40], [-(2**63)], [3, 2, 1]])
def test_refuses_contexts_that_hold_no_span(guarded, source, contexts):
    ours, theirs = SOURCES[source](5), SOURCES[source](5)
    call = Call(guarded, np.zeros((2, 4), np.int64), None)
    assert call.run(ours.generators, contexts) == BAD_ARGUMENT
    assert all(call.out[name].untouched() for name in ("labels", "perm_mask", "target_mapping"))
    assert str(ours.state()) == str(theirs.state())


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("width", [-2, 1, 3, 2**31, 2**62])
def test_refuses_widths_that_have_no_halves(guarded, source, width):
    ours = SOURCES[source](5)
    call = Call(guarded, np.zeros((0, 4), np.int64), None)
    assert call.run(ours.generators, [6], width=width) == BAD_ARGUMENT
