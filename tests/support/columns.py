"""Batches that come as columns: what holds them, and the list of features that says the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import torch
from hypothesis import strategies as st
from transformers import BatchEncoding

import quadrat
from quadrat.input.items import LazyRow, LazyTable

_INT_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_FLOAT_TYPES = [pa.float32(), pa.float64()]


def features_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The features the reference takes: a dict of Python lists per row."""
    rows = len(next(iter(columns.values())))
    return [{name: values[row] for name, values in columns.items()} for row in range(rows)]


@st.composite
def columns(draw: Any, *, labels: str | None = None, equal: bool = False, odd: bool = True) -> dict[str, list[Any]]:
    """Columns of rows and of numbers, all in Python lists.

    equal: rows of one length. odd: now and then None, a string, rows of lists, a number too large or too small.
    """
    count = draw(st.integers(1, 5))
    longest = draw(st.integers(0, 9))
    lengths = [longest] * count if equal else draw(st.lists(st.integers(0, longest), min_size=count, max_size=count))
    small = st.integers(0, 1)
    batch: dict[str, list[Any]] = {
        "input_ids": [draw(st.lists(st.integers(3, 120), min_size=n, max_size=n)) for n in lengths]
    }
    for name in draw(
        st.lists(st.sampled_from(["attention_mask", "token_type_ids", "special_tokens_mask"]), unique=True)
    ):
        elements = draw(st.sampled_from([small, small, small, st.booleans(), st.floats(0, 1, width=32)]))
        batch[name] = [draw(st.lists(elements, min_size=n, max_size=n)) for n in lengths]
    if labels is not None:
        batch[labels] = [draw(st.lists(st.integers(-100, 120), min_size=n, max_size=n)) for n in lengths]
    if draw(st.booleans()):
        numbers = draw(st.sampled_from([st.integers(0, 9), st.floats(0, 1, width=32), st.booleans()]))
        batch[draw(st.sampled_from(["label", "score", "label_ids"]))] = [draw(numbers) for _ in range(count)]
    if odd and draw(st.integers(0, 3)) == 0:
        _spoil(draw, batch)
    return {name: batch[name] for name in draw(st.permutations(sorted(batch)))}


def _spoil(draw: Any, batch: dict[str, list[Any]]) -> None:
    rows = len(batch["input_ids"])
    kind = draw(st.sampled_from(["null row", "null number", "text", "nested", "uneven", "large"]))
    name, row = draw(st.sampled_from(sorted(batch))), draw(st.integers(0, rows - 1))
    if kind == "null row":
        batch[name][row] = None
    elif kind == "text":
        batch["text"] = [f"text {i}" for i in range(rows)]
    elif kind == "nested":
        batch["pairs"] = [[[i, i + 1] for i in range(2)] for _ in range(rows)]
    elif isinstance(batch[name][row], list) and batch[name][row]:
        values = list(batch[name][row])
        if kind == "uneven":
            values.pop()
        elif kind == "null number" or type(values[0]) is not int:
            values[0] = None
        else:
            values[0] = 2**63 - 1
        batch[name][row] = values


def _arrow(draw: Any, values: list[Any]) -> pa.Array:
    """An Arrow column that says the same: any width that fits, any kind of list."""
    inferred = pa.array(values)
    if not pa.types.is_list(inferred.type):
        return inferred.cast(draw(st.sampled_from(_fitting(inferred)))) if draw(st.booleans()) else inferred
    item = inferred.type.value_type
    if not pa.types.is_null(item) and not pa.types.is_list(item) and draw(st.booleans()):
        item = draw(st.sampled_from(_fitting(inferred.flatten())))
    lists = [pa.list_, pa.list_, pa.large_list]
    sizes = {None if row is None else len(row) for row in values}
    if len(sizes) == 1 and None not in sizes:
        lists.append(lambda of: pa.list_(of, sizes.copy().pop()))
    return pa.array(values, draw(st.sampled_from(lists))(item))


def _fitting(array: pa.Array) -> list[pa.DataType]:
    known = _INT_TYPES if pa.types.is_integer(array.type) else _FLOAT_TYPES if pa.types.is_floating(array.type) else []
    fitting = [array.type]
    for dtype in known:
        try:
            array.cast(dtype)
        except pa.ArrowInvalid:
            continue
        fitting.append(dtype)
    return fitting


def _table(draw: Any, columns: dict[str, list[Any]]) -> pa.Table:
    return pa.table({name: _arrow(draw, values) for name, values in columns.items()})


def _chunked(draw: Any, columns: dict[str, list[Any]]) -> pa.Table:
    table = _table(draw, columns)
    cut = draw(st.integers(0, table.num_rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def _sliced(draw: Any, columns: dict[str, list[Any]]) -> pa.Table:
    """Rows in the middle of a longer table."""
    table = _table(draw, columns)
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    longer = pa.concat_tables([*[table.slice(0, 1)] * before, table, *[table.slice(0, 1)] * after]).combine_chunks()
    return longer.slice(before, table.num_rows)


def _as_numpy(values: list[Any]) -> Any:
    if all(type(value) in (int, float, bool) for value in values):
        return np.array(values)
    if not _is_ragged(values):
        return values
    if len({len(row) for row in values}) == 1 and len(values[0]) > 0:
        return np.array(values)
    rows = np.empty(len(values), object)
    for i, row in enumerate(values):
        rows[i] = row  # lists, so that the kind of an empty one is nobody's guess
    return rows


def _is_ragged(values: list[Any]) -> bool:
    return all(isinstance(row, list) and all(type(x) in (int, float, bool) for x in row) for row in values) and (
        len({type(x) for row in values for x in row}) == 1
    )


def _ragged(_: Any, columns: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        name: quadrat.Ragged.from_rows(values) if _is_ragged(values) else values for name, values in columns.items()
    }


def _nested(_: Any, columns: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: _as_nested(values) if _is_ragged(values) else values for name, values in columns.items()}


def _as_nested(values: list[Any]) -> torch.Tensor:
    dtype = torch.tensor([x for row in values for x in row]).dtype
    dtype = torch.float64 if dtype.is_floating_point else dtype
    return torch.nested.nested_tensor([torch.tensor(row, dtype=dtype) for row in values], layout=torch.jagged)


def _record_batch(draw: Any, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    sliced = _sliced(draw, columns)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in sliced.columns], names=list(columns))


def _lazy_rows(draw: Any, columns: dict[str, list[Any]]) -> list[LazyRow]:
    table = _table(draw, columns)
    half = len(table) // 2
    return [row for part in (table[:half], table[half:]) for row in LazyTable(part).rows(range(len(part)))]


FORMS: dict[str, Callable[[Any, dict[str, list[Any]]], Any]] = {
    "dict": lambda _, columns: dict(columns),
    "tuples": lambda _, columns: {name: tuple(values) for name, values in columns.items()},
    "BatchEncoding": lambda _, columns: BatchEncoding(dict(columns)),
    "table": _table,
    "chunked": _chunked,
    "sliced": _sliced,
    "record batch": _record_batch,
    "dict of arrow": lambda draw, columns: {name: _arrow(draw, values) for name, values in columns.items()},
    "polars": lambda _, columns: polars.DataFrame(columns, strict=True),
    # What a dataset with NumPy format gives: a matrix where rows are equally long, else an array of arrays.
    "numpy": lambda _, columns: {name: _as_numpy(values) for name, values in columns.items()},
    "ragged": _ragged,
    "nested": _nested,
    "lazy rows": _lazy_rows,
}
