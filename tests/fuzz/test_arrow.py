"""Arrow data of every type that quadrat reads, in buffers that end where they must: rows, and what collators make."""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import _core
from quadrat.input.rows import rows_of
from quadrat.support.memory import interop
from support import samples
from support.arrow_parts import Part, Streamed
from support.compare import assert_seeded_alike

_NUMBERS = {
    "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32", "l": "int64", "L": "uint64",
    "f": "float32", "g": "float64", "e": "float16",
}  # fmt: skip
_LISTS = ["+l", "+l", "+L", "+w"]
_LEAVES = ["l", "i", *_NUMBERS, "b", "n", "u", "U", "z", "Z"]


def _bits(flags: list[bool]) -> np.ndarray:
    return np.packbits(np.array(flags, bool), bitorder="little")


def _texts(draw: Any, kind: str, total: int) -> tuple[list[Any], list[Any]]:
    """Offsets and characters, and the texts or bytes."""
    texts = [draw(st.sampled_from(["", "a", "bc", "w3", "\u4e2d", "\x1b[0m"])) for _ in range(total)]
    encoded = [text.encode() for text in texts]
    start = draw(st.integers(0, 2))  # the first offset need not be 0
    offsets = start + np.cumsum([0, *map(len, encoded)])
    characters = np.frombuffer(b"x" * start + b"".join(encoded), np.uint8).copy()
    return [offsets.astype(np.int32 if kind in "uz" else np.int64), characters], encoded if kind in "zZ" else texts


@st.composite
def column(
    draw: Any, length: int, *, name: str = "", depth: int = 2, kind: str | None = None
) -> tuple[Part, list[Any]]:
    """A part of this length, and its values. depth: how many levels of lists there may be."""
    kind = kind or draw(st.sampled_from([*_LISTS * 3, *_LEAVES] if depth else _LEAVES))
    before = draw(st.sampled_from([0, 0, 1, 3, 9]))
    total = before + length
    children: list[Part] = []
    buffers: list[Any] = []
    if kind in _NUMBERS:
        dtype = np.dtype(_NUMBERS[kind])
        numbers = draw(st.lists(st.integers(0, 120), min_size=total, max_size=total))
        array = np.array(numbers, dtype)
        if total and draw(st.integers(0, 3)) == 0:
            array[-1] = np.iinfo(dtype).max if dtype.kind != "f" else np.nan
        values, buffers = array.tolist(), [array]
    elif kind == "b":
        values = draw(st.lists(st.booleans(), min_size=total, max_size=total))
        buffers = [_bits(values)]
    elif kind == "n":
        return Part("n", length, [], name=name), [None] * length
    elif kind in "uUzZ":
        buffers, values = _texts(draw, kind, total)
    else:
        values, buffers, children, kind = draw(_lists(total, kind, depth))
    valid = [True] * total
    if draw(st.integers(0, 3)) == 0:
        valid = [draw(st.integers(0, 3)) > 0 for _ in range(total)]
    part = Part(
        kind, length, [None if all(valid) and draw(st.booleans()) else _bits(valid), *buffers], children,
        name=name, exact=True,
    )  # fmt: skip
    part.array.offset = before
    part.array.null_count = (
        draw(st.sampled_from([-1, valid[before:].count(False)])) if part.buffers[0] is not None else 0
    )
    return part, [value if ok else None for value, ok in zip(values, valid, strict=True)][before:]


@st.composite
def _lists(draw: Any, total: int, kind: str, depth: int) -> tuple[list[Any], list[Any], list[Part], str]:
    if kind == "+w":
        size = draw(st.integers(0, 3))
        child, items = draw(column(size * total + draw(st.integers(0, 2)), depth=depth - 1))
        return [items[row * size : (row + 1) * size] for row in range(total)], [], [child], f"+w:{size}"
    lengths = [draw(st.integers(0, 4)) for _ in range(total)]
    start = draw(st.integers(0, 2))
    child, items = draw(column(start + sum(lengths) + draw(st.integers(0, 2)), name="item", depth=depth - 1))
    offsets = start + np.cumsum([0, *lengths])
    values = [items[first:last] for first, last in pairwise(offsets)]
    return values, [offsets.astype(np.int32 if kind == "+l" else np.int64)], [child], kind


@st.composite
def tables(draw: Any) -> tuple[Part, list[dict[str, Any]]]:
    length = draw(st.integers(0, 5))
    names = ["input_ids"] + [name for name in ("attention_mask", "labels", "extra") if draw(st.integers(0, 2)) == 0]
    parts, rows = [], [dict.fromkeys(names) for _ in range(length)]
    for name in names:
        tokens = name == "input_ids" and draw(st.integers(0, 5)) > 0
        part, values = draw(_tokens(length) if tokens else column(length, name=name))
        parts.append(part)
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    table = Part("+s", length, [None], parts)
    return table, rows


@st.composite
def _tokens(draw: Any, length: int) -> tuple[Part, list[Any]]:
    """Rows of numbers without nulls, at least often."""
    lengths = [draw(st.integers(0, 9)) for _ in range(length)]
    child, items = draw(column(sum(lengths), name="item", depth=0, kind=draw(st.sampled_from("ilSC"))))
    bounds = np.cumsum([0, *lengths])
    values = [items[first:last] for first, last in pairwise(bounds)]
    return Part("+l", length, [None, bounds.astype(np.int32)], [child], name="input_ids", exact=True), values


def parts_of(part: Part) -> list[Part]:
    return [part, *(inner for child in part.parts for inner in parts_of(child))]


