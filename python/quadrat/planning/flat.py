"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and their boundaries.

Written against `DataCollatorWithFlattening` of transformers 5.23. A batch takes two compiled calls, as in `padded`.
Rows that the kernels do not know are joined token by token in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
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
        raise FallBack("position_ids_start is not an int64")
    collected = _core.collect(features, plan.names, interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to flatten")
    names, columns = plan.names, collected[1]
    extra = tuple((name, type(value)) for name, value in plan.extra.items())
    given = plan.labels, plan.label, plan.position_ids, plan.seq_idx
    asked = *given, plan.parts, plan.padded, extra, plan.labelling is not None
    key = plan_cache.key_of(names, columns, plan.framework, asked)
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
        plan_cache.check_device(plan.framework)
        if plan.labelling is not None:
            values["labels"] = plan.labelling.make(names)
        batch = plan_cache.run_steps(
            columns, made.steps, values, plan.framework, layout, deferred=deferred and plan.defers
        )
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
            falls_back=collator._falls_back_plainly(),
            layout=layout,
            names=names,
            absent=("labels",) if plan.label is None else (),
            deferred=deferred_batch if collator.deferred and plan.defers else None,
        )
    if made.refusal is not None:
        raise FallBack(made.refusal)
    return batch


@plan_cache.planned
def flat_plan(key: plan_cache.PlanKey) -> plan_cache.Plan:
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
    """As `flatten`, token by token in Python: for rows that the kernels do not know."""
    ids: list[Any] = []
    labels: list[Any] = []
    positions: list[Any] = []
    lengths: list[int] = []
    for row, feature in enumerate(features):  # row by row, so that of two errors the first row's is raised
        tokens = _as_list(feature[MAIN])
        ids.append(list(tokens))
        if plan.labels != "none":
            labels.append(_labels(plan, row, tokens, tokens if plan.label is None else _as_list(feature[plan.label])))
        if plan.position_ids:
            positions.append([plan.position_ids_start + i for i in range(len(tokens))])
        lengths.append(len(tokens))
    if plan.framework not in ("pt", "np"):
        raise ValueError(f"return_tensors must be 'pt' or 'np', not {plan.framework!r}")
    gaps = _gaps(plan, lengths)

    def made(values: list[Any], dtype: str | None) -> Any:
        if plan.framework == "np":
            return np.array(values, dtype=dtype)
        import torch

        return torch.tensor(values, dtype=None if dtype is None else getattr(torch, dtype))

    def joined(rows: Iterable[Any], fill: Any) -> list[Any]:
        return [one for row, gap in zip(rows, gaps, strict=True) for one in (*row, *[fill] * gap)]

    def of_each(value: Callable[[int], Any], fill: Any, dtype: str) -> Any:
        """The same value for all tokens of a row."""
        return made([joined(([value(row)] * length for row, length in enumerate(lengths)), fill)], dtype)

    batch = {MAIN: made([joined(ids, plan.input_pad)], "int64")}
    if plan.labels != "none":
        batch[plan.label or "labels"] = made([joined(labels, plan.label_pad)], "int64")
    if plan.position_ids:
        batch["position_ids"] = made([_positions(plan, positions, gaps)], "int64")
    if plan.seq_idx:
        batch["seq_idx"] = of_each(lambda row: row, -1, "int32")
    places = lengths if plan.align_to is None else [sum(both) for both in zip(lengths, gaps, strict=True)]
    parts: dict[str, Callable[[], Any]] = {  # see `quadrat.varlen.names`
        "places": lambda: made([0, *accumulate(places)], "int32"),
        "tokens": lambda: made([0, *accumulate(lengths)], "int32"),
        "documents": lambda: of_each(lambda row: row + 1, 0, "int64"),
        "gaps": lambda: of_each(lambda row: False, True, "bool"),
        "longest": lambda: max(places, default=0),
        "total": lambda: sum(lengths) + sum(gaps),
        "thd": lambda: "thd",
    }
    batch |= {name: parts[what]() for name, what in plan.parts}
    for name, value in plan.extra.items():
        rows: list[Any] = []
        for row, feature in enumerate(features):
            rows.append(_as_list(feature[name]))
            _require_length(name, row, rows[-1], lengths[row])
        values = joined(rows, value)
        batch[name] = made([values], _dtype_of(name, values, type(value)))
    return batch


def _gaps(plan: Flattening, lengths: list[int]) -> list[int]:
    """The padding after each row. Raises ValueError if the total is too short, or there is no row to pad."""
    gaps = [0 if plan.align_to is None else -length % plan.align_to for length in lengths]
    needed = sum(lengths) + sum(gaps)
    total = needed + -needed % (plan.pad_to_multiple_of or 1) if plan.total_length is None else plan.total_length
    if total < needed:
        raise ValueError(f"total_length={total} is below the {needed} tokens of the batch")
    if total > needed:
        if not lengths or (plan.align_to is None and not sum(lengths)):
            raise ValueError(f"total_length={total}, but there is no token: position_ids have nothing to continue from")
        gaps[-1] += total - needed
    return gaps


def _positions(plan: Flattening, rows: list[list[Any]], gaps: list[int]) -> list[Any]:
    made: list[Any] = []
    for row, gap in zip(rows, gaps, strict=True):
        made += row
        # Without places of their own, padding follows the last token, of whatever row.
        follows = made and (row or plan.align_to is None)
        first = made[-1] + 1 if follows else plan.position_ids_start
        made += [first + i if plan.continue_positions else 0 for i in range(gap)]
    return made


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def _labels(plan: Flattening, row: int, ids: Any, labels: Any) -> Any:
    if plan.padded or plan.labels == "as they are":
        _require_length(plan.label or "labels", row, labels, len(ids))
    if plan.labels == "as they are":
        return labels
    if plan.padded and len(ids) == 0:
        raise ValueError(
            f"column '{MAIN}', row {row} is empty: its separator would make labels longer than {MAIN}, "
            "and they could not be padded to one length; leave out empty rows"
        )
    return [plan.separator_id] + labels[1:]  # noqa: RUF005 - a tuple is refused, as the reference does


def _require_length(name: str, row: int, values: Any, length: int) -> None:
    if len(values) != length:
        raise ValueError(
            f"column '{name}', row {row} has length {len(values)} where '{MAIN}' has {length}; give one value per token"
        )


def _dtype_of(name: str, values: list[Any], value_type: type) -> str | None:
    """Of an extra column: integers int64, floats of the default dtype, bools bool only where what pads them is one."""
    if not all(isinstance(value, (int, float, np.number, np.bool_)) for value in values):
        raise ValueError(f"column '{name}' is not made of one-dimensional rows of numbers")
    kinds = set(map(type, values))
    if any(issubclass(kind, (float, np.floating)) for kind in kinds):
        return None
    return "bool" if kinds == {bool} and value_type is bool else "int64"
