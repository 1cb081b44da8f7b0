"""`PreTrainedTokenizerBase.pad` on columns: what it would decide, without its loop over rows.

Written against transformers 4.57 and 5.x: `pad`, `_pad`, `_get_padding_truncation_strategies` of
`PreTrainedTokenizerBase` and `BatchEncoding.convert_to_tensors`. A batch costs two compiled calls: what it is made of,
and the outputs. The decision in between depends on a short signature only, so it is taken once per kind of batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from transformers import BatchEncoding
from transformers.utils.generic import to_py_obj

from quadrat import _core
from quadrat._memory import BOOL, INT64, Framework, NotOnCpu, default_float_kind, interop, require_cpu_default
from quadrat.collators import recall
from quadrat.collators._labelling import Labelling, refuse_words
from quadrat.collators.base import HandOver
from quadrat.collators.further import further_kind
from quadrat.collators.recall import PadOptions, remember
from quadrat.ingest import (
    HOLD,
    INTS,
    LABELS,
    LIST,
    MASK,
    MEMORY_ROWS,
    NUMBER,
    NUMBERS,
    OTHER,
    PAD,
    PAD_OWN,
    PYTHON_INTS,
    PYTHON_ROWS,
    ROWS,
    STACK,
    ColumnShape,
    collect,
    column_shapes,
    explain,
    inferred_kind,
)


class LabelColumn(NamedTuple):
    """The column of labels: set aside, made int64, last in the batch."""

    name: str | None  # None: there is none, and the output is None
    output: str
    action: int  # PAD: to the width of the batch, PAD_OWN: to its own longest row, STACK: as it is, NUMBERS, HOLD: None
    lists: bool = False  # after a list only lists may follow


class Situation(NamedTuple):
    """All that the decision about a batch depends on."""

    names: tuple[str, ...]
    signature: bytes
    main: str  # the column the batch is padded by, usually input_ids
    pads: bool  # False: padding=False or "do_not_pad"
    makes_mask: bool  # the tokenizer's model_input_names list attention_mask
    framework: Framework
    float_kind: int | None  # of Python floats
    label: LabelColumn | None
    further: tuple[tuple[str, type], ...]  # pad_values: column and type of the value
    renames: tuple[str, ...]  # columns that come out as labels
    omits: tuple[str, ...]  # columns that are looked at, and do not come out
    derives: str  # labels made from the padded ids: "" for none, "fill" for a copy with other padding, else "labels"


class Decision(NamedTuple):
    """What to do: steps for `_core.Columns.run`, or the reason to hand over."""

    steps: tuple[tuple[str, int, int, int], ...]
    held: dict[str, str]  # output -> column of those that the reference's own conversion makes, one by one
    refusal: str | None


_decisions: dict[Situation, Decision] = {}
_MOST_DECISIONS = 1024


def pad_features(
    collator: Any,
    features: Any,
    framework: Framework,
    options: PadOptions,
    *,
    label: tuple[LabelColumn, Any] | None = None,
    renames: tuple[str, ...] = (),
    labelling: Labelling | None = None,
    remembers: bool = True,
) -> dict[str, Any]:
    """The columns of a batch, padded as the collator's tokenizer would, keys in the reference's order.

    Args:
        collator: what holds tokenizer and pad_values.
        features: one mapping per row.
        framework: of the result.
        options: what the tokenizer is asked to do.
        label: the column of labels, and what fills its gaps.
        renames: columns that come out as `labels`.
        labelling: how `labels` are made from the padded ids.
        remembers: whether batches like this one may take a recipe from now on; not where more is done to them after.

    Raises:
        HandOver: when the result cannot be proven to be the reference's.
        ValueError: for a column of `pad_values` that does not pad.
    """
    check_tokenizer(collator.tokenizer)
    collected = collect(features)
    if collected is None:
        raise HandOver("features are not a list of mappings with the same keys")
    return pad_columns(
        collator,
        features,
        collected,
        framework,
        options,
        label=label,
        renames=renames,
        labelling=labelling,
        remembers=remembers,
    )


def pad_columns(
    collator: Any,
    features: Any,
    collected: tuple[tuple[str, ...], _core.Columns],
    framework: Framework,
    options: PadOptions,
    *,
    label: tuple[LabelColumn, Any] | None = None,
    renames: tuple[str, ...] = (),
    labelling: Labelling | None = None,
    remembers: bool = True,
) -> dict[str, Any]:
    """`pad_features` for names and columns already there.

    features: the mappings that hold these rows, or None; columns that the kernels do not know are handed over then.
    """
    names, columns = collected
    column, label_value = (None, None) if label is None else label
    tokenizer, pad_values = collator.tokenizer, getattr(collator, "pad_values", None)
    side = tokenizer.padding_side
    left = side == "left"
    if not left and side != "right":
        raise HandOver("unknown padding_side")
    inputs = tokenizer.model_input_names
    main = inputs[0]
    if main not in names:
        raise HandOver(f"no column '{main}' to pad by")
    index = names.index(main)
    pads, width = _width(tokenizer, options, columns.longest(index))
    made = None if labelling is None else labelling.make(names)
    situation = Situation(
        names,
        columns.signature(index, width),
        main,
        pads,
        "attention_mask" in inputs,
        framework,
        default_float_kind(framework),
        column,
        () if pad_values is None else tuple((name, type(value)) for name, value in pad_values.items()),
        renames,
        () if labelling is None else tuple(name for name in labelling.omits if name in names),
        "" if made is None else "fill" if type(made) is int else "labels",
    )
    decision = _decisions.get(situation)
    if decision is None:
        decision = _new_decision(situation)
    if decision.refusal is not None:
        raise HandOver(decision.refusal)
    if framework == "pt":
        check_device()
    values = _fills(tokenizer, names, main, pads)
    if pad_values is not None:
        values.update(pad_values)
    if column is not None:
        values[column.output] = label_value if type(label_value) is int else None
        if column.action == PAD_OWN and not pads and options.pad_to_multiple_of is not None:
            raise HandOver("the labels are padded where the tokens are not")
    if made is not None:
        values["labels"] = made
    if decision.held and features is None:
        raise HandOver(f"columns {list(decision.held.values())} are not ones the kernels know")
    held = {  # before the steps: what they draw must be kept
        name: _reference_column(source, features, framework, arrays=columns.describe(index)[1] & MEMORY_ROWS)
        for name, source in decision.held.items()
    }
    multiple = options.pad_to_multiple_of if pads and options.pad_to_multiple_of is not None else 1
    shared = interop()
    batch = columns.run(decision.steps, values, shared, framework == "pt", width, multiple, left)
    if isinstance(batch, tuple):
        _refuse(decision, batch, pad_values, situation.omits)
    batch.update(held)
    facts = () if labelling is None else labelling.facts()
    if remembers and not held and facts is not None:
        remember(collator, framework, options, (names, situation.signature, decision.steps, values), facts)
    return batch


def check_tokenizer(tokenizer: Any) -> None:
    cls = type(tokenizer)
    if (
        getattr(cls, "pad", None) is not recall.PAD
        or cls._pad is not recall.PAD_ONE
        or cls._get_padding_truncation_strategies is not recall.STRATEGIES
        or not recall.METHODS.isdisjoint(tokenizer.__dict__)
    ):
        raise HandOver(f"{cls.__name__} pads in its own way")


def check_device() -> None:
    """Raises HandOver where torch would not make plain CPU tensors."""
    try:
        require_cpu_default()
    except NotOnCpu as error:
        raise HandOver(str(error)) from error


def _width(tokenizer: Any, options: PadOptions, longest: int) -> tuple[bool, int]:
    """Whether the reference pads, and to which length in tokens."""
    padding, max_length, multiple = options
    width: Any = longest
    if multiple is not None and (type(multiple) is not int or multiple <= 0):
        raise HandOver("pad_to_multiple_of is no positive int")
    if max_length is not None or not (padding is True or padding == "longest"):
        try:  # warns, and fails, just as the reference does
            strategy, _, limit, _ = tokenizer._get_padding_truncation_strategies(
                padding=padding, max_length=max_length, verbose=True
            )
        except Exception as error:
            raise HandOver("the padding options are refused") from error
        if type(limit) is not int and limit is not None:
            raise HandOver("max_length is no int")
        if strategy == "do_not_pad":
            return False, longest
        width = longest if strategy == "longest" else limit
    if multiple is not None:
        width = -(-width // multiple) * multiple
    if width < longest:
        raise HandOver("max_length is below the longest row")
    return True, width


def _fills(tokenizer: Any, names: tuple[str, ...], main: str, pads: bool) -> dict[str, Any]:
    """What fills the gaps of each column."""
    values: dict[str, Any] = {"attention_mask": 0, "special_tokens_mask": 1}
    if pads:
        pad_token_id = tokenizer.pad_token_id
        if pad_token_id is None or pad_token_id < 0:
            raise HandOver("the tokenizer has no pad token")
        values[main] = pad_token_id
        if "token_type_ids" in names:
            values["token_type_ids"] = tokenizer.pad_token_type_id
    return values


def _new_decision(situation: Situation) -> Decision:
    if len(_decisions) >= _MOST_DECISIONS:
        _decisions.clear()
    try:
        decision = _decide(situation)
    except HandOver as reason:
        decision = Decision((), {}, str(reason))
    _decisions[situation] = decision
    return decision


def _decide(situation: Situation) -> Decision:
    shapes = column_shapes(situation.signature)
    main = situation.names.index(situation.main)
    forms, first_form, kinds, equal, _, _ = shapes[main]
    # In lists the reference looks at the first number; arrays it turns into lists first.
    arrays = bool(first_form & MEMORY_ROWS)
    if not arrays and (forms & ~PYTHON_ROWS or kinds != PYTHON_INTS):
        raise HandOver(f"column '{situation.main}' is not made of lists of ints, arrays or tensors")
    if _is_padded(situation.main, True):
        raise HandOver(f"column '{situation.main}' is the one to pad by")
    if not situation.pads and not equal:
        raise HandOver("rows of different lengths without padding")
    further, label = dict(situation.further), situation.label
    steps: list[tuple[str, int, int, int]] = []
    for index, (name, shape) in enumerate(zip(situation.names, shapes, strict=True)):
        if label is not None and name == label.name:
            continue
        if name in further:
            steps.append((name, index, *_further(name, shape, further[name], situation)))
        elif situation.pads and (index == main or _is_padded(name, situation.makes_mask)):
            # What is left out in the end pads or fails in the reference before.
            steps.append((name, index, PAD, _padded_kind(name, shape, arrays, situation)))
        elif name not in situation.omits:
            steps.append((name, index, *_stacked(name, shape, arrays, situation)))
    if situation.makes_mask and "attention_mask" not in situation.names:
        steps.append(("attention_mask", main, MASK, INT64))
    if situation.derives:
        steps.append(_derived_step(situation, steps))
    decision = _renamed([step for step in steps if step[0] not in situation.omits], situation)
    if label is None:
        return decision
    return decision._replace(steps=(*decision.steps, _label_step(label, situation.names, shapes)))


def _label_step(label: LabelColumn, names: tuple[str, ...], shapes: list[ColumnShape]) -> tuple[str, int, int, int]:
    if label.name is None:
        return label.output, 0, HOLD, 0
    index = names.index(label.name)
    shape = shapes[index]
    if label.action == NUMBERS:
        if shape.forms != NUMBER or shape.kinds != PYTHON_INTS:
            raise HandOver(f"column '{label.name}' is not made of ints")
        return label.output, index, NUMBERS, INT64
    known = LIST if label.lists and shape.first_form == LIST else ROWS
    if shape.forms & ~known or not shape.kinds or shape.kinds & ~INTS:
        raise HandOver(f"column '{label.name}' is not made of rows of ints")
    if label.action == STACK and (shape.forms != LIST or not shape.equal):
        raise HandOver(f"column '{label.name}' is not made of lists of one length")
    return label.output, index, label.action, INT64


def _derived_step(situation: Situation, steps: list[tuple[str, int, int, int]]) -> tuple[str, int, int, int]:
    if any(step[0] == "labels" and step[2] == HOLD for step in steps):
        raise HandOver("the labels that are there stack in the reference's own way, if at all")
    main = situation.names.index(situation.main)
    return "labels", main, PAD if situation.derives == "fill" else LABELS, INT64


def _renamed(steps: list[tuple[str, int, int, int]], situation: Situation) -> Decision:
    names = [step[0] for step in steps]
    for name in situation.renames:
        if name in names and "labels" in names:  # one overwrites the other, but may fail first
            raise HandOver(f"both '{name}' and 'labels' are there")
        if name in names:
            at = names.index(name)
            steps.append(("labels", *steps.pop(at)[1:]))
            names.append("labels")
            del names[at]
    return Decision(tuple(steps), {step[0]: situation.names[step[1]] for step in steps if step[2] == HOLD}, None)


def _is_padded(name: str, makes_mask: bool) -> bool:
    return name in ("token_type_ids", "special_tokens_mask") or (makes_mask and name == "attention_mask")


def _padded_kind(name: str, shape: ColumnShape, arrays: bool, situation: Situation) -> int:
    if not shape.aligned:
        raise HandOver(f"column '{name}' differs in length from the tokens")
    allowed = ROWS if arrays else PYTHON_ROWS if shape.full else LIST  # the reference cannot add a list to a tuple
    kind = None if shape.forms & ~allowed else inferred_kind(shape.kinds, situation.float_kind)
    if kind is None:
        raise HandOver(f"column '{name}' holds rows or numbers the kernels do not know")
    return INT64 if kind == BOOL and not shape.full else kind


def _stacked(name: str, shape: ColumnShape, arrays: bool, situation: Situation) -> tuple[int, int]:
    kind = inferred_kind(shape.kinds, situation.float_kind)
    if kind is not None and shape.forms == NUMBER:
        return NUMBERS, kind
    if kind is not None and shape.equal and not shape.forms & ~(ROWS if arrays else PYTHON_ROWS):
        return STACK, kind
    if name == "attention_mask" and shape.forms & OTHER:
        raise HandOver("an attention mask of more dimensions")
    return HOLD, 0


def _further(name: str, shape: ColumnShape, value_type: type, situation: Situation) -> tuple[int, int]:
    """A column of `pad_values`: to the width of the batch where it has its lengths, else to its own."""
    kind = further_kind(shape.forms, shape.kinds, situation.float_kind, value_type)
    if kind is None:
        raise ValueError(f"pad_values: column '{name}' is not made of one-dimensional rows of numbers of one kind")
    return PAD if shape.aligned else PAD_OWN, kind


def _refuse(
    decision: Decision,
    failure: tuple[int, int, int, int],
    pad_values: Mapping[str, Any] | None,
    omits: tuple[str, ...],
) -> NoReturn:
    step, code, row, position = failure
    name = decision.steps[step][0]
    if pad_values is not None and name in pad_values:
        raise ValueError(
            f"pad_values: column '{name}' padded with {pad_values[name]!r}: {explain((code, row, position))}"
        )
    if decision.steps[step][2] == LABELS:
        refuse_words(omits, (code, row, position))
    raise HandOver(f"column '{name}': {explain((code, -1, -1))}")


def _reference_column(name: str, features: Sequence[Mapping[str, Any]], framework: Framework, *, arrays: int) -> Any:
    """A column that is not padded depends on no other: the reference's own conversion, for it alone."""
    values = [feature[name] for feature in features]
    try:
        return BatchEncoding({name: to_py_obj(values) if arrays else values}, tensor_type=framework)[name]
    except Exception as error:
        raise HandOver(f"column '{name}' does not stack") from error
