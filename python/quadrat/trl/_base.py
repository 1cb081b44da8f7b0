"""What TRL's collators share: rows are checked, and their lengths looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.columns import ARRAY, PYTHON_INTS, PYTHON_ROWS
from quadrat.input.items import SEQ_LENGTHS, documents_of, has_documents, join, normalise
from quadrat.planning.fallback import FallBack
from quadrat.support.memory import address_of, interop

IntArray = NDArray[np.int64]

_INT64 = range(-(2**63), 2**63)


class TrlCollator(MixinCollator):
    """A collator of TRL's on quadrat's way through every collator. It makes torch tensors only."""

    _quadrat_explains: ClassVar[bool] = False  # what quadrat says about features is about those of transformers

    def _normalise(self, features: Any) -> Any:
        try:
            rows = normalise(features, bare=False, documents=False)
            if not (self._joins_rows and has_documents(rows)):
                return rows
            documents_in(rows)
            return documents_of(rows)
        except (TypeError, ValueError) as error:
            raise FallBack(str(error)) from error


def read(features: Any, names: Sequence[str]) -> _core.Columns:
    """Columns of lists, tuples or arrays of ints. Raises FallBack where one holds something else."""
    collected = _core.collect(features, tuple(names), interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to collate")
    for index, name in enumerate(names):
        found, _, kinds, *_ = collected[1].describe(index)
        forward = not found & ARRAY or collected[1].steps_forward(index)
        if found & ~(PYTHON_ROWS | ARRAY) or kinds & ~PYTHON_INTS or not forward:
            raise FallBack(f"column '{name}' is not made of lists of ints")
    return collected[1]


def lengths(columns: _core.Columns) -> IntArray:
    """`[columns, rows]`: how long each row is."""
    out = np.empty((len(columns), columns.count(0)), np.int64)
    for index in range(len(columns)):
        columns.lengths(index, address_of(out[index]))
    return out


def documents_in(rows: Any) -> tuple[IntArray, IntArray]:
    """The lengths of the documents in packed rows, and how many each row has. Raises FallBack where one is empty."""
    values, counts = join(rows, [SEQ_LENGTHS])
    if not counts.all() or (values[SEQ_LENGTHS] < 1).any():
        raise FallBack("a packed row or a document is empty")
    return values[SEQ_LENGTHS].astype(np.int64), counts


def bounds_of(sizes: IntArray) -> IntArray:
    """Where rows begin that lie one after the other, and where the last one ends."""
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def require_token(pad_token_id: Any) -> None:
    """Raises FallBack unless this is an int64."""
    if type(pad_token_id) is not int or pad_token_id not in _INT64:
        raise FallBack("pad_token_id is no int64")
