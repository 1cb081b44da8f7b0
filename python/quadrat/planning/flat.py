"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and their boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from quadrat.deferred.batch import deferred_batch
from quadrat.input.items import SEQ_LENGTHS, is_packed
from quadrat.input.rows import MAIN, names_of, plain
from quadrat.installed.imitated import PADDING_FREE, Imitation
from quadrat.ops.aligned import Placement
from quadrat.ops.flatten import check_names, parts_of
from quadrat.planning.diagnosis.options import not_a_tokenizer
from quadrat.planning.extra_columns import OwnColumns, check_pad_values, check_rows, extra_kind, failed
from quadrat.planning.fallback import FallBack, Reason, raise_clearer, reason_text
from quadrat.planning.plan_cache import NO_LABELS, Labelling, Plan, PlanKey, Spec, planned
from quadrat.ragged import source_of
from quadrat.support import columns as col
from quadrat.support.kinds import BOOL, INT32, INT64, WIDEST, Framework

_INT64 = range(-(2**63), 2**63)
# How the parts of `quadrat.ops.flatten` are made.
_PARTS = {
    "places": (col.BOUNDS, INT32),
    "tokens": (col.TOKEN_BOUNDS, INT32),
    "longest": (col.LONGEST, INT64),
    "total": (col.TOTAL, INT64),
    "documents": (col.DOCUMENTS, INT64),
    "gaps": (col.GAPS, BOOL),
    "thd": (col.CONSTANT, INT64),
}


ATTENTION = ("attention_mask",)  # which a batch without padding leaves out


