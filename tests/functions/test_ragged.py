"""quadrat.Ragged: its rows, what it refuses, copies, and how it shows itself."""

import html
import inspect
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat import Ragged
from support.ragged import INTS, KINDS, LIBRARIES, MOVED, ROWS, TRAILING, TYPES, array, moved, ragged

PLACES = st.none() | st.integers(-10, 10)


@pytest.mark.parametrize("library", ["np", "pt"])
@given(rows=ROWS, kind=st.sampled_from(KINDS), trailing=TRAILING)
def test_rows_are_views_of_the_values(library, rows, kind, trailing):
    batch, values = ragged(rows, library, kind, trailing)
    assert len(batch) == len(rows)
    assert type(batch.lengths) is TYPES[library]
    assert batch.lengths.tolist() == [len(row) for row in rows]
    bounds = list(pairwise(np.cumsum([0, *map(len, rows)]).tolist()))
    for i, (row, (first, last)) in enumerate(zip(batch, bounds, strict=True)):
        for seen in (row, batch[i], batch[i - len(rows)], batch[np.int64(i)]):
            assert type(seen) is TYPES[library]
            assert np.array_equal(np.asarray(seen), values[first:last])
        if row.shape[0] and 0 not in trailing:
            row[0] = 1
            assert bool((batch.values[first] == 1).all()), "a row is a view"
    assert batch.to_lists() == [np.asarray(batch.values)[first:last].tolist() for first, last in bounds]


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), start=PLACES, stop=PLACES)
def test_slices_are_ragged_over_the_same_values(rows, library, start, stop):
    batch, _ = ragged(rows, library)
    part = batch[start:stop]
    assert type(part) is quadrat.Ragged
    assert part.values is batch.values
    assert part.to_lists() == rows[start:stop]
    assert part.lengths.tolist() == [len(row) for row in rows[start:stop]]
    assert len(part) == len(rows[start:stop])
    assert part[:].to_lists() == rows[start:stop]


@st.composite
def chosen(draw, count):
    """What chooses copies of rows of `count`, and the numbers of these."""
    how = draw(st.sampled_from(["numbers", "mask", "range", "slice"]))
    if how == "slice":
        index = slice(draw(PLACES), draw(PLACES), draw(st.sampled_from([-3, -2, -1, 2, 3])))
        return index, list(range(count))[index]
    if how == "range":
        index = range(count - 1, draw(st.integers(-1, count)), -2)
        return index, list(index)
    if how == "mask":
        mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        make = draw(st.sampled_from([list, lambda mask: np.array(mask, bool), lambda mask: torch.tensor(mask).bool()]))
        return make(mask), [row for row, keep in enumerate(mask) if keep]
    numbers = draw(st.lists(st.integers(-count, count - 1), max_size=20)) if count else []
    kinds = [kind for kind in INTS if not kind.startswith("u") or min(numbers, default=0) >= 0]
    library, kind = draw(st.sampled_from([None, "np", "pt"])), draw(st.sampled_from(kinds))
    make = list if library is None else lambda numbers: array(numbers, kind, library)
    return make(numbers), [range(count)[number] for number in numbers]


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), trailing=TRAILING, data=st.data())
def test_chooses_copies_of_rows(rows, library, trailing, data):
    kind = data.draw(st.sampled_from(MOVED).filter(lambda kind: library == "pt" or kind != "bfloat16"))
    batch = moved(rows, kind, trailing, data.draw(st.integers(0, 3)))
    if library == "np":
        batch = quadrat.Ragged(batch.values.numpy(), batch.offsets.numpy())
    index, numbers = data.draw(chosen(len(rows)))
    got = batch[index]
    assert type(got) is quadrat.Ragged
    assert type(got.values) is type(got.offsets) is TYPES[library]
    assert got.values.dtype == batch.values.dtype
    assert tuple(got.values.shape) == (sum(len(rows[number]) for number in numbers), *trailing)
    assert got.offsets.dtype == LIBRARIES[library].int64
    assert got.offsets.tolist() == np.cumsum([0, *(len(rows[number]) for number in numbers)]).tolist()
    expected = batch.to_lists()
    assert got.to_lists() == [expected[number] for number in numbers]
    assert got.facts == quadrat.Ragged(got.values, got.offsets).facts
    got.values[:] = 1
    assert batch.to_lists() == expected, "a copy"


@given(rows=ROWS, data=st.data())
def test_chosen_rows_have_a_gradient(rows, data):
    batch, _ = ragged(rows, "pt", "float32")
    index, numbers = data.draw(chosen(len(rows)))
    batch.values.requires_grad_()
    batch[index].values.sum().backward()
    counts = np.bincount(np.array(numbers, np.int64), minlength=len(rows)).tolist()
    assert batch.values.grad.tolist() == [count for count, row in zip(counts, rows, strict=True) for _ in row]


