"""Columns beyond those that the reference pads: `pad_values`, `join_columns`, `pad_axes` and `dtypes`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Set
from typing import Any, NamedTuple, NoReturn

import numpy as np

from quadrat import _core
from quadrat.input.rows import MAIN, SEQUENCES, Rows, is_plain, names_of, plain
from quadrat.installed.originals import PADS_LABELS
from quadrat.planning.diagnosis.options import missing
from quadrat.planning.diagnosis.values import kind_of as type_of
from quadrat.planning.diagnosis.values import shape_of
from quadrat.planning.fallback import FallBack, Reason, raise_clearer, reason_text
from quadrat.planning.plan_cache import PlanKey
from quadrat.ragged import source_of
from quadrat.support import columns as col
from quadrat.support.arrays import fill_value
from quadrat.support.columns import DEEP, OTHER, PAD, PYTHON_ROWS, ROWS, inferred_kind
from quadrat.support.kinds import BFLOAT16, BOOL, FLOAT16, INT64, KINDS, kind_of, torch_has
from quadrat.support.memory import interop
from quadrat.support.tensors import is_tensor

LABELS = ("label", "labels", "label_ids")
_PADDED = ("attention_mask", "token_type_ids", "special_tokens_mask")
_OPTIONS = ("pad_values", "pad_axes", "dtypes")


class OwnColumns(NamedTuple):
    """What a collator's options say of columns; hashable, for the key of a plan."""

    pads: tuple[tuple[str, type], ...] = ()  # pad_values: column and type of the value
    joined: tuple[str, ...] = ()  # join_columns
    axes: tuple[tuple[str, Any], ...] = ()  # pad_axes: column and its axes, or a mask and the column that it is of
    kinds: tuple[tuple[str, int], ...] = ()  # dtypes

    @property
    def fields(self) -> dict[str, Any]:
        """What a `Spec` says of them: which ones rows may lack, how they are read, and how features are checked."""
        if not (self.pads or self.joined or self.axes):
            return {}
        dense = (*self.joined, *(name for name, axes in self.axes if type(axes) is tuple))
        labels = tuple(name for name, _ in self.pads if name in LABELS)
        return {
            "optional": dict.fromkeys(self.joined, True),
            "read": {**{name: False for name, _ in self.pads if name != MAIN}, **dict.fromkeys(dense, True)},
            "check": functools.partial(_labels_of_some, labels) if labels else None,
        }

    @property
    def defers(self) -> bool:
        """True if a deferred batch carries what the columns are made of; others are made before they are sent."""
        return not (self.joined or self.axes or self.kinds)

    @classmethod
    def of(cls, collator: Any) -> OwnColumns:
        """Those of a collator whose options were checked."""
        if not (collator.pad_values or collator.pad_axes or collator.dtypes or collator.join_columns):
            return _NONE
        pads, axes, dtypes = (getattr(collator, name) or {} for name in _OPTIONS)
        return cls(
            tuple((name, type(value)) for name, value in pads.items()),
            tuple(collator.join_columns or ()),
            tuple((name, (value,) if type(value) is int else value) for name, value in axes.items()),
            tuple((name, kind_of(dtype)) for name, dtype in dtypes.items()),
        )

    def steps(self, name: str, index: int, shape: col.ColumnShape, key: PlanKey, *, wide: bool) -> list[col.Step]:
        """The steps of a column of pad_values or join_columns. wide: it is as wide as the batch or its labels.

        Raises FallBack where rows are not fit for them.
        """
        is_joined, axes = name in self.joined, dict(self.axes).get(name)
        forms = shape.forms & ~OTHER if axes is not None and shape.shaped else shape.forms
        option = "join_columns" if is_joined else "pad_axes" if axes is not None else "pad_values"
        kind = self.cast(name, shape)
        if kind is None:
            kind = extra_kind(forms, shape.kinds, key.float_kind, dict(self.pads).get(name), keeps=is_joined)
        if kind is None or forms & ~(ROWS | DEEP):  # what falls back names the row
            raise FallBack(f"column '{name}' of {option} is not made of rows of numbers", "give rows of one kind")
        if key.framework == "np" and kind == BFLOAT16:
            raise FallBack(f"NumPy has no bfloat16, which column '{name}' holds", "use return_tensors='pt'")
        if key.framework == "pt" and not torch_has(kind):
            raise FallBack(f"torch cannot make tensors of column '{name}'", "give a dtype that torch has")
        if is_joined:
            return [(name, index, col.CONCAT, kind)]
        if axes is None:
            return [(name, index, PAD if wide else col.PAD_OWN, kind)]
        mask = next((mask for mask, masked in self.axes if masked == name), None)
        masks = [] if mask is None else [(mask, index, col.AXES_MASK, dict(self.kinds).get(mask, INT64))]
        return [(name, index, col.PAD_AXES, kind), *masks]

    def cast(self, name: str, shape: col.ColumnShape) -> int | None:
        """The kind that a column is cast to; None if to none. Raises FallBack where its numbers do not convert."""
        kind = dict(self.kinds).get(name)
        if kind is not None and shape.kinds & ~_converting_to(kind):
            raise FallBack(f"column '{name}' holds numbers that do not convert to {KINDS[kind]}", "give another dtype")
        return kind

    def values(self, pad_values: Mapping[str, Any], main: int) -> dict[str, Any]:
        """What the steps of pad_axes write, by output. main: the column whose width they take if they are as long."""
        if not self.axes:
            return {}
        named = dict(self.axes)
        return {
            name: (fill_value(pad_values[name], None), axes, main) if type(axes) is tuple else (0, named[axes], main)
            for name, axes in self.axes
            if name in pad_values or type(axes) is str
        }


