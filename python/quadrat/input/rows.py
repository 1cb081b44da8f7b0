"""Features in columns: dicts of columns, Arrow tables, `Ragged`; read without a Python object per row."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, SupportsIndex

import numpy as np

from quadrat import _core
from quadrat.ragged import Ragged
from quadrat.support.arrays import carrier_of, dense, is_array
from quadrat.support.columns import OTHER
from quadrat.support.kinds import kind_of
from quadrat.support.memory import address_of, interop
from quadrat.support.tensors import has_tangent, is_tensor, on_gpu, other_than_memory

MAIN = "input_ids"
_of_table = _core.TableRows.__init__


class _Unwritable:
    def __str__(self) -> str:
        raise TypeError("these rows are stored in columns, and C code cannot read them as a list: give list(rows)")


class Rows(_core.TableRows):
    """Features that lie in columns, and for other code are a list of dicts, which are made when one is read.

    From then on the dicts are collated and pickled, with all changes to them. A slice shares them with the batch, as a
    list's does. C code that reads the memory of lists (`json.dumps`, `marshal`) raises an error: give it `list(rows)`.
    """

    # For code that asks whether features are a list; `type` still returns `Rows`.
    __class__ = property(lambda _: list)

    def __init__(self, *source: Any) -> None:
        """Rows of a table, or a slice of others; of any items, because other code calls `type(rows)(items)`."""
        if len(source) > 1 or (source and type(source[0]) is _core.Table):
            _of_table(self, *source)
        else:
            items: list[Any] = list(*source)
            _of_table(self, _core.Table((), []))
            self.__dict__["_rows"] = items
            self.hand_out()

    def read_by(self, read: Callable[[], list[dict[str, Any]]]) -> None:
        """Have a function make the dicts of all rows, when one is read."""
        self.__dict__["_read"] = read

    def as_list(self) -> list[dict[str, Any]]:
        """The rows as a list of dicts, the same at each call, which are collated from now on."""
        rows: list[dict[str, Any]] | None = self.__dict__.get("_rows")
        if rows is None:
            dicts, places = self._shared()
            if not dicts and (read := self.__dict__.get("_read")) is not None:
                for place, row in enumerate(read()):
                    dicts.setdefault(place, row)
            # Two threads that read at once both get the dicts of one of them.
            rows = [dicts.get(place) or dicts.setdefault(place, self.row(i)) for i, place in enumerate(places)]
            rows = self.__dict__.setdefault("_rows", rows)
            self.hand_out()
        return rows

    def __len__(self) -> int:
        rows = self.__dict__.get("_rows")
        return _core.TableRows.__len__(self) if rows is None else len(rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.as_list())

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Row `index`, or several: as `Rows` that lie in columns too, as long as no dict was made."""
        if self.handed_out or not isinstance(index, slice):
            return self.as_list()[index]
        dicts, places = self._shared()
        chosen = range(len(self))[index]
        part = Rows(self, chosen.start, chosen.step, len(chosen))
        part.__dict__.update(_family=(dicts, places[index]), _read=self.__dict__.get("_read"))
        return part

    def toDict(self) -> Any:  # noqa: N802
        """For pandas' encoder of JSON, which otherwise writes an empty object: a dict that raises."""
        return {_Unwritable(): None}

    def __radd__(self, other: Any) -> Any:
        return other + self.as_list()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a list of dicts, without the memory of the columns."""
        return list, (self.as_list(),)

    def __repr__(self) -> str:
        if self.handed_out:
            return f"Rows({self.as_list()!r})"
        return f"Rows({len(self)} rows, columns {list(self.names)})"

    def _shared(self) -> tuple[dict[int, dict[str, Any]], range]:
        """The dicts of the batch that this is a slice of, as far as they are made, and which of them are these rows."""
        family: tuple[dict[int, dict[str, Any]], range] = self.__dict__.setdefault("_family", ({}, range(len(self))))
        return family


def _of_list(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    @functools.wraps(method)
    def call(self: Rows, *args: Any, **kwargs: Any) -> Any:
        return method(self.as_list(), *(arg.as_list() if isinstance(arg, Rows) else arg for arg in args), **kwargs)

    return call


for _name in (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__gt__", "__iadd__", "__imul__"),
    *("__le__", "__lt__", "__mul__", "__ne__", "__reversed__", "__rmul__", "__setitem__", "append", "clear", "copy"),
    *("count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(Rows, _name, _of_list(_name))
Rows.__hash__ = None  # type: ignore[assignment]
MutableSequence.register(Rows)  # its own metaclass is pybind11's


class UnevenColumns(ValueError):  # noqa: N818 - users see a ValueError
    """The columns of a mapping differ in their number of rows, so it is not a batch."""


# What holds the rows of a batch in order.
SEQUENCES = (list, tuple, Rows)


def rows_of(features: Any, *, bare: bool = False) -> Any:
    """`features` as `Rows` where they come as columns, else as they are; `Rows` whose dicts are made, as their list.

    A mapping that is one example stays as it is, and with `bare` a `Ragged`. Raises ValueError for uneven columns.
    """
    if type(features) in SEQUENCES:
        return features.as_list() if type(features) is Rows and features.handed_out else features
    features = _unnested(features)
    if isinstance(features, Ragged):
        return features if bare else rows_of_columns({MAIN: features})
    if isinstance(features, Mapping):
        return features if is_one_example(features) else rows_of_columns(features)
    return Rows(table_of_arrow(features)) if speaks_arrow(features) else features


def table_of_arrow(
    table: Any, value: Callable[[str, int], Any] | None = None, looks: Sequence[tuple[int, int]] = ()
) -> _core.Table:
    """The columns of an Arrow table, record batch or stream of them.

    `value` gives the values of other types than those of `_core.Table`, by column and row. `looks` are what values are
    to other code, a form and a kind for each column; by default Python's numbers and lists.
    """
    names, columns = _core.arrow_columns(table)
    if names is None:
        raise TypeError(f"{type(table).__name__} is one column: give a table, or a dict with a name for it")
    if hasattr(table, "column") and not _halves_become_floats():
        odd = ["halffloat" in str(getattr(kind, "storage_type", kind)) for kind in table.schema.types]
        looks = [(OTHER, 0) if half else look for half, look in zip(odd, looks or [(0, 0)] * len(odd), strict=True)]
    return _core.Table(names, columns, value or _value_of(table), looks)


@functools.cache
def _halves_become_floats() -> bool:
    """True if pyarrow makes Python floats of float16; older versions make NumPy's numbers."""
    import pyarrow as pa

    return type(pa.scalar(np.float16(1), pa.float16()).as_py()) is float


