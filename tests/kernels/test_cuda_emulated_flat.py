"""flatten_columns for CUDA, compiled as C++, against the oracles and hostile input."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import emulated
from support.emulated import BLOCKS, address, shifted, sparse_bytes
from support.hostile import BITS, HOSTILE, INT64, KINDS, LENGTHS

COPIED, SEPARATED = _core.FLAT_VALUES, _core.FLAT_SEPARATED
POSITIONS, SEQUENCES, BOUNDS = _core.FLAT_POSITIONS, _core.FLAT_SEQUENCES, _core.FLAT_BOUNDS
ORIGINS = st.integers(0, 5) | st.sampled_from([2**31, 2**40])  # the offsets of a slice do not begin at 0
STARTS = st.integers(-5, 5) | st.sampled_from([INT64.min, INT64.max - 10**6])
UNTOUCHED = np.frombuffer(b"\xa5" * 4, np.int32)[0]


def offsets_of(lengths: list[int], origin: int) -> np.ndarray:
    return origin + np.cumsum([0, *lengths], dtype=np.int64)


@given(KINDS, LENGTHS.filter(any), st.integers(0, 5), st.integers(0, 300), STARTS, BLOCKS, st.data())
def test_flatten_columns(guarded, kind, lengths, before, extra, first, blocks, data):  # noqa: PLR0917
    unsigned = f"u{np.dtype(kind).itemsize}"
    top, inner = np.iinfo(unsigned).max, data.draw(st.sampled_from([1, 1, 1, 2, 3, 5, 8, 33]))
    offsets, size, fill = offsets_of(lengths, before), sum(lengths) + extra, data.draw(BITS) & top
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = rng.integers(0, top, (int(offsets[-1]) + 2, inner), unsigned, endpoint=True)
    values = shifted(values, data.draw(st.integers(0, 15)))
    rows = [values[a:b].reshape(-1) for a, b in itertools.pairwise(offsets)]
    starts = [int(offset - before) * inner for offset in offsets[:-1]]
    copied = np.full(size * inner, fill, unsigned)
    oracles.copy_rows(rows, starts, copied)
    separated = copied.reshape(size, inner).copy()
    oracles.separate_rows(
        [start // inner for start, row in zip(starts, rows, strict=True) if len(row)], fill, separated
    )
    expected = {
        COPIED: copied, SEPARATED: separated.reshape(-1), POSITIONS: np.empty(size, np.int64),
        SEQUENCES: np.empty(size, np.int32), BOUNDS: np.empty(len(lengths) + 1, np.int64),
    }  # fmt: skip
    oracles.position_ids(lengths, first, expected[POSITIONS])
    oracles.seq_idx(lengths, expected[SEQUENCES])
    oracles.cu_seqlens(lengths, expected[BOUNDS])
    outs, columns = {}, []
    for source, array in expected.items():
        outs[source] = guarded(array.dtype, array.size)
        number = first % 2**64 if source == POSITIONS else 0
        rest = fill if source <= SEPARATED else 2**64 - 1
        place = (address(values), len(values), inner) if source <= SEPARATED else (0, 0, 1)
        columns.append((source, *place, array.itemsize, number, rest, outs[source].address))
    emulated.flatten_columns(columns, address(offsets), len(lengths), size, blocks)
    for source, array in expected.items():
        assert np.array_equal(outs[source].array, array), source
        assert outs[source].intact()


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(LENGTHS, ORIGINS, st.integers(0, 300), STARTS, BLOCKS)
def test_flatten_columns_tells_rows_apart(guarded, kind, lengths, origin, extra, first, blocks):  # noqa: PLR0917
    """position_ids, seq_idx and cu_seqlens need no values, and offsets may begin anywhere."""
    offsets, rows = offsets_of(lengths, origin), len(lengths)
    size = sum(lengths) + (extra if rows else 0)
    kinds = {POSITIONS: "int64", SEQUENCES: "int32", BOUNDS: kind}
    outs = {source: guarded(kinds[source], rows + 1 if source == BOUNDS else size) for source in kinds}
    expected = {source: np.empty_like(out.array) for source, out in outs.items()}
    if any(lengths):
        oracles.position_ids(lengths, first, expected[POSITIONS])
    else:
        expected[POSITIONS] = outs[POSITIONS].array.copy()  # nothing to count on from
    oracles.seq_idx(lengths, expected[SEQUENCES])
    oracles.cu_seqlens(lengths, expected[BOUNDS])
    columns = [
        (source, 0, 0, 1, out.array.itemsize, first % 2**64, 2**64 - 1, out.address) for source, out in outs.items()
    ]
    emulated.flatten_columns(columns, address(offsets), rows, size, blocks)
    for source, out in outs.items():
        assert np.array_equal(out.array, expected[source]), source
        assert out.intact()


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), HOSTILE, st.sampled_from([1, 2, 4, 8]), BLOCKS)
def test_flatten_columns_with_hostile_offsets(guarded, offsets, size, first, item, blocks):  # noqa: PLR0917
    """Nothing outside is written, and only what is among the values; the bounds wrap."""
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    size = size if rows else 0
    values = guarded(f"u{item}", (size,))
    values.bytes[:] = 0x5A
    for how in (COPIED, SEPARATED):
        flat = guarded(f"u{item}", (size,))
        column = (how, values.address, size, 1, item, 0, 0, flat.address)
        emulated.flatten_columns([column], address(source), rows, size, blocks)
        assert flat.intact()
        assert set(flat.bytes.tolist()) <= {0, 0x5A, 0xA5}
    positions, sequences = guarded("int64", (size,)), guarded("int32", (size,))
    bounds = guarded("int32", (rows + 1,)), guarded("int64", (rows + 1,))
    columns = [
        (POSITIONS, 0, 0, 1, 8, first % 2**64, 0, positions.address),
        (SEQUENCES, 0, 0, 1, 4, 0, 2**64 - 1, sequences.address),
        *((BOUNDS, 0, 0, 1, out.array.itemsize, 0, 0, out.address) for out in bounds),
    ]
    emulated.flatten_columns(columns, address(source), rows, size, blocks)
    assert all(out.intact() for out in (positions, sequences, *bounds, values))
    assert set(sequences.array.tolist()) <= {-1, *range(rows), UNTOUCHED}
    wrapped = source.view(np.uint64) - source.view(np.uint64)[0]
    assert np.array_equal(bounds[0].array, wrapped.astype(np.uint32).view(np.int32))
    assert np.array_equal(bounds[1].array, wrapped.view(np.int64))


def test_flatten_columns_beyond_32_bits() -> None:
    """Values that lie there; what is written there takes a GPU."""
    offsets, out, separated = np.array([2**32 + 10, 2**32 + 13, 2**32 + 15], np.int64), *np.zeros((2, 6), np.uint8)
    with sparse_bytes(2**32 + 20) as values:
        values[2**32 + 10 : 2**32 + 15] = [1, 2, 3, 4, 5]
        place = address(values), len(values), 1, 1, 0, 9
        columns = [(COPIED, *place, address(out)), (SEPARATED, *place, address(separated))]
        emulated.flatten_columns(columns, address(offsets), 2, 6)
    assert out.tolist() == [1, 2, 3, 4, 5, 9]
    assert separated.tolist() == [9, 2, 3, 9, 5, 9]


def test_no_rows(guarded):
    """Nothing is read, and nothing written but where the last row ends."""
    bound, offsets = guarded("int32", (1,)), np.array([7], np.int64)
    emulated.flatten_columns([(BOUNDS, 0, 0, 1, 4, 0, 0, bound.address)], address(offsets), 0, 0)
    assert bound.array.tolist() == [0]
    emulated.flatten_columns([], address(offsets), 0, 0)


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_no_tokens(item: int) -> None:
    """Null addresses for what has no elements."""
    offsets = np.zeros(4, np.int64)
    columns = [(source, 0, 0, 1, item, 0, 0, 0) for source in (COPIED, SEPARATED)]
    columns += [(POSITIONS, 0, 0, 1, 8, 0, 0, 0), (SEQUENCES, 0, 0, 1, 4, 0, 0, 0)]
    emulated.flatten_columns(columns, address(offsets), 3, 0)
