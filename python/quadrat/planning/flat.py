"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and what tells them apart.

Written against `DataCollatorWithFlattening` of transformers 5.23. A batch costs two compiled calls: what it is made of,
and the outputs. The plan in between is made once per key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input.columns import (
    ARRAY,
    BOUNDS,
    INTS,
    JOIN,
    LABELS,
    LIST,
    LONGEST,
    POSITIONS,
    SEQUENCES,
    SHIFT,
    TENSOR,
    ColumnShape,
    column_shapes,
    explain,
)
from quadrat.planning.extra_columns import further_kind
from quadrat.planning.fallback import FallBack, fall_back
from quadrat.planning.labels import Labelling, refuse_words
from quadrat.planning.plan import Layout, Plan, PlanKey, check_device, key_of, planned, run_steps
from quadrat.planning.plan_cache import own_facts, remember
from quadrat.support.memory import BOOL, INT32, INT64, WIDEST, Framework, interop

MAIN = "input_ids"
_NOTHING: Mapping[str, Any] = {}
_INT64 = range(-(2**63), 2**63)


class Flattening(NamedTuple):
    """What a flattened batch holds; the outputs come in this order.

    Attributes:
        framework: "pt" or "np".
        labels: "shifted": the first token of each row is `separator_id`, so that no row's last token predicts the next
            row's first; "as they are"; or "none".
        label: the column labels are made of, and their name; None: of input_ids, as `labels`.
        position_ids: where in its row each token stands, counted from `position_ids_start`.
        seq_idx: which row each token belongs to.
        flash_attn_kwargs: where the rows begin, and the longest one's length, each twice.
        further: more columns with one number per token, and what pads each.
        labelling: with labels "none": how `labels` are made from the joined ids, by the columns in `omits` as well.
        pad_to_multiple_of: what the total is rounded up to. Labels are then padded with `label_pad`, input_ids with
            `input_pad`, position_ids by counting on, seq_idx with -1.
    """

    framework: Framework
    labels: Literal["shifted", "as they are", "none"]
    label: str | None = None
    position_ids: bool = True
    seq_idx: bool = False
    flash_attn_kwargs: bool = False
    further: Mapping[str, Any] = _NOTHING
    pad_to_multiple_of: int | None = None
    separator_id: Any = -100
    position_ids_start: Any = 0
    input_pad: Any = 0
    label_pad: Any = -100
    labelling: Labelling | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, input_ids first."""
        looked_at = () if self.labelling is None else self.labelling.omits
        return MAIN, *(() if self.label is None else (self.label,)), *self.further, *looked_at


def flatten(collator: Any, features: Any, plan: Flattening) -> Any:
    """The flattened batch that `plan` asks for, whatever the rows are made of.

    Args:
        collator: what logs and errors speak of.
        features: one mapping per row, each with the columns of the plan.
        plan: what to make of them.

    Raises:
        ValueError: when a row of labels (as they are) or of a further column is not as long as its input_ids.
        KeyError, TypeError, ...: what the rows' conversion to tensors raises, naming column and row as well.
    """
    try:
        return flatten_features(features, plan, deferred=collator.deferred)
    except FallBack as reason:
        why = str(reason)
    return fall_back(collator, lambda rows: flatten_plainly(rows, plan), features, why)


def check_pad_to_multiple_of(multiple: Any) -> None:
    """Raises ValueError unless `multiple` is None or a positive int, of tokens that memory may hold."""
    if multiple is not None and (type(multiple) is not int or not 0 < multiple <= WIDEST):
        raise ValueError(f"pad_to_multiple_of must be a positive int up to 2**48, or None, not {multiple!r}")


def flatten_features(features: Any, plan: Flattening, collator: Any = None, *, deferred: bool = False) -> Any:
    """As `flatten`, for batches whose result the kernels can prove. Raises FallBack for others.

    collator: one for which batches like this may take a recipe from now on.
    deferred: whether to make a `DeferredBatch`.
    """
    start = plan.position_ids_start if plan.position_ids else 0
    if type(start) is not int or start not in _INT64:
        raise FallBack("position_ids_start is no int64")
    collected = _core.collect(features, plan.names, interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the columns to flatten")
    names, columns = plan.names, collected[1]
    asked = FlatOptions(
        plan.labels,
        plan.label,
        plan.position_ids,
        plan.seq_idx,
        plan.flash_attn_kwargs,
        plan.pad_to_multiple_of is not None,
        tuple((name, type(value)) for name, value in plan.further.items()),
        plan.labelling is not None,
    )
    key = key_of(names, columns, plan.framework, asked)
    made = flat_plan(key)
    values = {MAIN: plan.input_pad, plan.label or "labels": plan.label_pad, **plan.further}
    multiple = plan.pad_to_multiple_of or 1
    if made.refusal is None:
        check_device(plan.framework)
        if plan.labelling is not None:
            values["labels"] = plan.labelling.make(names)
        layout = Layout(0, multiple, False, plan.separator_id, start)
        batch = run_steps(columns, made.steps, values, plan.framework, layout, deferred=deferred)
        if isinstance(batch, tuple):
            step, code, row, position = batch
            if made.steps[step][2] == LABELS:
                refuse_words(names, (code, row, position))
            raise FallBack(f"'{made.steps[step][0]}': {explain((code, -1, -1))}")
    if collator is not None:
        own = own_facts(collator)
        remember(
            collator,
            key,
            made,
            values,
            None if own is None else (*own, *collator._facts()),
            falls_back=collator._falls_back_plainly(),
            multiple_of=multiple,
            separator=plan.separator_id,
            start=start,
            names=names,
            absent="labels" if plan.label is None else None,
            deferred=deferred_batch if collator.deferred else None,
        )
    if made.refusal is not None:
        raise FallBack(made.refusal)
    return batch


class FlatOptions(NamedTuple):
    """The options in the key of a flattened batch."""

    labels: str
    label: str | None
    position_ids: bool
    seq_idx: bool
    flash_attn_kwargs: bool
    padded: bool
    further: tuple[tuple[str, type], ...]  # column and type of what pads it
    derives: bool  # labels made from the joined ids


@planned
def flat_plan(key: PlanKey) -> Plan:
    """The outputs, in order."""
    options, names = key.options, key.names
    shapes = column_shapes(key.signature)
    _require_ints(MAIN, shapes[0])
    steps = [(MAIN, 0, JOIN, INT64)]
    first = 1 if options.label is None else 2  # of the columns that are neither ids nor labels
    if options.label is not None:
        _require_ints(options.label, shapes[1])
        if not shapes[1].aligned and (options.padded or options.labels == "as they are"):
            raise FallBack(f"column '{options.label}' differs in length from the tokens")
    if options.labels == "shifted" and options.padded and not shapes[0].full:
        raise FallBack("a row is empty")  # its separator makes the labels longer than the tokens
    if options.labels != "none":
        action = SHIFT if options.labels == "shifted" else JOIN
        steps.append((options.label or "labels", first - 1, action, INT64))
    elif options.derives:
        steps.append(("labels", 0, LABELS, INT64))
    if options.position_ids:
        steps.append(("position_ids", 0, POSITIONS, INT64))
    if options.seq_idx:
        steps.append(("seq_idx", 0, SEQUENCES, INT32))
    if options.flash_attn_kwargs:
        steps += [(f"cu_seq_lens_{one}", 0, BOUNDS, INT32) for one in "qk"]
        steps += [(f"max_length_{one}", 0, LONGEST, INT64) for one in "qk"]
    last = first + len(options.further)
    for index, (name, value_type) in enumerate(options.further, first):
        shape = shapes[index]
        kind = further_kind(shape.forms, shape.kinds, key.float_kind, value_type)
        if kind is None or not shape.aligned:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
        steps.append((name, index, JOIN, kind))
    for name, shape in zip(names[last:], shapes[last:], strict=True):
        if name == "special_tokens_mask" and not shape.aligned:
            raise FallBack(f"column '{name}' is not made of rows of numbers as long as the tokens")
    return Plan(tuple(steps))


def _require_ints(name: str, shape: ColumnShape) -> None:
    # The reference calls tolist() where there is one, and joins lists to lists.
    if shape.forms & ~(LIST | ARRAY | TENSOR) or shape.kinds & ~(INTS | 1 << BOOL):
        raise FallBack(f"column '{name}' is not made of lists, arrays or tensors of ints")


def flatten_plainly(features: Sequence[Mapping[str, Any]], plan: Flattening) -> dict[str, Any]:
    """As `flatten`, token by token in Python: for rows that the kernels do not know."""
    tokens: list[Any] = []
    labels: list[Any] = []
    positions: list[Any] = []
    lengths: list[int] = []
    for row, feature in enumerate(features):  # row by row, so that of two errors the first row's is raised
        ids = _as_list(feature[MAIN])
        tokens += ids
        if plan.labels != "none":
            labels += _labels(plan, row, ids, ids if plan.label is None else _as_list(feature[plan.label]))
        if plan.position_ids:
            positions += [plan.position_ids_start + i for i in range(len(ids))]
        lengths.append(len(ids))
    if plan.framework not in ("pt", "np"):
        raise ValueError(f"return_tensors must be 'pt' or 'np', not {plan.framework!r}")
    rest = -len(tokens) % (plan.pad_to_multiple_of or 1)
    batch = {MAIN: _made(plan, [tokens + [plan.input_pad] * rest], "int64")}
    if plan.labels != "none":
        batch[plan.label or "labels"] = _made(plan, [labels + [plan.label_pad] * rest], "int64")
    if plan.position_ids:
        positions += [positions[-1] + 1 + i for i in range(rest)]
        batch["position_ids"] = _made(plan, [positions], "int64")
    if plan.seq_idx:
        sequences = [row for row, length in enumerate(lengths) for _ in range(length)]
        batch["seq_idx"] = _made(plan, [sequences + [-1] * rest], "int32")
    if plan.flash_attn_kwargs:
        bounds = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
        batch |= {f"cu_seq_lens_{one}": _made(plan, bounds, "int32") for one in "qk"}
        batch |= {f"max_length_{one}": max(lengths, default=0) for one in "qk"}
    for name, value in plan.further.items():
        numbers: list[Any] = []
        for row, feature in enumerate(features):
            column = _as_list(feature[name])
            _require_length(name, row, column, lengths[row])
            numbers += column
        batch[name] = _inferred(plan, name, [numbers + [value] * rest], type(value))
    return batch


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def _labels(plan: Flattening, row: int, ids: Any, labels: Any) -> Any:
    padded = plan.pad_to_multiple_of is not None
    if padded or plan.labels == "as they are":
        _require_length(plan.label or "labels", row, labels, len(ids))
    if plan.labels == "as they are":
        return labels
    if padded and len(ids) == 0:
        raise ValueError(
            f"column '{MAIN}', row {row} is empty: with its separator, labels would be longer than {MAIN}, and "
            "pad_to_multiple_of could not pad them alike; leave out empty rows"
        )
    return [plan.separator_id] + labels[1:]  # noqa: RUF005 - a tuple is refused, as the reference does


def _require_length(name: str, row: int, values: Any, length: int) -> None:
    if len(values) != length:
        raise ValueError(
            f"column '{name}', row {row} has length {len(values)} where '{MAIN}' has {length}; give one value per token"
        )


def _made(plan: Flattening, values: list[Any], dtype: str | None) -> Any:
    if plan.framework == "np":
        return np.array(values, dtype=dtype)
    import torch

    return torch.tensor(values, dtype=None if dtype is None else getattr(torch, dtype))


def _inferred(plan: Flattening, name: str, values: list[Any], value_type: type) -> Any:
    """A further column: integers int64, floats of the default dtype, bools bool only where what pads them is one."""
    kinds = {type(value) for value in values[0]}
    if not all(isinstance(value, (int, float, np.number, np.bool_)) for value in values[0]):
        raise ValueError(f"column '{name}' is not made of one-dimensional rows of numbers")
    if any(issubclass(kind, (float, np.floating)) for kind in kinds):
        return _made(plan, values, None)
    flags = kinds == {bool} and value_type is bool
    return _made(plan, values, "bool" if flags else "int64")
