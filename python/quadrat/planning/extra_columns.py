"""Columns beyond those that the reference pads: `pad_values`, `join_columns`, `pad_axes` and `dtypes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple, NoReturn

import numpy as np

from quadrat import _core
from quadrat.installed.originals import PADS_LABELS
from quadrat.ops.pad import pad
from quadrat.planning.diagnosis.rules import shape_of
from quadrat.planning.diagnosis.values import kind_of as type_of
from quadrat.planning.fallback import FallBack, said
from quadrat.ragged import source_of
from quadrat.support import columns as col
from quadrat.support.arrays import fill_value
from quadrat.support.columns import DEEP, OTHER, PAD, PYTHON_ROWS, ROWS, explain, inferred_kind
from quadrat.support.kinds import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    INT64,
    KINDS,
    Framework,
    default_float_kind,
    kind_of,
    torch_dtype,
    torch_has,
)
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
    def dense(self) -> tuple[str, ...]:
        """The columns whose rows may have any strides."""
        return *self.joined, *(name for name, axes in self.axes if type(axes) is tuple)

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

    def steps(
        self, name: str, index: int, shape: col.ColumnShape, framework: Framework, float_kind: int | None, *, wide: bool
    ) -> list[col.Step]:
        """The steps of a column of pad_values or join_columns. wide: it is as wide as the batch or its labels.

        Raises FallBack where rows are not fit for them.
        """
        is_joined, axes = name in self.joined, dict(self.axes).get(name)
        forms = shape.forms & ~OTHER if axes is not None and shape.shaped else shape.forms
        option = "join_columns" if is_joined else "pad_axes" if axes is not None else "pad_values"
        kind = dict(self.kinds).get(name)
        if kind is None:
            kind = extra_kind(forms, shape.kinds, float_kind, dict(self.pads).get(name), keeps=is_joined)
        elif shape.kinds & ~_converting_to(kind):
            raise FallBack(f"column '{name}' holds numbers that do not convert to {KINDS[kind]}", "give another dtype")
        if kind is None or forms & ~(ROWS | DEEP):  # what falls back names the row
            raise FallBack(f"column '{name}' of {option} is not made of rows of numbers", "give rows of one kind")
        if framework == "np" and kind == BFLOAT16:
            raise FallBack(f"NumPy has no bfloat16, which column '{name}' holds", "use return_tensors='pt'")
        if framework == "pt" and not torch_has(kind):
            raise FallBack(f"torch cannot make tensors of column '{name}'", "give a dtype that torch has")
        if is_joined:
            return [(name, index, col.CONCAT, kind)]
        if axes is None:
            return [(name, index, PAD if wide else col.PAD_OWN, kind)]
        mask = next((mask for mask, one in self.axes if one == name), None)
        masks = [] if mask is None else [(mask, index, col.AXES_MASK, dict(self.kinds).get(mask, INT64))]
        return [(name, index, col.PAD_AXES, kind), *masks]

    def values(self, given: Mapping[str, Any], main: int) -> dict[str, Any]:
        """What the steps of pad_axes write, by output. main: the column whose width they take if they are as long."""
        named = dict(self.axes)
        return {
            name: (_plain(given[name]), axes, main) if type(axes) is tuple else (0, named[axes], main)
            for name, axes in self.axes
            if name in given or type(axes) is str
        }


_NONE = OwnColumns()


def _plain(value: Any) -> Any:
    return fill_value(value, None)


def _converting_to(kind: int) -> int:
    """The kinds that convert to one, as bits."""
    floats = col.FLOATS if 1 << kind & col.FLOATS else 0
    return col.BOOLS if kind == BOOL else floats | col.INTS | col.BOOLS | 1 << KINDS.index("uint64")


def check_pad_values(collator: Any, made: Set[str] = frozenset()) -> None:
    """Raises TypeError, or ValueError, for options about columns that are not what they must be, or conflict."""
    if not (collator.join_columns or any(getattr(collator, name) is not None for name in _OPTIONS)):
        return
    _check_forms(collator)
    pads, axes, dtypes = (getattr(collator, name) or {} for name in _OPTIONS)
    for name, value in pads.items():
        try:
            _require_fit(fill_value(value, kind_of(dtypes[name]) if name in dtypes else None), dtypes.get(name))
        except (TypeError, OverflowError) as error:
            raise ValueError(f"pad_values: column '{name}' padded with {value!r}: {error}") from error
    joined = {*(collator.join_columns or ())}
    if both := joined & {*pads, *axes}:
        raise ValueError(f"join_columns: {sorted(both)} are padded by pad_values or pad_axes; leave them out of one")
    if axes and (made or getattr(collator, "padding_free", False)):
        raise ValueError("pad_axes pads, and rows that are joined are not padded: leave pad_axes out")
    inputs = () if made else getattr(collator.tokenizer, "model_input_names", ())
    for option, columns in (("pad_values", {*pads}), ("join_columns", joined), ("dtypes", {*dtypes})):
        if taken := made & columns:
            raise ValueError(f"{option}: {sorted(taken)} are made by the collator; leave them out")
        # If rows are joined, a tokenizer pads nothing.
        padded = {*inputs[:1], *_PADDED}
        if not (made and option == "pad_values") and (taken := padded & columns):
            raise ValueError(
                f"{option}: {sorted(taken)} are padded by the tokenizer; set its pad_token or pad_token_type_id instead"
            )
        if option != "pad_values" and (taken := {*LABELS} & columns):
            raise ValueError(f"{option}: {sorted(taken)} are labels, which keep their form; leave them out")
    if not made and isinstance(collator, PADS_LABELS) and (taken := {"label", "labels"} & {*pads}):
        raise ValueError(f"pad_values: {sorted(taken)} are padded with label_pad_token_id; set that instead")


def _check_forms(collator: Any) -> None:
    """Raises TypeError or ValueError unless each of the options is of its own form."""
    for option in _OPTIONS:
        given = getattr(collator, option)
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{option} must map column names to values, not {given!r}")
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


def _require_fit(value: Any, dtype: Any) -> None:
    """Raises OverflowError for an int that an integer dtype does not hold."""
    name = "" if dtype is None else KINDS[kind_of(dtype)]
    if "int" in name and not (np.iinfo(name).min <= value <= np.iinfo(name).max and value % 1 == 0):
        raise OverflowError(f"it does not fit the dtype {name}")


def add_extra_columns(
    collator: Any, reference: Callable[[Any], Any], features: Any, framework: Framework | None
) -> Any:
    """The reference's batch of the columns it knows, with those of these options added in their places."""
    own, pad_values = OwnColumns.of(collator), collator.pad_values or {}
    is_list = features and all(isinstance(feature, Mapping) for feature in features)
    for name in pad_values if is_list else ():  # labels may be absent, for predictions
        if name not in LABELS and not any(name in feature for feature in features):
            raise ValueError(f"pad_values: no feature has a column '{name}'; the columns are {list(features[0])}")
    names = [name for name in features[0] if name in pad_values] if features else []
    if not (names or own.kinds or own.joined):
        return reference(features)
    if framework not in ("pt", "np"):
        raise ValueError(f"pad_values needs return_tensors 'pt' or 'np', not {framework!r}")
    made = joined_columns(collator, features, framework)
    rest = [{name: feature[name] for name in features[0] if name not in (*names, *own.joined)} for feature in features]
    batch = reference(rest)
    for name, into in own.kinds:
        if name in batch and name not in names:
            made[name] = _cast(name, batch[name], into)
    names = [name for name in names if name not in batch or not name.startswith("decoder_")]  # which a model made
    width, label_action = int(batch[_main_of(collator)].shape[1]), getattr(collator, "_label_action", lambda: None)()
    tokens = [len(feature[_main_of(collator)]) for feature in features]
    for name in names:
        if name in dict(own.axes):
            made |= _padded_on_axes(collator, name, features, framework, width)
            continue
        rows, value = [feature[name] for feature in features], pad_values[name]
        try:
            wide: int | None = None  # that of its own longest row
            if [len(row) for row in rows] == tokens:
                wide = width
            elif follows_labels(name, label_action) and batch.get("labels") is not None:
                wide = int(batch["labels"].shape[1])
            source = source_of(rows)
            forms, _, kinds, *_ = source.columns.describe(0)
            kind = extra_kind(forms, kinds, default_float_kind(framework), type(value))
            if kind is None or source.own is not None:
                raise TypeError("its rows hold different kinds of numbers, or such as no kernel knows")
            made[name] = pad(
                rows,
                padding_side=collator.tokenizer.padding_side,
                max_length=wide,
                pad_to_multiple_of=collator.pad_to_multiple_of if wide is None else None,
                padding_value=value,
                dtype=KINDS[dict(own.kinds).get(name, kind)],
                return_tensors=framework,
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"pad_values: column '{name}' padded with {value!r}: {error}") from error
    return _in_order(batch, made, features[0], own, isinstance(collator, PADS_LABELS))