def test_chooses_from_values_that_are_not_as_stored():
    """A view, and one of torch's that says that numbers are negated."""
    offsets = np.array([0, 2, 5])
    assert quadrat.Ragged(np.arange(10)[::-2], offsets)[[1, 0]].to_lists() == [[5, 3, 1], [9, 7]]
    negated = torch._neg_view(torch.arange(5))
    assert negated.is_neg()
    assert quadrat.Ragged(negated, torch.from_numpy(offsets))[[1, 0]].to_lists() == [[-2, -3, -4], [0, -1]]
    conjugate = torch.tensor([1j, 2j], dtype=torch.complex64).conj()
    assert quadrat.Ragged(conjugate, torch.tensor([0, 1, 2]))[[1, 0]].to_lists() == [[-2j], [-1j]]


@pytest.mark.parametrize("library", ["np", "pt"])
@pytest.mark.parametrize(
    ("error", "index", "message"),
    [
        (IndexError, [0, 2], "row 2 of 2"),
        (IndexError, [0, -3, 5], "row -3 of 2"),
        (IndexError, np.array([2**63], np.uint64), f"row {2**63} of 2"),
        (IndexError, torch.tensor([1, 7]), "row 7 of 2"),
        (IndexError, range(3), "row 2 of 2"),
        (IndexError, [True], "1 booleans for 2 rows"),
        (IndexError, np.ones(3, bool), "3 booleans for 2 rows"),
        (IndexError, torch.ones(0, dtype=torch.bool), "0 booleans for 2 rows"),
        (IndexError, [[0], [1]], "1-D index, not one of 2"),
        (TypeError, [0.0], "not by float64"),
        (TypeError, torch.ones(2), "not by float32"),
        (TypeError, np.zeros(0), "not by float64"),
        (TypeError, ["0"], "not by <U1"),
        (TypeError, [None], "not by object"),
        (TypeError, [2**70], "not by object"),
        (TypeError, (0, 1), "tuple"),
    ],
)
def test_refuses_to_choose(library, error, index, message):
    batch, _ = ragged([[1], [2, 3]], library)
    with pytest.raises(error, match=message):
        batch[index]
    with pytest.raises(IndexError, match="row 0 of 0"):
        batch[:0][[0]]


@given(rows=ROWS, beyond=st.integers(0, 5))
def test_knows_its_rows(rows, beyond):
    batch, _ = ragged(rows)
    for index in (len(rows) + beyond, -len(rows) - 1 - beyond):
        with pytest.raises(IndexError, match=f"row {index} of {len(rows)}"):
            batch[index]
    for index in ("0", 0.0, None, (0,)):
        with pytest.raises(TypeError):
            batch[index]


@pytest.mark.parametrize("library", ["np", "pt"])
@given(
    count=st.integers(0, 6),
    offsets=st.lists(st.integers(-2, 8), min_size=1, max_size=6),
    kind=st.sampled_from(INTS),
    rising=st.booleans(),
)
def test_takes_offsets_of_any_integers_and_refuses_those_outside_the_values(library, count, offsets, kind, rising):
    offsets = sorted(min(max(offset, 0), count) for offset in offsets) if rising else offsets
    offsets = [max(offset, 0) for offset in offsets] if kind.startswith("u") else offsets
    values, places = array(range(count), "int64", library), array(offsets, kind, library)
    steps = list(pairwise(offsets))
    if offsets[0] >= 0 and offsets[-1] <= count and all(first <= last for first, last in steps):
        batch = quadrat.Ragged(values, places)
        assert batch.to_lists() == [list(range(first, last)) for first, last in steps]
        assert batch.lengths.tolist() == [last - first for first, last in steps]
        assert quadrat.unpad(quadrat.pad(batch), lengths=batch.lengths).to_lists() == batch.to_lists()
        return
    bad = [i for i, (first, last) in enumerate(steps) if not 0 <= first <= last <= count] or [0]
    pairs = " and ".join(rf"offsets\[{bad[0] + i}\] is {bound}" for i, bound in enumerate(offsets[bad[0] : bad[0] + 2]))
    message = f"from 0 to {count} and must not decrease, but {pairs}$"
    with pytest.raises(ValueError, match=message):
        quadrat.Ragged(values, places)


@pytest.mark.parametrize(
    ("error", "values", "offsets", "message"),
    [
        (ValueError, np.arange(2), np.zeros(0, int), "offsets"),
        (ValueError, torch.arange(2), torch.zeros(0, dtype=torch.int64), "offsets"),
        (TypeError, [1, 2], np.array([0, 2]), "not list and ndarray"),
        (TypeError, np.arange(2), [0, 2], "not ndarray and list"),
        (TypeError, np.arange(2), torch.tensor([0, 2]), "not ndarray and Tensor"),
        (TypeError, torch.arange(2), np.array([0, 2]), "not Tensor and ndarray"),
        (TypeError, np.zeros(2, np.complex128), np.array([0, 2]), "complex128"),
        (TypeError, np.zeros(2, ">i4"), np.array([0, 2]), ">i4"),
        (TypeError, torch.zeros(2, dtype=torch.complex128), torch.tensor([0, 2]), "complex128"),
        (ValueError, np.array(1), np.array([0, 1]), "dimension"),
        (ValueError, np.arange(2), np.array([[0, 2]]), "must be integers"),
        (ValueError, np.arange(2), np.array([0.0, 2.0]), "integers"),
        (ValueError, np.arange(2), np.array([False, True]), "integers"),
        (ValueError, torch.zeros(2, device="meta"), torch.tensor([0, 2]), "meta"),
    ],
)
def test_refuses(error, values, offsets, message):
    with pytest.raises(error, match=message):
        quadrat.Ragged(values, offsets)