_NONE = OwnColumns()


def _converting_to(kind: int) -> int:
    """The kinds that convert to one, as bits."""
    floats = col.FLOATS if 1 << kind & col.FLOATS else 0
    return col.BOOLS if kind == BOOL else floats | col.INTS | col.BOOLS | 1 << KINDS.index("uint64")


def check_pad_values(collator: Any, outputs: Set[str] = frozenset()) -> None:
    """Raises TypeError, or ValueError, for options about columns that are not what they must be, or conflict."""
    if not collator.join_columns and collator.pad_values is collator.pad_axes is collator.dtypes is None:
        return
    _check_forms(collator)
    pads, axes, dtypes = (getattr(collator, name) or {} for name in _OPTIONS)
    for name, value in pads.items():
        try:
            fill_value(value, kind_of(dtypes[name]) if name in dtypes else None)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"pad_values: column '{name}' padded with {value!r}: {error}") from error
    joined = {*(collator.join_columns or ())}
    if both := joined & {*pads, *axes}:
        raise ValueError(f"join_columns: {sorted(both)} are padded by pad_values or pad_axes; leave them out of one")
    if axes and (outputs or getattr(collator, "padding_free", False)):
        raise ValueError("pad_axes pads, and rows that are joined are not padded: leave pad_axes out")
    inputs = () if outputs else getattr(collator.tokenizer, "model_input_names", ())
    for option, columns in (("pad_values", {*pads}), ("join_columns", joined), ("dtypes", {*dtypes})):
        if taken := outputs & columns:
            raise ValueError(f"{option}: {sorted(taken)} are made by the collator; leave them out")
        # If rows are joined, a tokenizer pads nothing.
        padded = {*inputs[:1], *_PADDED}
        if not (outputs and option == "pad_values") and (taken := padded & columns):
            raise ValueError(
                f"{option}: {sorted(taken)} are padded by the tokenizer; set its pad_token or pad_token_type_id instead"
            )
        if option != "pad_values" and (taken := {*LABELS} & columns):
            raise ValueError(f"{option}: {sorted(taken)} are labels, which keep their form; leave them out")
    if not outputs and isinstance(collator, PADS_LABELS) and (taken := {"label", "labels"} & {*pads}):
        raise ValueError(f"pad_values: {sorted(taken)} are padded with label_pad_token_id; set that instead")


def _check_forms(collator: Any) -> None:
    """Raises TypeError or ValueError unless each of the options is of its own form."""
    for option in _OPTIONS:
        value = getattr(collator, option)
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(f"{option} must map column names to values, not {value!r}")
    names = collator.join_columns
    if names is not None and not (type(names) in (tuple, list) and all(type(name) is str for name in names)):
        raise TypeError(f"join_columns must be a tuple of column names, not {names!r}")
    pads, named = collator.pad_values or {}, collator.pad_axes or {}
    for name, axes in named.items():
        if type(axes) is str:
            if type(named.get(axes)) not in (int, tuple):
                raise ValueError(f"pad_axes: '{name}' is the mask of '{axes}', which has no axes there: give them")
        elif not (type(axes) is int or (type(axes) is tuple and axes and all(type(axis) is int for axis in axes))):
            raise TypeError(f"pad_axes: the axes of column '{name}' must be an int or a tuple of ints, not {axes!r}")
        elif name not in pads:
            raise ValueError(f"pad_axes: column '{name}' has no padding value: give pad_values={{'{name}': 0}}")
    for name, dtype in (collator.dtypes or {}).items():
        try:
            kind = kind_of(dtype)
        except TypeError as error:
            raise TypeError(f"dtypes: column '{name}': {error}") from None
        if kind == BFLOAT16 and collator.return_tensors == "np":
            raise ValueError(f"dtypes: column '{name}': NumPy has no bfloat16: use return_tensors='pt'")


def require_columns(collator: Any, features: Any) -> None:
    """Raises KeyError for the first row that lacks a column of pad_values; labels may be absent from all rows."""
    if not collator.pad_values or type(features) not in SEQUENCES or not len(features):
        return
    rows: Any = [features.names] if isinstance(features, Rows) else features
    has_names = all(isinstance(row, Mapping) for row in features) if rows is features else True
    if not (has_names or collator._takes_bare_rows):
        return  # that they are no mappings is told first
    rows = rows if has_names else [{}] * len(rows)
    for name in collator.pad_values:
        may_lack = name == MAIN or (name in LABELS and not any(name in columns for columns in rows))
        for problem in () if may_lack else missing(rows, [name], "give it to each row, or leave it out of pad_values"):
            raise KeyError(f"pad_values: {problem}")