def joined_columns(collator: Any, features: Any, framework: Framework) -> dict[str, Any]:
    """The columns of `join_columns` that a feature has. Raises ValueError, which names the row."""
    made: dict[str, Any] = {}
    for name in OwnColumns.of(collator).joined:
        if any(isinstance(one, Mapping) and one.get(name) is not None for one in features):
            made |= _padded_on_axes(collator, name, features, framework)
    return made


def _main_of(collator: Any) -> Any:
    return collator.tokenizer.model_input_names[0]


def _in_order(batch: Any, made: dict[str, Any], first: Any, own: OwnColumns, labels_last: bool) -> Any:
    """The batch with these columns, in the order of a plan: as in the first feature, then those that are joined."""
    last, masks = ("label", "labels") if labels_last else (), {of: mask for mask, of in own.axes if type(of) is str}
    known = {**batch, **made}
    places = [name for name in first if name in known and name not in (*last, *own.joined)]
    places = [one for name in (*places, *own.joined) for one in (name, masks.get(name))]
    ordered = {name: known[name] for name in dict.fromkeys([*places, *known]) if name in known}
    if isinstance(batch, dict):
        return ordered
    batch.data = ordered
    return batch


def _padded_on_axes(collator: Any, name: str, features: Any, framework: Framework, width: int = 0) -> dict[str, Any]:
    """The outputs of one column of join_columns or pad_axes. Raises ValueError, which names the row."""
    own = OwnColumns.of(collator)
    numbers = [number for number, one in enumerate(features) if name not in own.joined or one.get(name) is not None]
    rows = [_side_by_side(features[number][name]) for number in numbers]
    tokens = [features[number][_main_of(collator)] for number in numbers] if hasattr(collator, "tokenizer") else rows
    columns = _core.Columns()
    for held in (rows, tokens):
        columns.add_values(held, interop())
    shape = col.column_shapes(columns.signature(1, width))[0]
    if not shape.kinds and hasattr(rows[0], "dtype"):  # rows without elements
        shape = shape._replace(kinds=1 << kind_of(rows[0].dtype))
    try:
        steps = own.steps(name, 0, shape, framework, default_float_kind(framework), wide=False)
        values = own.values(collator.pad_values or {}, 1)
        left = getattr(getattr(collator, "tokenizer", None), "padding_side", "right") == "left"
        layout = col.BatchLayout(width, left=left)
        made = columns.run(tuple(steps), values, interop(), framework == "pt", layout)
        if isinstance(made, dict):
            return made
        failure = f"column '{name}': {explain(made[1:])}: give dtypes={{'{name}': 'float32'}}, or rows of one dtype"
    except FallBack as reason:
        failure = said(*reason.args)
    _refuse(own, name, rows, numbers, failure)