def plain(features: Any) -> Any:
    """`features` as the reference takes them: `Rows` as a list of dicts, a `Ragged` as a list of lists."""
    if isinstance(features, Rows):
        return features.as_list()
    return features.to_lists() if isinstance(features, Ragged) else features


def is_plain(feature: Any) -> bool:
    """True if a feature is a mapping that does nothing of its own when it is read."""
    return _core.dict_of(feature, interop()) is not None


def values_of(features: Any, name: str) -> list[Any]:
    """A column of the features, without a dict for each of `Rows`."""
    if isinstance(features, Rows):
        return [features.value(name, row) for row in range(len(features))]
    return [feature[name] for feature in features]


def names_of(features: Any) -> Collection[str] | None:
    """The names of the columns of the first feature; None unless features are a sequence that begins with a mapping."""
    if isinstance(features, Rows):
        return features.names if len(features) else None
    first = features[0] if isinstance(features, SEQUENCES) and features else None
    return first if isinstance(first, Mapping) else None


def rows_of_columns(columns: Mapping[str, Any]) -> Any:
    """`Rows` of columns, one value per row each; the mapping itself where one of them has no rows."""
    table = _table_of_columns(columns)
    return columns if table is None else Rows(table)


def table_of(columns: Any, name: str = MAIN) -> _core.Table:
    """Columns: a mapping, an Arrow table, or one column of this name. Raises TypeError, ValueError."""
    if not isinstance(columns, Mapping):
        if speaks_arrow(columns) and _core.arrow_columns(columns)[0] is not None:
            return table_of_arrow(columns)
        columns = {name: columns}
    table = _table_of_columns(columns)
    if table is None:
        raise TypeError(f"the columns {list(columns)} must hold one value for each row")
    return table