def _labels_of_some(names: tuple[str, ...], features: Any) -> Reason | None:
    """Why features fall back: the first one lacks labels of pad_values, and another one has them."""
    first = names_of(features)
    lacking = () if first is None or isinstance(features, Rows) else [name for name in names if name not in first]
    if lacking and any(name in feature for feature in features if is_plain(feature) for name in lacking):
        return f"some rows alone have a column '{lacking[0]}'", "give it to each row"
    return None


def refuse(collator: Any, features: Any, why: Reason) -> NoReturn:
    """Raise ValueError: what is wrong with which row of which column of these options, or else why there is no plan."""
    rows = plain(features)
    if isinstance(rows, (list, tuple)) and all(map(is_plain, rows)):
        for name in (*(collator.pad_values or ()), *(collator.join_columns or ())):
            check_rows(collator, name, rows)
    lacks = f"the batch cannot fall back to {collator._imitates.library}, which lacks options that are used here"
    raise_clearer(ValueError(reason_text(f"{why[0]}: {lacks}", why[1])), rows, collator)


def check_rows(collator: Any, name: str, features: Any) -> None:
    """Raises ValueError for rows of a column that its option does not take, or that disagree."""
    columns, is_joined = OwnColumns.of(collator), name in (collator.join_columns or ())
    values = [(row, feature[name]) for row, feature in enumerate(features) if name in feature]
    values = [(row, value) for row, value in values if value is not None or not is_joined]
    axes = dict(columns.axes).get(name, (0,))
    option = "join_columns" if is_joined else "pad_axes" if name in dict(columns.axes) else "pad_values"
    if option == "pad_values":
        where = f"pad_values: column '{name}' padded with {collator.pad_values[name]!r}"
        try:
            is_unknown = source_of([value for _, value in values]).carried is not None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from error
        if is_unknown:
            raise ValueError(f"{where}: its rows hold numbers that no kernel knows")
    kinds = [col.column_shapes(_signature(value))[0].kinds for _, value in values]
    for (row, _), kind in zip(values, kinds, strict=True):
        if (
            kind
            and kinds[0]
            and inferred_kind(kind | kinds[0], INT64) is None
            and dict(columns.kinds).get(name) is None
        ):
            dtype, first = (KINDS[bits.bit_length() - 1] for bits in (kind, kinds[0]))
            what = f"row {row} holds {dtype} and row {values[0][0]} {first}"
            raise ValueError(
                f"{option}: column '{name}', {what}: give rows of one kind, or dtypes={{'{name}': '{dtype}'}}"
            )
    if option == "pad_values":
        return
    shapes = [shape_of(value) for _, value in values]
    for (row, value), shape in zip(values, shapes, strict=True):
        where, size = f"{option}: column '{name}', row {row}", len(shape)
        if col.column_shapes(_signature(value))[0].forms & OTHER and None not in shape:
            raise ValueError(f"{where} is {type_of(value)}, not an array of numbers: remove the column from {option}")
        if not shape or None in shape:
            odd = "is one number: give it an axis, [number]" if not shape else "holds lists of different lengths"
            raise ValueError(f"{where} {odd}")
        if missing := [axis for axis in axes if not -size <= axis < size]:
            raise ValueError(f"{where} has the shape {shape}, and no axis {missing[0]}: its axes are 0 to {size - 1}")
        free = {axis % size for axis in axes}
        fixed = [[size for axis, size in enumerate(sizes) if axis not in free] for sizes in (shape, shapes[0])]
        if size != len(shapes[0]) or fixed[0] != fixed[1]:
            raise ValueError(
                f"{where} has the shape {shape} and row {values[0][0]} {shapes[0]}: they may differ in the axes "
                f"{sorted(free)} alone; give rows that agree, or remove the column from {option}"
            )


def _signature(row: Any) -> bytes:
    columns = _core.Columns()
    row = row.contiguous() if is_tensor(row) else np.ascontiguousarray(row) if isinstance(row, np.ndarray) else row
    columns.add_values([row], interop())
    return columns.signature(0, 1)


def extra_kind(
    forms: int, kinds: int, float_kind: int | None, value_type: type | None, *, keeps: bool = False
) -> int | None:
    """The kind of a column of these options; None when its rows are not rows of numbers of one kind.

    keeps: arrays and tensors keep their dtype; otherwise those of 16-bit floats alone do.
    """
    if forms & ~(ROWS | DEEP):
        return None
    if not forms & PYTHON_ROWS and kinds.bit_count() == 1 and (keeps or kinds in (1 << FLOAT16, 1 << BFLOAT16)):
        return kinds.bit_length() - 1
    kind = inferred_kind(kinds, float_kind) if kinds else INT64
    return INT64 if kind == BOOL and value_type not in (bool, np.bool_) and not keeps else kind
