"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and their boundaries.

Written against `DataCollatorWithFlattening` of transformers 5.23. A batch takes two compiled calls, as in `padded`.
Rows that the kernels do not know become lists first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.input.items import SEQ_LENGTHS
from quadrat.input.rows import MAIN
from quadrat.planning import plan_cache
from quadrat.planning.extra_columns import extra_kind
from quadrat.planning.fallback import FallBack, fall_back
from quadrat.planning.flattening import Flattening
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

    Raises what `flatten_plainly` raises.
    """
    try:
        return flatten_features(features, plan, deferred=collator.deferred)
    except FallBack as reason:
        if plan.packed:
            raise
        why = str(reason)
    count_planned(-1)  # the collator counts it
    return fall_back(collator, lambda rows: flatten_plainly(rows, plan), features, why)


def flatten_features(features: Any, plan: Flattening, collator: Any = None, *, deferred: bool = False) -> Any:
    """As `flatten`, for batches whose result the kernels can prove; `collator` remembers them. Raises FallBack."""
    layout, deferred = plan.layout, deferred and plan.defers
    if type(layout.start) is not int or layout.start not in _INT64:
        raise FallBack("position_ids_start is not an int64")
    collected = _core.collect(features, plan.names, interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to flatten")
    names, columns = plan.names, collected[1]
    if plan.packed:
        layout = layout._replace(seq_lengths=len(names) - 1)
    extra = tuple((name, type(value)) for name, value in plan.extra.items())
    given = plan.labels, plan.label, plan.position_ids, plan.seq_idx
    asked = *given, plan.parts, plan.padded, extra, plan.labelling is not None, plan.packed
    key = plan_cache.key_of(names, columns, plan.framework, asked)
    made = flat_plan(key)
    values = {MAIN: plan.input_pad, plan.label or "labels": plan.label_pad, "qkv_format": "thd", **plan.extra}
    if made.refusal is None:
        plan_cache.check_device(plan.framework)
        if plan.labelling is not None:
            values["labels"] = plan.labelling.make(names)
        batch = plan_cache.run_steps(columns, made.steps, values, plan.framework, layout, deferred=deferred)
        if isinstance(batch, tuple):
            step, code, row, position = batch
            if made.steps[step][2] == col.LABELS:
                plan_cache.refuse_words(names, (code, row, position))
            raise FallBack(f"'{made.steps[step][0]}': {col.explain((code, -1, -1))}")
    if collator is not None:
        own = plan_cache.own_facts(collator)
        plan_cache.remember(
            collator,
            key,
            made,
            values,
            None if own is None else (*own, *collator._facts()),
            falls_back=collator._falls_back_plainly() and not plan.packed,
            layout=layout,
            names=names,
            absent=(*(("labels",) if plan.label is None else ()), *(() if plan.packed else (SEQ_LENGTHS,))),
            deferred=deferred_batch if deferred else None,
        )
    if made.refusal is not None:
        raise FallBack(made.refusal)
    return batch


@plan_cache.planned
def flat_plan(key: plan_cache.PlanKey) -> plan_cache.Plan:
    """The outputs, in order."""
    names = key.names
    labels, label, position_ids, seq_idx, parts, padded, extra, derives, packed = key.options
    shapes = col.column_shapes(key.signature)
    _require_ints(MAIN, shapes[0])
    steps = [(MAIN, 0, col.JOIN, INT64)]
    first = 1 if label is None else 2  # of the columns that are neither ids nor labels
    if label is not None:
        _require_ints(label, shapes[1])
        if not shapes[1].aligned and (padded or packed or labels == "as they are"):
            raise FallBack(f"column '{label}' differs in length from the tokens")
    if labels == "shifted" and (padded or packed) and not shapes[0].full:
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
        if kind is None or not shape.aligned or shape.forms & col.DEEP:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
        steps.append((name, index, col.JOIN, kind))
    for name, shape in zip(names[last:], shapes[last:], strict=True):
        if name == "special_tokens_mask" and not shape.aligned:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
    return plan_cache.Plan(tuple(steps))


def _require_ints(name: str, shape: col.ColumnShape) -> None:
    # The reference calls tolist() where there is one, and joins lists to lists.
    if shape.forms & ~(col.LIST | col.ARRAY | col.TENSOR) or shape.kinds & ~(col.INTS | 1 << BOOL):
        raise FallBack(f"column '{name}' is not made of lists, arrays or tensors of ints")


def flatten_plainly(features: Sequence[Mapping[str, Any]], plan: Flattening) -> dict[str, Any]:
    """As `flatten`, for rows that the kernels do not know as they are: first they become lists of one type of number.

    Raises ValueError, and what reading the rows raises.
    """
    if plan.framework not in ("pt", "np"):
        raise ValueError(f"return_tensors must be 'pt' or 'np', not {plan.framework!r}")
    rows: list[dict[str, list[Any]]] = []
    for row, feature in enumerate(features):  # row by row, so that of two errors the first row's is raised
        rows.append({name: _as_list(feature[name]) for name in plan.names})
        _require_lengths(plan, row, {name: len(values) for name, values in rows[-1].items()})
    _require_room(plan, [len(row[MAIN]) for row in rows])
    for name in plan.names:
        kinds = {type(value) for row in rows for value in row[name]}
        if not all(issubclass(kind, (int, float, np.number, np.bool_)) for kind in kinds):
            raise (TypeError if type(None) in kinds else ValueError)(f"column '{name}' is not made of rows of numbers")
        if len(kinds) > 1 or not kinds <= {bool, int, float}:
            floats = any(issubclass(kind, (float, np.floating)) for kind in kinds)
            rows = [{**row, name: list(map(float if floats else int, row[name]))} for row in rows]
    try:
        batch: dict[str, Any] = flatten_features(rows, plan._replace(framework="np"))
    except FallBack as reason:
        raise ValueError(str(reason)) from reason
    if plan.framework == "np":
        return batch
    import torch  # whose default device may be another than the kernels write to

    dtypes = {"f": torch.get_default_dtype()}
    return {
        name: torch.tensor(value, dtype=dtypes.get(value.dtype.kind)) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


def _as_list(row: Any) -> list[Any]:
    return list(row.tolist() if hasattr(row, "tolist") else row)


def _require_lengths(plan: Flattening, row: int, lengths: dict[str, int]) -> None:
    label = (plan.label,) if plan.padded or plan.labels == "as they are" else ()
    for name in (*label, *plan.extra):
        if name is not None and lengths[name] != lengths[MAIN]:
            raise ValueError(
                f"column '{name}', row {row} has length {lengths[name]} where '{MAIN}' has {lengths[MAIN]}; give one "
                "value per token"
            )
    if plan.labels == "shifted" and plan.padded and not lengths[MAIN]:
        raise ValueError(
            f"column '{MAIN}', row {row} is empty: its separator would make labels longer than {MAIN}, "
            "and they could not be padded to one length; leave out empty rows"
        )


def _require_room(plan: Flattening, lengths: list[int]) -> None:
    align, total = plan.layout.align_to or 1, plan.layout.total
    needed = sum(-(-length // align) * align for length in lengths)
    if 0 < total < needed:
        raise ValueError(f"total_length={total} is below the {needed} tokens of the batch")
    if total > needed and (not lengths or (plan.layout.align_to == 0 and not needed)):
        raise ValueError(f"total_length={total}, but there is no token: position_ids have nothing to continue from")