def _table_of_columns(columns: Mapping[str, Any]) -> _core.Table | None:
    by_name = {name: _column(name, value) for name, value in columns.items()}
    if any(column is None for column in by_name.values()):
        return None
    sources = dict(columns)
    try:
        return _core.Table(tuple(by_name), list(by_name.values()), lambda name, row: _as_python(sources[name][row]))
    except ValueError as error:
        raise UnevenColumns(str(error)) from None


def _column(name: Any, value: Any) -> _core.FlatColumn | list[Any] | tuple[Any, ...] | None:
    """One value per row, in a form that `_core.Table` takes; None where `value` is not that."""
    if type(value) in (list, tuple):
        return value  # type: ignore[no-any-return]
    value = _unnested(value)
    if isinstance(value, Ragged):
        return _ragged_column(value)
    if is_array(value):
        return _array_column(value)
    if isinstance(value, (str, bytes, Mapping)) or hasattr(value, "column_names"):  # a whole data set
        return None
    if speaks_arrow(value):
        names, columns = _core.arrow_columns(value, str(name))
        if names is None:
            return columns[0]
    return list(value) if isinstance(value, Sequence) or hasattr(value, "__len__") else None


def _array_column(array: Any) -> _core.FlatColumn | list[Any] | None:
    if array.ndim == 0:
        return None
    tensor = is_tensor(array)
    if tensor and (array.is_meta or (array.is_cpu and (other_than_memory(array) or has_tangent(array)))):
        try:
            return list(array.unbind())  # only torch can read its numbers: the reference gets the rows
        except (RuntimeError, TypeError):
            return None
    known = not tensor or array.is_cpu
    try:
        kind = kind_of(array.dtype)
    except TypeError:
        known = False
    if not known:  # an array of objects holds rows of any kind
        return list(array) if getattr(array.dtype, "kind", "") == "O" else array.tolist()
    array = dense(array, "a column")
    return _core.memory_column(address_of(array), kind, len(array), 0, len(array), array, array.shape[1:])


def _ragged_column(ragged: Ragged) -> _core.FlatColumn | list[Any]:
    if on_gpu(ragged.values):
        ragged = ragged.to("cpu")
    values = ragged.values
    if carrier_of(values.dtype) is not None:
        return ragged.to_lists()
    values, (offsets, _) = dense(values, "values"), ragged._checked()
    place = address_of(values), kind_of(values.dtype), len(values), address_of(offsets)
    return _core.memory_column(*place, len(offsets) - 1, (values, offsets), values.shape[1:])


def _unnested(value: Any) -> Any:
    """A nested tensor as `Ragged`: without a copy if it is jagged and its rows lie one after the other."""
    if not (is_tensor(value) and value.is_nested):
        return value
    import torch

    rows = value.detach()
    if rows.layout != torch.jagged or rows.dim() != 2 or rows.lengths() is not None:
        rows = torch.nested.as_nested_tensor(list(rows.unbind()), layout=torch.jagged)
    return Ragged(rows.values(), rows.offsets())


def is_one_example(features: Mapping[str, Any]) -> bool:
    """True if a mapping holds the tokens of one example rather than one value per row."""
    if not features:
        return True
    tokens = features.get(MAIN, ())
    if isinstance(tokens, (list, tuple)):
        return len(tokens) > 0 and isinstance(tokens[0], (int, float, np.number))
    known = not tokens.is_nested if is_tensor(tokens) else isinstance(tokens, np.ndarray) and tokens.dtype != object
    return bool(known) and tokens.ndim == 1


def speaks_arrow(value: Any) -> bool:
    """True if a value has the Arrow PyCapsule interface, as a table or stream, or as an array."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def _value_of(table: Any) -> Callable[[str, int], Any] | None:
    """A function for values whose types are not known here, from the library that made the table."""
    if hasattr(table, "column"):  # pyarrow
        return lambda name, row: _as_python(table.column(name)[row])
    if hasattr(table, "to_dicts"):  # polars
        return lambda name, row: _as_python(table[name][row])
    return None


def _as_python(value: Any) -> Any:
    value = value.as_py() if hasattr(value, "as_py") else value
    return value.tolist() if isinstance(value, np.ndarray) else value