class Flattening(NamedTuple):
    """The options of a flattened batch; its outputs come in this order. seq_idx are padded with -1."""

    framework: Framework
    # "shifted": a row's first label is `separator_id`, so that no row's last token predicts the next row's first.
    labels: Literal["shifted", "as they are", "none"]
    label: str | None = None  # the column that labels are made of, and their name; None: of input_ids, as `labels`
    position_ids: bool = True
    seq_idx: bool = False
    consumer: str | None = None  # whose names say where the rows begin, see `quadrat.ops.flatten`; None: nothing does
    extra: Mapping[str, Any] = {}  # more columns with one number per token, and what pads each
    own: OwnColumns = OwnColumns()  # of which columns are joined, and dtypes
    layout: col.BatchLayout = col.BatchLayout(separator=-100)
    input_pad: Any = 0
    label_pad: Any = -100
    labelling: Labelling = NO_LABELS  # with labels "none": how `labels` are made from the joined ids
    packed: bool = False  # whether rows are packed, and their documents are what the outputs tell apart
    refuses_empty: bool = False  # whether rows without tokens are somebody else's work

    @classmethod
    def of(cls, collator: Any, framework: Framework, labels: Any, label: Any, extra: Any, **more: Any) -> Flattening:
        """With the options of a collator."""
        layout = col.BatchLayout(
            multiple_of=collator.pad_to_multiple_of or 1,
            separator=more.pop("separator", -100),
            start=collator.position_ids_start if collator.return_position_ids else 0,
            align_to=collator.align_to or 0,
            total=collator.total_length or 0,
            continue_positions=bool(collator.continue_positions),
        )
        return cls(
            framework,
            labels,
            label,
            bool(collator.return_position_ids),
            bool(collator.return_seq_idx),
            collator.kwargs_for or ("transformers" if getattr(collator, "return_flash_attn_kwargs", False) else None),
            extra,
            OwnColumns.of(collator),
            layout,
            **more,
        )

    @property
    def padded(self) -> bool:
        """True if there may be padding."""
        return self.layout.multiple_of > 1 or self.layout.align_to > 0 or self.layout.total > 0

    @property
    def only(self) -> tuple[str, ...]:
        """Other columns that features may have without padding."""
        return *ATTENTION, *self.labelling.omits, *self.own.joined

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, input_ids first."""
        documents = (SEQ_LENGTHS,) if self.packed else ()
        return MAIN, *(() if self.label is None else (self.label,)), *self.extra, *self.labelling.omits, *documents


def check_pad_to_multiple_of(value: Any, name: str = "pad_to_multiple_of") -> None:
    """Raises ValueError unless the value is None or a positive int, of tokens that memory may hold."""
    if value is not None and (type(value) is not int or not 0 < value <= WIDEST):
        raise ValueError(f"{name} must be a positive int up to 2**48, or None, not {value!r}")


def check_layout(collator: Any) -> None:
    """Raises ValueError for layout options of a flat batch that are invalid, or conflict."""
    check_pad_to_multiple_of(collator.pad_to_multiple_of)
    check_names(collator.kwargs_for)
    multiple, total = collator.pad_to_multiple_of, collator.total_length
    for name in ("align_to", "total_length"):
        check_pad_to_multiple_of(getattr(collator, name), name)
    if total is not None and multiple is not None:
        raise ValueError("pad_to_multiple_of and total_length both set the length of a batch: give one of them")
    for name, value in (("pad_to_multiple_of", multiple), ("total_length", total)):
        if collator.align_to is not None and value is not None and value % collator.align_to:
            raise ValueError(f"{name}={value} must be a multiple of align_to={collator.align_to}")


def padding_free_plan(
    collator: Any,
    features: Any,
    framework: Framework,
    *,
    labels: Literal["shifted", "as they are", "none"],
    label: str | None = None,
    label_pad: Any = -100,
    labelling: Labelling = NO_LABELS,
) -> Flattening:
    """The flattening of the columns that the collator's tokenizer would pad, `label`, and those of `pad_values`.

    Raises TypeError or ValueError, and FallBack for packed rows that must be taken apart.
    """
    for problem in not_a_tokenizer(collator):
        raise TypeError(problem)
    check_pad_values(collator)
    check_layout(collator)
    names = names_of(features)
    if names is None:
        raise ValueError("padding_free needs a list of features, one mapping per row, and at least one row")
    tokenizer = collator.tokenizer
    for option in ("pad_to_multiple_of", "align_to", "total_length"):
        if getattr(collator, option) is not None and tokenizer.pad_token_id is None:
            raise ValueError(f"{option} needs a pad token: set tokenizer.pad_token")
    if collator.align_to is not None and labels == "none" and labelling.make is not None:
        raise ValueError("align_to cannot be used with mlm: mask first, then give the batch to quadrat.align")
    pads = {"token_type_ids": tokenizer.pad_token_type_id, "special_tokens_mask": 1, **(collator.pad_values or {})}
    extra = {name: pads[name] for name in names if name in pads and name not in (label, *labelling.omits)}
    if MAIN not in names:
        raise ValueError(f"padding_free joins '{MAIN}', which is missing; the features have {list(names)}")
    known = (MAIN, label, "attention_mask", *labelling.omits, *extra, *(collator.join_columns or ()))
    packed, unknown = is_packed(features), [name for name in names if name not in known]
    if packed and unknown != [SEQ_LENGTHS]:
        raise FallBack("packed rows have other columns")
    if unknown and not packed:
        raise ValueError(
            f"padding_free cannot join column '{unknown[0]}': remove it, or, if it has one number per token, give "
            f"pad_values={{'{unknown[0]}': value}}; if it has rows of another number, join_columns=('{unknown[0]}',)"
        )
    pads = {"input_pad": tokenizer.pad_token_id or 0, "label_pad": label_pad}
    return Flattening.of(collator, framework, labels, label, extra, labelling=labelling, packed=packed, **pads)


def flatten(collator: Any, features: Any, plan: Flattening, **more: Any) -> Any:
    """The flattened batch that `plan` asks for. more: fields of the `Spec`; with facts, it is remembered.

    Raises FallBack for packed rows that must be taken apart. For all else that no kernel reads: what reading the
    features raises, or a ValueError that says what to give.
    """
    try:
        return flat_spec(plan, deferred=collator.deferred, **more).make(collator, features)
    except FallBack as reason:
        if plan.packed:
            raise
        why = reason.args
    rows = plain(features)
    try:
        refuse(collator, plan, rows, why)
    except Exception as error:
        raise_clearer(error, rows, collator)


def flat_spec(plan: Flattening, *, deferred: bool = False, **more: Any) -> Spec:
    """Batches of a flattening whose result the kernels can prove. more: fields of the `Spec`. Raises FallBack."""
    layout, names = plan.layout, plan.names
    if type(layout.start) is not int or layout.start not in _INT64:
        raise FallBack("position_ids_start is not an int64", "give an int")
    if plan.packed:
        layout = layout._replace(seq_lengths=len(names) - 1)
    plain = layout.align_to == layout.total == 0 and layout.continue_positions
    defers = (
        deferred and plain and plan.consumer not in ("megatron", "mask") and plan.own.defers
    )  # others are made before they are sent
    parts = parts_of(plan.consumer, aligned=layout.align_to > 0)
    extra = tuple((name, type(value)) for name, value in plan.extra.items())
    given = plan.labels, plan.label, plan.position_ids, plan.seq_idx
    asked = *given, parts, plan.padded, extra, plan.labelling.derives, plan.packed, plan.refuses_empty, plan.own
    values = {MAIN: plan.input_pad, plan.label or "labels": plan.label_pad, "qkv_format": "thd", **plan.extra}
    own: dict[str, Any] = {
        "values": lambda collator, key: values,
        "failed": failed,
        "check": plan.own.check,
        "labelling": plan.labelling,
        "facts": None,
        "deferred": deferred_batch if defers else None,
    }
    return Spec(
        plan.framework,
        flat_plan,
        asked,
        names,
        joined=plan.own.joined,
        read=plan.own.read,
        layout=layout,
        **{**own, **more},
    )


Imitation(PADDING_FREE, compares=False, form="joined")
# Of padding-free batches: the reference's flattening has this option, and what has no reference has quadrat's.
LACKS = {"return_flash_attn_kwargs": 'give kwargs_for="transformers"'}


@planned
def flat_plan(key: PlanKey) -> Plan:
    """The outputs, in order."""
    labels, label, position_ids, seq_idx, parts, padded, extra, derives, packed, refuses_empty, own = key.options
    shapes = col.column_shapes(key.signature)
    names = tuple(name for name in key.names if name not in own.joined)
    joined = [*zip(key.names, shapes, strict=True)][len(names) :]
    shapes = shapes[: len(names)]
    _require_ints(MAIN, shapes[0])
    steps = [(MAIN, 0, col.JOIN, INT64)]
    first = 1 if label is None else 2  # of the columns that are neither ids nor labels
    if label is not None:
        _require_ints(label, shapes[1])
        if not shapes[1].aligned and (padded or packed or labels == "as they are"):
            raise FallBack(f"column '{label}' differs in length from the tokens", "give one number for each token")
    if (refuses_empty or (labels == "shifted" and (padded or packed))) and not shapes[0].full:
        raise FallBack(f"column '{MAIN}' has an empty row", "leave it out")  # a separator makes its labels longer
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
            raise FallBack(f"column '{name}' has other rows than one number per token", "give such rows")
        cast = own.cast(name, shape)
        steps.append((name, index, col.JOIN, kind if cast is None else cast))
    for index, (name, shape) in enumerate(joined, len(names)):
        steps += own.steps(name, index, shape, key.framework, key.float_kind, wide=False)
    _require_read(dict(zip(names[last:], shapes[last:], strict=True)))
    return Plan(tuple(steps))


def _require_read(shapes: dict[str, col.ColumnShape]) -> None:
    """Raises FallBack unless columns that are read, and do not come out, are what they must be."""
    sizes = shapes.get(SEQ_LENGTHS)
    if sizes is not None and (sizes.forms & ~col.ROWS or sizes.kinds & ~col.INTS):
        raise FallBack(f"column '{SEQ_LENGTHS}' does not say how long documents are", "give lists of ints")
    if "special_tokens_mask" in shapes and not shapes["special_tokens_mask"].aligned:
        raise FallBack("column 'special_tokens_mask' has other rows than one number per token", "give such rows")


def _require_ints(name: str, shape: col.ColumnShape) -> None:
    # The reference calls tolist() where there is one, and joins lists to lists.
    if shape.forms & ~(col.LIST | col.MEMORY_ROWS) or shape.kinds & ~(col.INTS | 1 << BOOL):
        raise FallBack(f"column '{name}' is not made of lists, arrays or tensors of ints", "give lists of ints")


def refuse(collator: Any, plan: Flattening, features: Any, why: Reason) -> NoReturn:
    """Raise why no kernel flattens these features, and what to give: TypeError for rows, KeyError, else ValueError."""
    for name in plan.own.joined:
        check_rows(collator, name, features)
    label = () if plan.label is None else (plan.label,)
    lengths = {}
    for name in (MAIN, *label, *plan.extra):
        try:
            source = source_of([feature[name] for feature in features])
            source.joined(None, "np")
        except (TypeError, OverflowError) as error:
            raise type(error)(f"column '{name}': {error}") from error
        lengths[name] = source.lengths
    tokens = lengths[MAIN]
    for name in (*(label if plan.padded or plan.labels == "as they are" else ()), *plan.extra):
        for row in np.flatnonzero(lengths[name] != tokens):
            where = f"column '{name}', row {row} has length {lengths[name][row]} where '{MAIN}' has {tokens[row]}"
            raise ValueError(f"{where}; give one value per token")
    for row in np.flatnonzero(tokens == 0) if plan.padded and plan.labels == "shifted" else ():
        raise ValueError(f"column '{MAIN}', row {row} is empty, and a separator has no place in it; leave it out")
    place = Placement(plan.layout.align_to, plan.layout.total or None, rounding=plan.layout.multiple_of)
    place.layout(tokens, int(tokens.sum()))  # raises ValueError where rows are longer than the batch
    raise ValueError(reason_text(*why))
