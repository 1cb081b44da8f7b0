"""Features to columns to rows: everything after this has forgotten where the data came from."""

from __future__ import annotations

from typing import Any, NamedTuple

from quadrat import _core
from quadrat._mappings import is_plain
from quadrat._memory import BOOL, FLOAT32, FLOAT64, INT64, KINDS, interop

# The forms a row can have: bits, as in csrc/bindings/columns.hpp.
LIST, TUPLE, ARRAY, TENSOR, NUMBER, OTHER, SCALAR, TENSOR_NUMBER = 1, 2, 4, 8, 16, 32, 64, 128
PYTHON_ROWS = LIST | TUPLE
MEMORY_ROWS = ARRAY | TENSOR
ROWS = PYTHON_ROWS | MEMORY_ROWS
SINGLE_NUMBERS = NUMBER | SCALAR | TENSOR_NUMBER

# Sets of kinds, as bits. uint64 is no part of INTS: its values may not fit the int64 that every integer becomes.
BOOLS = 1 << BOOL
PYTHON_INTS = 1 << INT64
PYTHON_FLOATS = 1 << FLOAT64
INTS = sum(1 << kind for kind, name in enumerate(KINDS) if "int" in name and name != "uint64")
FLOATS = 1 << FLOAT32 | 1 << FLOAT64
# One kind that every torch has a dtype for.
KEPT_KINDS = frozenset(1 << kind for kind, name in enumerate(KINDS) if name not in ("uint16", "uint32", "uint64"))

# What a writer of `_core.Columns` reports: (code, row, position), codes as in csrc/kernels/status.hpp.
Failure = tuple[int, int, int]
_FAILURES = (
    "",
    "is longer than the padded length",
    "starts outside the output",
    "holds numbers of a kind that does not convert to the output's without loss",
    "holds a number that does not fit the output's dtype",
    "holds something that is not a number of the row's kind",
    "changed while it was read",
    "has no valid length",
    "is not as long as its tokens",
)
OUT_OF_RANGE, WRONG_TYPE, CHANGED = 4, 5, 6


class ColumnShape(NamedTuple):
    """A column's part of `_core.Columns.signature`: all that a decision about the batch may depend on.

    `forms` and `kinds` are sets of bits over its rows; `equal`, `aligned`, `full`: whether all rows have one length,
    the lengths of the column the batch is padded by, and the width of the batch.
    """

    forms: int
    first_form: int
    kinds: int
    equal: bool
    aligned: bool
    full: bool


def column_shapes(signature: bytes) -> list[ColumnShape]:
    """The signature of a batch, column by column."""
    return [
        ColumnShape(forms, first, low | high << 8, bool(flags & 1), bool(flags & 2), bool(flags & 4))
        for forms, first, low, high, flags in zip(*[iter(signature)] * 5, strict=True)
    ]


# What a step of `_core.Columns.run` does, see csrc/bindings/plan.hpp.
_ACTIONS = _core.actions
PAD, PAD_OWN, STACK, NUMBERS = _ACTIONS["pad"], _ACTIONS["pad_own"], _ACTIONS["stack"], _ACTIONS["numbers"]
MASK, HOLD, LABELS = _ACTIONS["mask"], _ACTIONS["hold"], _ACTIONS["labels"]
JOIN, SHIFT, POSITIONS, SEQUENCES = (_ACTIONS[name] for name in ("join", "shift", "positions", "sequences"))
BOUNDS, LONGEST = _ACTIONS["bounds"], _ACTIONS["longest"]


def collect(features: Any) -> tuple[tuple[str, ...], _core.Columns] | None:
    """The columns of a list of features, named by the first feature's keys in their order.

    None when the features are no list or tuple of mappings, one of them lacks one of the keys, or is a mapping that may
    do something of its own when it is read, see `_mappings`.
    """
    return _core.collect(features, None, interop())


def collect_nested(features: Any, plain: str | None, choices: int) -> tuple[tuple[str, ...], _core.Columns] | None:
    """The columns of features that hold one row per choice: the first `choices` rows of each, feature by feature.

    The column `plain` has one value per feature. None when the features are no list or tuple of mappings with the same
    keys, one may do something of its own when it is read, or a value is no list or tuple of that many rows.
    """
    if not isinstance(features, (list, tuple, _core.TableRows)) or not features:
        return None
    if isinstance(features, _core.TableRows):
        names = features.names
    elif is_plain(features[0]):
        names = tuple(features[0].keys())
    else:
        return None
    columns = _core.collect_nested(features, names, plain, choices, interop())
    return None if columns is None else (names, columns)


def inferred_kind(kinds: int, float_kind: int | None) -> int | None:
    """The kind that rows of these kinds become when converted through Python numbers, as the reference does: any
    integers int64, floats `float_kind`, bools bool; None for mixtures and for no numbers at all.
    """
    if not kinds:
        return None
    if not kinds & ~INTS:
        return INT64
    if kinds == BOOLS:
        return BOOL
    return None if kinds & ~FLOATS else float_kind


def explain(failure: Failure) -> str:
    """A failure in words: "row 3, position 7 holds ..."."""
    code, row, position = failure
    where = ("the column" if row < 0 else f"row {row}") + ("" if position < 0 else f", position {position}")
    return f"{where} {_FAILURES[code]}"
