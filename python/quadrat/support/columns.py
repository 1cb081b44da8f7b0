"""Features become columns of rows; the code after this does not depend on the form of the features."""

from typing import Any, NamedTuple

from quadrat import _core
from quadrat.support.kinds import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, KINDS

# The forms a row can have, as bits. Two go with others: DEEP, of more than one dimension; DERIVED, an array or tensor
# of a class that changes nothing but what operations on it return.
_FORMS = _core.FORMS
LIST, TUPLE, ARRAY, TENSOR, NUMBER = _FORMS.LIST, _FORMS.TUPLE, _FORMS.ARRAY, _FORMS.TENSOR, _FORMS.NUMBER
OTHER, SCALAR, TENSOR_NUMBER = _FORMS.OTHER, _FORMS.SCALAR, _FORMS.TENSOR_NUMBER
DEEP, DERIVED = _FORMS.DEEP, _FORMS.DERIVED
PYTHON_ROWS = LIST | TUPLE
MEMORY_ROWS = ARRAY | TENSOR | DERIVED
ROWS = PYTHON_ROWS | MEMORY_ROWS
SINGLE_NUMBERS = NUMBER | SCALAR | TENSOR_NUMBER

# Sets of kinds, as bits. uint64 is not part of INTS: its values may not fit the int64 that every integer becomes.
BOOLS = 1 << BOOL
PYTHON_INTS = 1 << INT64
PYTHON_FLOATS = 1 << FLOAT64
INTS = sum(1 << kind for kind, name in enumerate(KINDS) if "int" in name and name != "uint64")
FLOATS = 1 << FLOAT16 | 1 << FLOAT32 | 1 << FLOAT64 | 1 << BFLOAT16
# A single kind that every torch version has a dtype for.
KEPT_KINDS = frozenset(1 << kind for kind, name in enumerate(KINDS) if name not in ("uint16", "uint32", "uint64"))

# A failure that `_core.Columns` reports: (code, row, position), and as text: "row 3, position 7 holds ...".
Failure = tuple[int, int, int]
explain = _core.explain
OUT_OF_RANGE, WRONG_TYPE, CHANGED = _core.CODES.OUT_OF_RANGE, _core.CODES.WRONG_TYPE, _core.CODES.CHANGED


class ColumnShape(NamedTuple):
    """A column's part of a signature: all that a decision about the batch may depend on."""

    forms: int  # bits, over its rows
    first_form: int
    kinds: int  # bits, over its rows
    equal: bool  # all rows have one length
    aligned: bool  # they have the lengths of the column that the batch is padded by
    full: bool  # no row is shorter than the batch is wide
    starts: bool  # the first row is not empty
    empty: bool  # some row is empty
    backward: bool  # some array does not step forward by whole elements, as torch wants it
    over: bool  # of the column that the batch is padded by: a row is longer than the batch is wide
    none: bool  # the first row is None
    text: bool  # the first row is a str
    nothing: bool  # all rows are None, besides those of known forms
    shaped: bool  # all rows are rows of numbers, also those of OTHER: they differ in more than the first dimension


def column_shapes(signature: bytes) -> list[ColumnShape]:
    """The signature of a batch, column by column."""
    bits, trait = _core.LENGTHS, _core.TRAITS
    flags = bits.EQUAL, bits.ALIGNED, bits.FULL  # in the order of the fields
    last = trait.STARTS, trait.EMPTY, trait.BACKWARD, trait.OVER, trait.NONE, trait.TEXT, trait.NOTHING, trait.SHAPED
    return [
        ColumnShape(
            forms | bool(lengths & bits.DEEP) * DEEP | bool(lengths & bits.DERIVED) * DERIVED,
            first,
            low | high << 8,
            *(bool(lengths & flag) for flag in flags),
            *(bool(traits & flag) for flag in last),
        )
        for forms, first, low, high, lengths, traits in zip(*[iter(signature)] * 6, strict=True)
    ]


# What a step of a plan does, see Action in csrc/bindings/plan/execute.hpp.
_ACTIONS = _core.ACTIONS
PAD, PAD_OWN, STACK, NUMBERS = _ACTIONS.PAD, _ACTIONS.PAD_OWN, _ACTIONS.STACK, _ACTIONS.NUMBERS
MASK, HOLD, LABELS, JOIN, SHIFT = _ACTIONS.MASK, _ACTIONS.HOLD, _ACTIONS.LABELS, _ACTIONS.JOIN, _ACTIONS.SHIFT
POSITIONS, SEQUENCES, BOUNDS = _ACTIONS.POSITIONS, _ACTIONS.SEQUENCES, _ACTIONS.BOUNDS
LONGEST, TOKEN_BOUNDS, DOCUMENTS = _ACTIONS.LONGEST, _ACTIONS.TOKEN_BOUNDS, _ACTIONS.DOCUMENTS
GAPS, TOTAL, CONSTANT, ROW_POSITIONS = _ACTIONS.GAPS, _ACTIONS.TOTAL, _ACTIONS.CONSTANT, _ACTIONS.ROW_POSITIONS
CHAIN, CHAIN_MASK, CHAIN_MARKS = _ACTIONS.CHAIN, _ACTIONS.CHAIN_MASK, _ACTIONS.CHAIN_MARKS
CONCAT, PAD_AXES, AXES_MASK = _ACTIONS.CONCAT, _ACTIONS.PAD_AXES, _ACTIONS.AXES_MASK
Step = tuple[str, int, int, int]  # output, column, action, kind


class BatchLayout(NamedTuple):
    """How the rows of a batch lie."""

    width: int = 0
    multiple_of: int = 1  # the width, or the total of rows that are joined
    left: bool = False  # the side that is padded
    separator: Any = None  # in place of a row's first label
    start: int = 0  # of positions
    align_to: int = 0  # of the place of each row that is joined; 0: rows are not padded one by one
    total: int = 0  # of rows that are joined; 0: what they take
    continue_positions: bool = True  # whether positions go on through the padding; else they are `start` there
    choices: int = 0  # of multiple choice: how many rows each example has
    completions: int = 0  # of preferences: how many columns hold completions
    prompts: bool = False  # whether a column of prompts is before them
    batched: bool = True  # whether outputs of joined rows are `[1, total]`, or else `[total]`
    seq_lengths: int = -1  # of packed rows: the column that has the lengths of their documents
    ignored: Any = None  # of shifted rows: the token in whose place the separator is, too


def inferred_kind(kinds: int, float_kind: int | None) -> int | None:
    """The kind of these by way of Python numbers: int64, bool or `float_kind`; None for mixtures and no numbers."""
    if not kinds:
        return None
    if not kinds & ~INTS:
        return INT64
    if kinds == BOOLS:
        return BOOL
    return None if kinds & ~FLOATS else float_kind