def _refuse(own: OwnColumns, name: str, rows: Sequence[Any], numbers: Sequence[int], why: str) -> NoReturn:
    """Raises ValueError: what is wrong with which row of a column of join_columns or pad_axes, and what to do."""
    axes = dict(own.axes).get(name, (0,))
    option = "pad_axes" if name in dict(own.axes) else "join_columns"
    shapes = [shape_of(row) for row in rows]
    for row, number, shape in zip(rows, numbers, shapes, strict=True):
        where, size = f"{option}: column '{name}', row {number}", len(shape)
        if col.column_shapes(_signature(row))[0].forms & OTHER and None not in shape:
            raise ValueError(f"{where} is {type_of(row)}, not an array of numbers: remove the column from {option}")
        if not shape or None in shape:
            said = "is one number: give it an axis, [number]" if not shape else "holds lists of different lengths"
            raise ValueError(f"{where} {said}")
        if missing := [axis for axis in axes if not -size <= axis < size]:
            raise ValueError(f"{where} has the shape {shape}, and no axis {missing[0]}: its axes are 0 to {size - 1}")
        free = {axis % size for axis in axes}
        fixed = [[one for axis, one in enumerate(each) if axis not in free] for each in (shape, shapes[0])]
        if size != len(shapes[0]) or fixed[0] != fixed[1]:
            raise ValueError(
                f"{where} has the shape {shape} and row {numbers[0]} {shapes[0]}: they may differ in the axes "
                f"{sorted(free)} alone; give rows that agree, or remove the column from {option}"
            )
    raise ValueError(f"{option}: {why}")


def _side_by_side(row: Any) -> Any:
    if is_tensor(row):
        return row.contiguous()
    return np.ascontiguousarray(row) if isinstance(row, np.ndarray) and row.ndim > 1 else row


def _signature(row: Any) -> bytes:
    columns = _core.Columns()
    columns.add_values([row], interop())
    return columns.signature(0, 1)


def _cast(name: str, value: Any, kind: int) -> Any:
    """A column that the reference made, of another kind. Raises ValueError for numbers that this kind does not hold."""
    if not hasattr(value, "dtype") or not 1 << kind_of(value.dtype) & (_converting_to(kind) | 1 << kind):
        was = getattr(value, "dtype", type(value).__name__)
        raise ValueError(
            f"dtypes: column '{name}' holds {was}, which does not convert to {KINDS[kind]}: give another dtype"
        )
    if "int" in KINDS[kind]:
        limits, numbers = np.iinfo(KINDS[kind]), np.asarray(value)
        for row, *_ in np.argwhere((numbers < limits.min) | (numbers > limits.max)):
            raise ValueError(
                f"dtypes: column '{name}', row {row} holds a number that {KINDS[kind]} does not: give another dtype"
            )
    return value.astype(KINDS[kind]) if isinstance(value, np.ndarray) else value.to(torch_dtype(kind))


def follows_labels(name: str, label_action: int | None) -> bool:
    """True if a column is as wide as the labels: the model compares what its decoder makes of it with them."""
    return label_action == PAD and name.startswith("decoder_")


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
    return INT64 if kind == BOOL and value_type is not bool and not keeps else kind