@given(rows=ROWS, library=st.sampled_from(sorted(LIBRARIES)), kind=st.sampled_from(KINDS), trailing=TRAILING)
def test_whatever_it_holds_it_can_be_shown(rows, library, kind, trailing):
    batch, values = ragged(rows, library, kind, trailing)
    facts = f"{len(rows)} rows, {len(values)} tokens, {batch.dtype}"
    assert repr(batch).startswith("Ragged([")
    assert repr(batch).endswith(f"], {facts})")
    assert batch._repr_html_().startswith(f"<table><caption>Ragged: {facts}</caption>")
    assert (batch.total, batch.max_length) == (len(values), max(map(len, rows), default=0))
    assert batch.inner_shape == tuple(trailing)
    assert batch.dtype == batch.values.dtype


def test_few_rows_and_numbers_are_shown():
    batch = Ragged.from_rows([list(range(n)) for n in range(9, 300)])
    lines = repr(batch).splitlines()
    assert len(lines) == 7
    assert lines[0] == "Ragged([[0, 1, 2, 3, ..., 5, 6, 7, 8],"
    assert lines[3].strip() == "...,"
    assert lines[6].endswith(f"298]], 291 rows, {sum(range(9, 300))} tokens, int64)")
    assert batch._repr_html_().count("<tr>") == 8


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Ragged.from_rows([[1, 2, 3], [7]]), "Ragged([[1, 2, 3],\n        [7]], 2 rows, 4 tokens, int64)"),
        (Ragged.from_rows([]), "Ragged([], 0 rows, 0 tokens, int64)"),
        (Ragged(np.zeros((2, 3)), np.array([0, 2])), "Ragged([<2 x 3>], 1 rows, 2 tokens, float64)"),
        (
            Ragged(torch.tensor([0.5], dtype=torch.bfloat16, requires_grad=True), torch.tensor([0, 1])),
            "Ragged([[0.5]], 1 rows, 1 tokens, torch.bfloat16)",
        ),
    ],
)
def test_it_reads_like_this(made, text):
    assert repr(made) == text


def test_a_row_that_is_never_read_as_a_whole():
    """Its ends are shown; the middle is on a disk, say."""

    class Watched(np.ndarray):
        def __array_finalize__(self, other):
            if other is not None and other.ndim == 1 and 20 < self.size < 1_000_000:
                raise AssertionError("a long part was copied")

    values = np.zeros(1_000_000, np.int8).view(Watched)
    assert repr(Ragged(values, np.array([0, 1_000_000]))).startswith("Ragged([[0, 0, 0, 0, ..., 0, 0, 0, 0]], 1 rows")


def test_errors_are_shown_as_text():
    offsets = np.array([0, 2])
    batch = Ragged(np.arange(2), offsets)
    offsets[1] = 9
    assert repr(batch).startswith("Ragged(offsets must be from 0")
    assert "<table><caption>Ragged: offsets must be from 0" in batch._repr_html_()


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_rows_of_one_length_become_an_array(library):
    batch = Ragged.from_rows([[1, 2], [3, 4], [5]], return_tensors=library)
    assert np.asarray(batch[:2]).tolist() == [[1, 2], [3, 4]]
    assert np.asarray(batch[:2], dtype=np.float32).dtype == np.float32
    assert np.asarray(batch[:0]).shape == (0,)
    with pytest.raises(TypeError, match=r"rows of 1 to 2 tokens is not rectangular: use to_padded\(\) .* to_lists\(\)"):
        np.asarray(batch)
    assert [row.tolist() for row in np.asarray(batch, dtype=object)] == [[1, 2], [3, 4], [5]]


def test_to_padded_has_the_options_of_pad():
    options = inspect.signature(quadrat.pad).parameters
    parameters = inspect.signature(Ragged.to_padded).parameters
    assert [(parameter.name, parameter.kind, parameter.default) for parameter in list(parameters.values())[1:]] == [
        (parameter.name, parameter.kind, parameter.default) for parameter in list(options.values())[1:]
    ]


def test_a_deferred_batch_is_a_table_of_its_columns():
    name = "<script>alert('x')</script>"
    batch = quadrat.deferred.DeferredBatch({name: torch.zeros(2, 3), "labels": torch.zeros(2)})
    shown = batch._repr_html_()
    assert "<script>" not in shown
    assert f"<td>{html.escape(name)}</td><td>[2, 3]</td><td>float32</td>" in shown
    assert shown.startswith("<table><caption>DeferredBatch: 128 bytes</caption>")
