"""Flattening, or padding-free: the rows of a batch one after the other, `[1, total]`, and their boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np

from quadrat.input.items import SEQ_LENGTHS, is_packed
from quadrat.input.rows import MAIN, names_of, plain
from quadrat.installed.imitated import PADDING_FREE, Imitation
from quadrat.ops.flattening import Flattening, boundaries_of, check_flattening, flattening_of, layout_of, layout_of_rows
from quadrat.planning.diagnosis.options import not_a_tokenizer
from quadrat.planning.extra_columns import OwnColumns, check_rows, extra_kind
from quadrat.planning.facts import Fact
from quadrat.planning.fallback import FallBack, Reason, raise_clearer, reason_text
from quadrat.planning.plan_cache import NO_LABELS, Labelling, Plan, PlanKey, Spec, planned
from quadrat.ragged import source_of
from quadrat.support import columns as col
from quadrat.support.kinds import BOOL, INT32, INT64, Framework

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


class FlatOptions(NamedTuple):
    """All that the plan of a flattened batch depends on besides its columns; its outputs come in this order."""

    # "shifted": a row's first label is a separator, so that no row's last token predicts the next row's first.
    labels: Literal["shifted", "as they are", "none"]
    label: str | None  # the column that labels are made of, and their name; None: of input_ids, as `labels`
    flattening: Flattening
    extra: tuple[tuple[str, type], ...] = ()  # more columns with one number per token, and the type of what pads each
    column_options: OwnColumns = OwnColumns()  # of which columns are joined, and dtypes
    padded: bool = False  # whether there may be padding
    derives: str = ""  # with labels "none": how `labels` are made from the joined ids
    packed: bool = False  # whether rows are packed, and their documents are what the outputs tell apart
    refuses_empty: bool = False  # whether rows without tokens are somebody else's work


Imitation(PADDING_FREE, compares=False, form="joined")
# Options of the reference's flattening, and what to give instead where `padding_free` holds them.
LACKS = {name: f"give padding_free=quadrat.Flattening({name}=...)" for name in Flattening._fields}
LACKS["return_flash_attn_kwargs"] = 'give padding_free=quadrat.Flattening(kwargs_for="transformers")'


@planned
def flat_plan(key: PlanKey) -> Plan:
    """The outputs, in order."""
    options: FlatOptions = key.options
    how, columns, label, labels = options.flattening, options.column_options, options.label, options.labels
    unshifted = options.padded or options.packed  # whether a separator in place of a missing label is in the way
    shapes = col.column_shapes(key.signature)
    names = tuple(name for name in key.names if name not in columns.joined)
    joined = [*zip(key.names, shapes, strict=True)][len(names) :]
    shapes = shapes[: len(names)]
    _require_ints(MAIN, shapes[0])
    steps = [(MAIN, 0, col.JOIN, INT64)]
    first = 1 if label is None else 2  # of the columns that are neither ids nor labels
    if label is not None:
        _require_ints(label, shapes[1])
        if not shapes[1].aligned and (unshifted or labels == "as they are"):
            raise FallBack(f"column '{label}' differs in length from the tokens", "give one number for each token")
    if (options.refuses_empty or (labels == "shifted" and unshifted)) and not shapes[0].full:
        raise FallBack(f"column '{MAIN}' has an empty row", "leave it out")  # a separator makes its labels longer
    if labels != "none":
        steps.append((label or "labels", first - 1, col.SHIFT if labels == "shifted" else col.JOIN, INT64))
    elif options.derives:
        steps.append(("labels", 0, col.LABELS, INT64))
    if how.return_position_ids:
        steps.append(("position_ids", 0, col.POSITIONS, INT64))
    if how.return_seq_idx:
        steps.append(("seq_idx", 0, col.SEQUENCES, INT32))
    steps += [(name, 0, *_PARTS[what]) for name, what in boundaries_of(how)]
    last = first + len(options.extra)
    for index, (name, value_type) in enumerate(options.extra, first):
        shape = shapes[index]
        kind = extra_kind(shape.forms, shape.kinds, key.float_kind, value_type)
        if kind is None or not shape.aligned or shape.forms & col.DEEP:
            raise FallBack(f"column '{name}' has other rows than one number per token", "give such rows")
        cast = columns.cast(name, shape)
        steps.append((name, index, col.JOIN, kind if cast is None else cast))
    for index, (name, shape) in enumerate(joined, len(names)):
        steps += columns.steps(name, index, shape, key, wide=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Flat(Spec):
    """Flattened batches."""

    plan = staticmethod(flat_plan)

    multiple: int | None  # that the total is rounded up to
    pads: dict[str, Any]  # what pads each output

    @classmethod
    def of(
        cls,
        collator: Any,
        framework: Framework,
        how: Flattening,
        extra: Mapping[str, Any],
        *,
        labels: Literal["shifted", "as they are", "none"],
        label: str | None = None,
        input_pad: Any = 0,
        label_pad: Any = -100,
        separator: Any = -100,
        ignored: Any = None,
        labelling: Labelling = NO_LABELS,
        packed: bool = False,
        refuses_empty: bool = False,
        absent: tuple[str, ...] = (),
        only: tuple[str, ...] | None = None,
        facts: tuple[Fact, ...] | None = None,
        deferred: bool = False,
    ) -> Self:
        """Of a collator whose options were checked. extra: more columns of a number per token, and what pads each."""
        multiple, columns = collator.pad_to_multiple_of, OwnColumns.of(collator)
        kinds = tuple((name, type(value)) for name, value in extra.items())
        padded = (multiple or 1) > 1 or how.align_to is not None or how.total_length is not None
        omits = labelling.omits if labelling.make is not None else ()
        names = MAIN, *(() if label is None else (label,)), *extra, *omits, *((SEQ_LENGTHS,) if packed else ())
        layout = layout_of(how, multiple, separator=separator)._replace(ignored=ignored)
        plain = layout.align_to == layout.total == 0 and layout.continue_positions
        # Others are made before they are sent.
        defers = plain and how.kwargs_for not in ("megatron", "mask") and columns.defers
        return cls(
            framework=framework,
            options=FlatOptions(labels, label, how, kinds, columns, padded, labelling.derives, packed, refuses_empty),
            names=names,
            absent=absent,
            only=only,
            layout=layout._replace(seq_lengths=len(names) - 1) if packed else layout,
            labelling=labelling,
            facts=facts,
            deferred=deferred and defers,
            **columns.fields,
            multiple=multiple,
            pads={MAIN: input_pad, label or "labels": label_pad, "qkv_format": "thd", **extra},
        )

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        """The padding value of each output."""
        return self.pads

    def make(self, collator: Any, features: Any) -> Any:
        """As that of every `Spec`."""
        if type(self.layout.start) is not int or self.layout.start not in _INT64:
            raise FallBack("position_ids_start is not an int64", "give an int")
        return super().make(collator, features)


def padding_free_spec(
    collator: Any,
    features: Any,
    framework: Framework,
    *,
    labels: Literal["shifted", "as they are", "none"],
    label: str | None = None,
    label_pad: Any = -100,
    labelling: Labelling = NO_LABELS,
    **fields: Any,
) -> Flat:
    """Batches of the columns that the collator's tokenizer would pad, `label`, and those of `pad_values`.

    fields: those of `Flat.of`. Raises TypeError or ValueError, and FallBack for packed rows that must be taken apart.
    """
    for problem in not_a_tokenizer(collator):
        raise TypeError(problem)
    option = collator.padding_free
    if option is not True and not isinstance(option, Flattening):
        raise TypeError(f"padding_free must be True, False or a quadrat.Flattening, not {option!r}")
    how = Flattening() if option is True else flattening_of(option)
    check_flattening(how, collator.pad_to_multiple_of)
    names = names_of(features)
    if names is None:
        raise ValueError("padding_free needs a list of features, one mapping per row, and at least one row")
    tokenizer = collator.tokenizer
    for place in ("pad_to_multiple_of", "align_to", "total_length"):
        if getattr(how, place, collator.pad_to_multiple_of) is not None and tokenizer.pad_token_id is None:
            raise ValueError(f"{place} needs a pad token: set tokenizer.pad_token")
    if how.align_to is not None and labels == "none" and labelling.make is not None:
        raise ValueError("align_to cannot be used with mlm: mask first, then give the batch to quadrat.align")
    pads = {"token_type_ids": tokenizer.pad_token_type_id, "special_tokens_mask": 1, **(collator.pad_values or {})}
    extra = {name: pads[name] for name in names if name in pads and name not in (label, *labelling.omits)}
    if MAIN not in names:
        raise ValueError(f"padding_free joins '{MAIN}', which is missing; the features have {list(names)}")
    joined = tuple(collator.join_columns or ())
    known = (MAIN, label, "attention_mask", *labelling.omits, *extra, *joined)
    packed, unknown = is_packed(features), [name for name in names if name not in known]
    if packed and unknown != [SEQ_LENGTHS]:
        raise FallBack("packed rows have other columns")
    if unknown and not packed:
        raise ValueError(
            f"padding_free cannot join column '{unknown[0]}': remove it, or, if it has one number per token, give "
            f"pad_values={{'{unknown[0]}': value}}; if it has rows of another number, join_columns=('{unknown[0]}',)"
        )
    omitted = labelling.omits if labelling.make is None else ()  # others are read
    return Flat.of(
        collator,
        framework,
        how,
        extra,
        labels=labels,
        label=label,
        input_pad=tokenizer.pad_token_id or 0,
        label_pad=label_pad,
        labelling=labelling,
        packed=packed,
        only=("attention_mask", *omitted, *joined),
        **fields,
    )


def flatten(collator: Any, features: Any, spec: Flat) -> Any:
    """The flattened batch of these features.

    Raises FallBack for packed rows that must be taken apart. For all else that no kernel reads: what reading the
    features raises, or a ValueError that says what to give.
    """
    try:
        return spec.make(collator, features)
    except FallBack as reason:
        if spec.options.packed:
            raise
        why = reason.args
    rows = plain(features)
    try:
        refuse(collator, spec, rows, why)
    except Exception as error:
        raise_clearer(error, rows, collator)


def refuse(collator: Any, spec: Flat, features: Any, why: Reason) -> NoReturn:
    """Raise why no kernel flattens these features, and what to give: TypeError for rows, KeyError, else ValueError."""
    options = spec.options
    for name in options.column_options.joined:
        check_rows(collator, name, features)
    label = () if options.label is None else (options.label,)
    lengths, extra = {}, dict(options.extra)
    for name in (MAIN, *label, *extra):
        try:
            source = source_of([feature[name] for feature in features])
            source.joined(None, "np")
        except (TypeError, OverflowError) as error:
            raise type(error)(f"column '{name}': {error}") from error
        lengths[name] = source.lengths
    tokens = lengths[MAIN]
    for name in (*(label if options.padded or options.labels == "as they are" else ()), *extra):
        for row in np.flatnonzero(lengths[name] != tokens):
            where = f"column '{name}', row {row} has length {lengths[name][row]} where '{MAIN}' has {tokens[row]}"
            raise ValueError(f"{where}; give one value per token")
    for row in np.flatnonzero(tokens == 0) if options.padded and options.labels == "shifted" else ():
        raise ValueError(f"column '{MAIN}', row {row} is empty, and a separator has no place in it; leave it out")
    # Raises ValueError where rows are longer than the batch.
    place = options.flattening._replace(position_ids_start=0)
    layout_of_rows(place, tokens, int(tokens.sum()), spec.multiple)
    raise ValueError(reason_text(*why))
