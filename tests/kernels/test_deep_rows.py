"""Rows of more than one dimension: their forms, and where their elements go."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat.input import columns as ingest
from support.ingest import KINDS, columns_of

NUMBERS = st.sampled_from([kind for kind in KINDS if hasattr(torch, kind)])
TRAILING = st.lists(st.integers(0, 4), min_size=1, max_size=3)
LIBRARIES = st.sampled_from(["np", "pt"])
LENGTHS = st.lists(st.integers(0, 5) | st.just(70), min_size=1, max_size=5)


def rows_of(lengths, trailing, kind, library):
    shapes = [(length, *trailing) for length in lengths]
    arrays = [(i + np.arange(np.prod(shape)).reshape(shape)).astype(kind) for i, shape in enumerate(shapes)]
    return arrays if library == "np" else [torch.from_numpy(array) for array in arrays]


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@given(lengths=LENGTHS, trailing=TRAILING, kind=NUMBERS, library=LIBRARIES, extra=st.integers(0, 3), left=st.booleans())
def test_padded_and_flattened(interops, guarded, way, *, lengths, trailing, kind, library, extra, left):
    library = library if all(trailing) else "np"  # a tensor without elements has no address
    rows = rows_of(lengths, trailing, kind, library)
    columns = columns_of(rows, interops[way])
    form = ingest.DEEP | (ingest.ARRAY if library == "np" else ingest.TENSOR)
    seen = 1 << KINDS.index(kind) if any(lengths) and all(trailing) else 0
    assert columns.describe(0) == (form, form, seen, min(lengths), max(lengths), sum(lengths))
    assert columns.trailing(0) == tuple(trailing)
    assert ingest.column_shapes(columns.signature(0, 1))[0].forms == form
    width, value = max(lengths) + extra, True if kind == "bool" else 7
    out, expected = guarded(kind, (len(rows), width, *trailing)), np.full((len(rows), width, *trailing), value, kind)
    for place, row in zip(expected, rows, strict=True):
        place[width - len(row) if left else 0 :][: len(row)] = row
    assert columns.pad(0, out.address, KINDS.index(kind), width, left, value) is None
    assert out.holds(expected)
    joined = guarded(kind, (sum(lengths), *trailing))
    assert columns.flatten(0, joined.address, KINDS.index(kind), sum(lengths)) is None
    assert joined.holds(np.concatenate([np.asarray(row) for row in rows]))


@given(lengths=LENGTHS, trailing=TRAILING, kind=NUMBERS)
def test_pieces(interops, guarded, *, lengths, trailing, kind):
    values = np.concatenate(rows_of(lengths, trailing, kind, "np"))
    offsets = np.cumsum([0, *lengths])
    columns = columns_of([], interops["exchange"])
    place = values.ctypes.data, KINDS.index(kind), len(values), offsets.ctypes.data, len(lengths)
    columns.add_ragged(*place, trailing)
    starts, sizes = np.array([length // 2 for length in lengths]), np.array([length // 3 for length in lengths])
    columns.cut(1, starts.ctypes.data, sizes.ctypes.data)
    out = guarded(kind, (int(sizes.sum()), *trailing))
    assert columns.flatten(1, out.address, KINDS.index(kind), int(sizes.sum())) is None
    where = offsets[:-1] + starts
    assert out.holds(np.concatenate([values[first : first + size] for first, size in zip(where, sizes, strict=True)]))


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize(
    "other",
    [
        np.zeros((2, 4)), np.zeros((2, 3, 1)), np.zeros(3), np.zeros((3, 2)).T, np.zeros((2, 6))[:, ::2], [], 1.0,
        torch.zeros(2, 4), torch.zeros(3, 2).T, torch.zeros(2, 6)[:, ::2], torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3).to_sparse(), torch.empty(2, 3, device="meta"), np.zeros((2, 3), complex), [[0.0] * 3] * 2,
    ],
)  # fmt: skip
def test_a_row_of_other_dimensions_is_no_row_of_the_column(interops, guarded, way, other):
    columns = columns_of([np.ones((2, 3)), other], interops[way])
    assert columns.describe(0)[0] & ingest.OTHER
    assert columns.count(0) == 2
    out = guarded("float64", (2, 2, 3))
    assert columns.pad(0, out.address, KINDS.index("float64"), 2, False, 0)[0] == ingest.WRONG_TYPE
    assert out.untouched()


def test_a_row_that_is_reshaped_after_the_look_is_refused(interops, guarded):
    array = np.ones((2, 6))
    columns = columns_of([array, np.ones((2, 6))], interops["exchange"])
    array.shape = (4, 3)
    out = guarded("float64", (4, 6))
    assert columns.flatten(0, out.address, KINDS.index("float64"), 4)[0] == ingest.CHANGED
    assert out.untouched()


def test_tokens_without_elements_of_any_size(interops):
    columns = columns_of([torch.empty_strided((0, 2**40, 2**30), (9, 2**30, 1))], interops["exchange"])
    assert columns.describe(0)[0] == ingest.OTHER
    with pytest.raises(ValueError, match="no memory"):
        columns.add_ragged(0, 0, 0, np.zeros(1, np.int64).ctypes.data, 0, (2**40, 2**30))