_SCALARS: list[tuple[pa.DataType, Callable[[int], Any]]] = [
    (pa.int64(), int), (pa.int8(), int), (pa.float32(), float), (pa.float16(), np.float16), (pa.bool_(), bool),
    (pa.string(), str), (pa.large_string(), str), (pa.string_view(), str), (pa.binary(), lambda n: bytes([n])),
    (pa.binary_view(), lambda n: bytes([n]) * 20), (pa.binary(2), lambda n: bytes([n, 0])), (pa.date32(), int),
    (pa.timestamp("us"), int), (pa.duration("s"), int), (pa.time64("ns"), int), (pa.decimal128(9, 2), int),
    (pa.dictionary(pa.int8(), pa.string()), str), (pa.dictionary(pa.int32(), pa.int64()), int),
    (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), lambda n: {"a": n, "b": ["x"] * (n % 3)}),
    (pa.map_(pa.string(), pa.int64()), lambda n: [("k", n)]), (pa.null(), lambda n: None),
]  # fmt: skip


@st.composite
def pyarrow_columns(draw: Any, length: int) -> pa.ChunkedArray:
    """A column of any type of pyarrow's, of lists of it or of lists of these: in chunks, and a slice of more."""
    kind, value = draw(st.sampled_from(_SCALARS))
    values = [None if draw(st.integers(0, 9)) == 0 else value(draw(st.integers(0, 99))) for _ in range(length + 2)]
    for _ in range(draw(st.integers(0, 2))):
        lists = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
        kind = draw(st.sampled_from(lists))(kind)
        values = [None if draw(st.integers(0, 12)) == 0 else values[:n] for n in _sizes(draw, length + 2)]
    column = pa.array(values, kind)
    if pa.types.is_int64(kind) and draw(st.booleans()):
        column = column.dictionary_encode()
    first, cut = draw(st.integers(0, 2)), draw(st.integers(0, length))
    column = column.slice(first, length)
    return pa.chunked_array([column.slice(0, cut), column.slice(cut)], column.type)


def _sizes(draw: Any, count: int) -> list[int]:
    return [draw(st.integers(0, 4)) for _ in range(count)]


@st.composite
def pyarrow_tables(draw: Any) -> pa.Table:
    length = draw(st.integers(0, 5))
    ids = pa.array([list(range(3, 3 + n)) for n in _sizes(draw, length)], pa.list_(pa.int64()))
    others = {f"c{number}": draw(pyarrow_columns(length)) for number in range(draw(st.integers(0, 2)))}
    return pa.table({"input_ids": ids, **others})


pytestmark = pytest.mark.filterwarnings("ignore")


def assert_collated_alike(name, framework, rows, table, *, calls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference, collator = samples.pair(name, return_tensors=framework)
        for _ in range(calls):
            assert_seeded_alike(reference, collator, [dict(row) for row in rows], table)


@given(tables(), st.booleans())
def test_values_are_those_of_lists(table_and_rows, streamed):
    table, rows = table_and_rows
    assert repr(list(rows_of(Streamed(table) if streamed else table))) == repr(rows)


OFFSETS = st.integers(-2, 12) | st.sampled_from([-(2**31), 2**31 - 1, 2**31 - 2, 255, 256])


def assert_read_or_refused(table):
    try:
        rows = rows_of(table)
        _core.collect(rows, None, interop())  # where they lie
        rows = list(rows)
    except ValueError as error:
        assert "damaged" in str(error) or isinstance(error, UnicodeDecodeError)  # noqa: PT017
    else:
        assert all(type(row) is dict for row in rows)


@given(tables(), st.data())
def test_changed_offsets_are_read_or_refused(table_and_rows, data):
    table, _ = table_and_rows
    with_offsets = [part for part in parts_of(table) if len(part.buffers) > 1 and part.schema.format[:1] in b"+uUzZ"]
    for _ in range(data.draw(st.integers(1, 3)) if with_offsets else 0):
        part = data.draw(st.sampled_from(with_offsets))
        place, offset = data.draw(st.integers(0, len(part.buffers[1]) - 1)), data.draw(OFFSETS)
        last = place == part.array.offset + part.array.length
        if last and part.schema.format[:1] != b"+":  # nothing else says how many characters there are
            offset = min(offset, int(part.buffers[1][place]))
        part.buffers[1][place] = offset
    assert_read_or_refused(table)


@given(tables(), st.data())
def test_shorter_parts_are_read_or_refused(table_and_rows, data):
    table, _ = table_and_rows
    for _ in range(data.draw(st.integers(1, 2))):
        part = data.draw(st.sampled_from(parts_of(table)))
        part.array.length -= data.draw(st.integers(0, 3))
        part.array.null_count = data.draw(st.sampled_from([part.array.null_count, -1, 1]))
    assert_read_or_refused(table)


@given(st.sampled_from(samples.BATCHES), tables())
def test_collated_as_lists(collators, table_and_rows):
    table, rows = table_and_rows
    assert_collated_alike(*collators, rows, table, calls=1)  # it can be read once


@given(pyarrow_tables())
def test_every_type_of_pyarrow(table):
    rows = list(rows_of(table))
    assert repr(rows) == repr(table.to_pylist())
    assert [list(map(type, row.values())) for row in rows] == [
        list(map(type, row.values())) for row in table.to_pylist()
    ]


@given(st.sampled_from(samples.BATCHES), pyarrow_tables())
def test_every_type_of_pyarrow_is_collated(collators, table):
    assert_collated_alike(*collators, table.to_pylist(), table, calls=2)
