"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and their boundaries.

Written against `DataCollatorWithFlattening` of transformers 5.23. A batch needs two compiled calls: one reads what the
rows are made of, one writes the outputs. The plan in between is made once per key.
"""

from __future__ import annotations

from typing import Any

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.planning.extra_columns import extra_kind
from quadrat.planning.fallback import FallBack, fall_back
from quadrat.planning.flat_plainly import flatten_plainly
from quadrat.planning.flattening import MAIN, Flattening
from quadrat.planning.labels import refuse_words
from quadrat.planning.plan import Plan, PlanKey, check_device, key_of, planned, run_steps
from quadrat.planning.plan_cache import own_facts, remember
from quadrat.support.counts import count_planned
from quadrat.support.memory import BOOL, INT32, INT64, interop

_INT64 = range(-(2**63), 2**63)
# How the parts of `quadrat.varlen.names` are made.
_PARTS = {
    "places": (col.BOUNDS, INT32),
    "tokens": (col.TOKEN_BOUNDS, INT32),
    "longest": (col.LONGEST, INT64),
    "total": (col.TOTAL, INT64),
    "documents": (col.DOCUMENTS, INT64),
    "gaps": (col.GAPS, BOOL),
    "thd": (col.CONSTANT, INT64),
}


def flatten(collator: Any, features: Any, plan: Flattening) -> Any:
    """The flattened batch that `plan` asks for, whatever the rows are made of; `collator` is named in logs and errors.

    Raises ValueError where a row of labels (as they are) or of an extra column is not as long as its input_ids, and
    what the conversion of the rows raises, naming column and row as well.
    """
    try:
        return flatten_features(features, plan, deferred=collator.deferred)
    except FallBack as reason:
        why = str(reason)
    count_planned(-1)  # the collator counts it
    return fall_back(collator, lambda rows: flatten_plainly(rows, plan), features, why)


def flatten_features(features: Any, plan: Flattening, collator: Any = None, *, deferred: bool = False) -> Any:
    """As `flatten`, for batches whose result the kernels can prove; `collator` remembers them. Raises FallBack."""
    start = plan.position_ids_start if plan.position_ids else 0
    if type(start) is not int or start not in _INT64:
        raise FallBack("position_ids_start is no int64")
    collected = _core.collect(features, plan.names, interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to flatten")
    names, columns = plan.names, collected[1]
    extra = tuple((name, type(value)) for name, value in plan.extra.items())
    given = plan.labels, plan.label, plan.position_ids, plan.seq_idx
    asked = *given, plan.parts, plan.padded, extra, plan.labelling is not None
    key = key_of(names, columns, plan.framework, asked)
    made = flat_plan(key)
    values = {MAIN: plan.input_pad, plan.label or "labels": plan.label_pad, "qkv_format": "thd", **plan.extra}
    layout = col.BatchLayout(
        multiple_of=plan.pad_to_multiple_of or 1,
        separator=plan.separator_id,
        start=start,
        align_to=plan.align_to or 0,
        total=plan.total_length or 0,
        continue_positions=plan.continue_positions,
    )
    if made.refusal is None:
        check_device(plan.framework)
        if plan.labelling is not None:
            values["labels"] = plan.labelling.make(names)
        batch = run_steps(columns, made.steps, values, plan.framework, layout, deferred=deferred and plan.defers)
        if isinstance(batch, tuple):
            step, code, row, position = batch
            if made.steps[step][2] == col.LABELS:
                refuse_words(names, (code, row, position))
            raise FallBack(f"'{made.steps[step][0]}': {col.explain((code, -1, -1))}")
    if collator is not None:
        own = own_facts(collator)
        remember(
            collator,
            key,
            made,
            values,
            None if own is None else (*own, *collator._facts()),
            falls_back=collator._falls_back_plainly(),
            layout=layout,
            names=names,
            absent=("labels",) if plan.label is None else (),
            deferred=deferred_batch if collator.deferred and plan.defers else None,
        )
    if made.refusal is not None:
        raise FallBack(made.refusal)
    return batch


@planned
def flat_plan(key: PlanKey) -> Plan:
    """The outputs, in order."""
    names = key.names
    labels, label, position_ids, seq_idx, parts, padded, extra, derives = key.options
    shapes = col.column_shapes(key.signature)
    _require_ints(MAIN, shapes[0])
    steps = [(MAIN, 0, col.JOIN, INT64)]
    first = 1 if label is None else 2  # of the columns that are neither ids nor labels
    if label is not None:
        _require_ints(label, shapes[1])
        if not shapes[1].aligned and (padded or labels == "as they are"):
            raise FallBack(f"column '{label}' differs in length from the tokens")
    if labels == "shifted" and padded and not shapes[0].full:
        raise FallBack("a row is empty")  # its separator makes the labels longer than the tokens
    if labels != "none":
        steps.append((label or "labels", first - 1, col.SHIFT if labels == "shifted" else col.JOIN, INT64))
    elif derives:
        steps.append(("labels", 0, col.LABELS, INT64))
    if position_ids:
        steps.append(("position_ids", 0, col.POSITIONS, INT64))
    if seq_idx:
        steps.append(("seq_idx", 0, col.SEQUENCES, INT32))
    steps += [(name, 0, *_PARTS[what]) for name, what in parts]
    last = first + len(extra)
    for index, (name, value_type) in enumerate(extra, first):
        shape = shapes[index]
        kind = extra_kind(shape.forms, shape.kinds, key.float_kind, value_type)
        if kind is None or not shape.aligned:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
        steps.append((name, index, col.JOIN, kind))
    for name, shape in zip(names[last:], shapes[last:], strict=True):
        if name == "special_tokens_mask" and not shape.aligned:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
    return Plan(tuple(steps))


def _require_ints(name: str, shape: col.ColumnShape) -> None:
    # The reference calls tolist() where there is one, and joins lists to lists.
    if shape.forms & ~(col.LIST | col.ARRAY | col.TENSOR) or shape.kinds & ~(col.INTS | 1 << BOOL):
        raise FallBack(f"column '{name}' is not made of lists, arrays or tensors of ints")
