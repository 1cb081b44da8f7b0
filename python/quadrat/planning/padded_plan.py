"""The plan for each column of a padded batch, by its key: `PreTrainedTokenizerBase._pad` as a table."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from transformers.utils.generic import to_py_obj

from quadrat.input import columns as col
from quadrat.planning.extra_columns import extra_kind
from quadrat.planning.fallback import FallBack
from quadrat.planning.plan import Plan, PlanKey, planned
from quadrat.support.memory import BOOL, INT64


class LabelColumn(NamedTuple):
    """The column of labels: set aside, made int64, last in the batch."""

    name: str | None  # None: there is none, and the output is None
    output: str
    action: int  # PAD: to the width of the batch, PAD_OWN: to its own longest row, STACK: as it is, NUMBERS, HOLD: None
    lists: bool = False  # after a list only lists may follow


class PaddedOptions(NamedTuple):
    """The options in the key of a padded batch."""

    main: str  # the column the batch is padded by, usually input_ids
    pads: bool  # False: padding=False or "do_not_pad"
    makes_mask: bool  # the tokenizer's model_input_names list attention_mask
    label: LabelColumn | None
    extra: tuple[tuple[str, type], ...]  # pad_values: column and type of the value
    renames: tuple[str, ...]  # columns that come out as labels
    omits: tuple[str, ...]  # columns that are looked at, and do not come out
    derives: str  # labels made from the padded ids: "" for none, "fill" for a copy with other padding, else "labels"


@planned
def padded_plan(key: PlanKey) -> Plan:
    """What becomes of the columns."""
    names, options, shapes = key.names, key.options, col.column_shapes(key.signature)
    main = names.index(options.main)
    forms, first_form, kinds, equal, _, _ = shapes[main]
    # In lists the reference looks at the first number; arrays it turns into lists first.
    arrays = bool(first_form & col.MEMORY_ROWS)
    if not arrays and (forms & ~col.PYTHON_ROWS or kinds != col.PYTHON_INTS):
        raise FallBack(f"column '{options.main}' is not made of lists of ints, arrays or tensors")
    if _is_padded(options.main, True):
        raise FallBack(f"column '{options.main}' is the one to pad by")
    if not options.pads and not equal:
        raise FallBack("rows of different lengths without padding")
    extra, label = dict(options.extra), options.label
    steps: list[col.Step] = []
    for index, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        if label is not None and name == label.name:
            continue
        if name in extra:
            steps.append((name, index, *_extra(name, shape, extra[name], key.float_kind)))
        elif options.pads and (index == main or _is_padded(name, options.makes_mask)):
            # What is left out in the end pads or fails in the reference before.
            steps.append((name, index, col.PAD, _padded_kind(name, shape, arrays, key.float_kind)))
        elif name not in options.omits:
            steps.append((name, index, *_stacked(name, shape, arrays, key.float_kind)))
    if options.makes_mask and "attention_mask" not in names:
        steps.append(("attention_mask", main, col.MASK, INT64))
    if options.derives:
        if any(name == "labels" and action == col.HOLD for name, _, action, _ in steps):
            raise FallBack("the reference stacks the labels in its own way, if at all")
        steps.append(("labels", main, col.PAD if options.derives == "fill" else col.LABELS, INT64))
    steps = _renamed([step for step in steps if step[0] not in options.omits], options.renames)
    held = {name: names[index] for name, index, action, _ in steps if action == col.HOLD}
    if label is not None:
        steps.append(_label_step(label, names, shapes))
    return Plan(tuple(steps), held)


def _label_step(label: LabelColumn, names: tuple[str, ...], shapes: list[col.ColumnShape]) -> col.Step:
    if label.name is None:
        return label.output, 0, col.HOLD, 0
    index = names.index(label.name)
    shape = shapes[index]
    if label.action == col.NUMBERS:
        if shape.forms & ~col.SINGLE_NUMBERS or shape.kinds != col.PYTHON_INTS:
            raise FallBack(f"column '{label.name}' is not made of ints")
        return label.output, index, col.NUMBERS, INT64
    known = col.LIST if label.lists and shape.first_form == col.LIST else col.ROWS
    if shape.forms & ~known or not shape.kinds or shape.kinds & ~col.INTS:
        raise FallBack(f"column '{label.name}' is not made of rows of ints")
    if label.action == col.STACK and (shape.forms != col.LIST or not shape.equal):
        raise FallBack(f"column '{label.name}' is not made of lists of one length")
    return label.output, index, label.action, INT64


def _renamed(steps: list[col.Step], renames: tuple[str, ...]) -> list[col.Step]:
    """The columns to rename come last, as `labels`."""
    for name in renames:
        names = [step[0] for step in steps]
        if name in names and "labels" in names:  # one overwrites the other, but may fail first
            raise FallBack(f"both '{name}' and 'labels' are there")
        if name in names:
            steps.append(("labels", *steps.pop(names.index(name))[1:]))
    return steps


@functools.cache
def _keeps_numpy_numbers() -> bool:
    """Whether NumPy's numbers stay what they are where the reference makes Python objects of arrays; not on 4.57."""
    return not isinstance(to_py_obj([np.int32(1)])[0], int)


def _is_padded(name: str, makes_mask: bool) -> bool:
    return name in ("token_type_ids", "special_tokens_mask") or (makes_mask and name == "attention_mask")


def _padded_kind(name: str, shape: col.ColumnShape, arrays: bool, float_kind: int | None) -> int:
    if not shape.aligned:
        raise FallBack(f"column '{name}' differs in length from the tokens")
    # The reference cannot add a list to a tuple.
    allowed = col.ROWS if arrays else col.PYTHON_ROWS if shape.full else col.LIST
    kind = None if shape.forms & ~allowed else col.inferred_kind(shape.kinds, float_kind)
    if kind is None:
        raise FallBack(f"column '{name}' holds rows or numbers the kernels do not know")
    return INT64 if kind == BOOL and not shape.full else kind


def _stacked(name: str, shape: col.ColumnShape, arrays: bool, float_kind: int | None) -> tuple[int, int]:
    kind = col.inferred_kind(shape.kinds, float_kind)
    if kind is not None and shape.forms == col.NUMBER:
        return col.NUMBERS, kind
    if kind is not None and arrays and shape.forms == col.TENSOR_NUMBER:  # become Python numbers first
        return col.NUMBERS, kind
    if kind is not None and shape.forms == col.SCALAR and shape.kinds in col.KEPT_KINDS:
        keeps = not arrays or _keeps_numpy_numbers()
        return col.NUMBERS, shape.kinds.bit_length() - 1 if keeps else kind
    if kind is not None and shape.equal and not shape.forms & ~(col.ROWS if arrays else col.PYTHON_ROWS):
        return col.STACK, kind
    if name == "attention_mask" and shape.forms & col.OTHER:
        raise FallBack("an attention mask of more dimensions")
    return col.HOLD, 0


def _extra(name: str, shape: col.ColumnShape, value_type: type, float_kind: int | None) -> tuple[int, int]:
    """A column of `pad_values`: to the width of the batch where it has its lengths, else to its own."""
    kind = extra_kind(shape.forms, shape.kinds, float_kind, value_type)
    if kind is None:
        raise ValueError(f"pad_values: column '{name}' is not made of one-dimensional rows of numbers of one kind")
    return col.PAD if shape.aligned else col.PAD_OWN, kind
