"""What TRL's collators do with rows: checked, joined and cut as numbers one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.columns import PYTHON_INTS, PYTHON_ROWS
from quadrat.planning.fallback import FallBack
from quadrat.support.memory import INT64, address_of, empty, interop

IntArray = NDArray[np.int64]

_INT64 = range(-(2**63), 2**63)


class TrlCollator(MixinCollator):
    """A collator of TRL's on quadrat's way through every collator. It makes torch tensors only."""

    _quadrat_explains: ClassVar[bool] = False  # what quadrat says about features is about those of transformers
    _explains_columns: ClassVar[bool] = False


def read(features: Any, names: Sequence[str], forms: int = PYTHON_ROWS) -> _core.Columns:
    """Columns of rows of ints. Raises FallBack where one holds something else, or a row is in another form."""
    collected = _core.collect(features, tuple(names), interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to collate")
    for index, name in enumerate(names):
        found, _, kinds, *_ = collected[1].describe(index)
        if found & ~forms or kinds & ~PYTHON_INTS:
            raise FallBack(f"column '{name}' is not made of lists of ints")
    return collected[1]


def lengths(columns: _core.Columns) -> IntArray:
    """`[columns, rows]`: how long each row is."""
    out = np.empty((len(columns), columns.count(0)), np.int64)
    for index in range(len(columns)):
        columns.lengths(index, address_of(out[index]))
    return out


class Flat(NamedTuple):
    """int64 numbers one after the other."""

    memory: Any  # what owns them, a tensor: its memory is taken again, where NumPy's would be new each time
    address: int
    size: int

    @classmethod
    def empty(cls, size: int) -> Flat:
        """Room for numbers."""
        memory, address = empty("pt", (size,), INT64)
        return cls(memory, address, size)


def joined(columns: _core.Columns, index: int) -> Flat:
    """The numbers of a column, row after row. Raises FallBack where one is not an int64."""
    out = Flat.empty(columns.describe(index)[5])
    if columns.flatten(index, out.address, INT64, out.size) is not None:
        raise FallBack("a column holds numbers the kernels do not know")
    return out


def ragged(offsets: IntArray, *values: Flat) -> _core.Columns:
    """Columns whose rows are slices of values; the caller keeps all of them alive."""
    columns = _core.Columns()
    for one in values:
        columns.add_ragged(one.address, INT64, one.size, address_of(offsets), len(offsets) - 1)
    return columns


def bounds_of(sizes: IntArray) -> IntArray:
    """Where rows begin that lie one after the other, and where the last one ends."""
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def require_token(pad_token_id: Any) -> None:
    """Raises FallBack unless this is an int64."""
    if type(pad_token_id) is not int or pad_token_id not in _INT64:
        raise FallBack("pad_token_id is not an int64")
