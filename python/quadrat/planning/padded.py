"""`PreTrainedTokenizerBase.pad` on columns: the same decisions, without its loop over rows.

Written against transformers 4.57 and 5.x: `pad`, `_pad`, `_get_padding_truncation_strategies` of
`PreTrainedTokenizerBase` and `BatchEncoding.convert_to_tensors`. A batch needs two compiled calls: one reads what the
rows are made of, one writes the outputs. The plan in between is made once per key: `_pad` as a table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from transformers import BatchEncoding
from transformers.utils.generic import to_py_obj

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.input.rows import each_of
from quadrat.installed.behaviour import pad_warns_of_fast_tokenizers
from quadrat.planning import plan_cache
from quadrat.planning.extra_columns import extra_kind, require_extra_columns
from quadrat.planning.fallback import AlwaysFallBack, FallBack, or_fall_back, pads_its_own_way, rounded_up
from quadrat.planning.plan_cache import Plan, PlanKey, check_device, collected, key_of, planned, run_steps
from quadrat.support.memory import BOOL, INT64, Framework

FAST_WARNING = "Asking-to-pad-a-fast-tokenizer"


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


class Choices(NamedTuple):
    """Columns of multiple choice: each example has a row for each choice."""

    names: tuple[str, ...]
    columns: _core.Columns
    per_example: int  # how many choices each has
    label: str  # the column with one number for each example
    absent: str  # the one that no example has
    facts: tuple[plan_cache.Fact, ...] | None  # what else batches like this one depend on; None where that is not known


def pad_features(
    collator: Any,
    features: Any,
    framework: Framework,
    options: plan_cache.PadOptions,
    *,
    choices: Choices | None = None,
    label: tuple[LabelColumn, Any] | None = None,
    renames: tuple[str, ...] = (),
    labelling: plan_cache.Labelling | None = None,
    remembers: bool = True,
) -> Any:
    """The columns of a batch, padded as the collator's tokenizer would, keys in the reference's order.

    Args:
        choices: columns in place of features; those that the kernels do not know make it fall back. A dict results.
        label: the column of labels, and what fills its gaps.
        renames: columns that come out as `labels`.
        labelling: how `labels` are made from the padded ids.
        remembers: whether batches like this one may take a recipe from now on, and be deferred where the collator's
            option says so; not where more is done to them after.

    Raises FallBack, and ValueError for a column of `pad_values` that does not pad.
    """
    tokenizer, pad_values = collator.tokenizer, getattr(collator, "pad_values", None)
    check_tokenizer(tokenizer)
    names, columns = _collected(features, pad_values) if choices is None else (choices.names, choices.columns)
    column, label_value = (None, None) if label is None else label
    side = tokenizer.padding_side if options.padding_side is None else options.padding_side
    if side not in ("left", "right"):
        raise FallBack("unknown padding_side", "set tokenizer.padding_side to 'right' or 'left'")
    inputs = tokenizer.model_input_names
    main = inputs[0]
    if main not in names:
        raise FallBack(f"no column '{main}' to pad by", f"give every row '{main}'")
    index = names.index(main)
    pads, width, fixed = _width(collator, options, columns.longest(index), column)
    notice = functools.partial(_strategies, options) if options.verbose and plan_cache.asks_tokenizer(options) else None
    multiple = options.pad_to_multiple_of or 1 if pads else 1
    made, labelling_facts = (None, ()) if labelling is None else (labelling.make(names), labelling.facts())
    asked = PaddedOptions(
        main,
        pads,
        "attention_mask" in inputs if options.return_attention_mask is None else options.return_attention_mask,
        column,
        () if pad_values is None else tuple((name, type(value)) for name, value in pad_values.items()),
        renames,
        () if labelling is None else tuple(name for name in labelling.omits if name in names),
        "" if made is None else "fill" if type(made) is int else "labels",
    )
    key = key_of(names, columns, framework, asked, (index, width))
    plan = padded_plan(key)
    layout = col.BatchLayout(width, multiple, side == "left", choices=0 if choices is None else choices.per_example)
    values: dict[str, Any] = {}
    held: dict[str, Any] = {}
    batch: Any = None
    refused = None if plan.refusal is None else FallBack(*plan.refusal)
    if refused is None:
        check_device(framework)
        values = _values(tokenizer, names, asked, pad_values)
        if column is not None:
            values[column.output] = label_value if type(label_value) is int else None
        if made is not None:
            values["labels"] = made
        if plan.held and choices is not None:
            raise FallBack(f"columns {list(plan.held.values())} do not pad or stack", "give equal rows of numbers")
        held = {  # before the steps: what they draw must be kept
            name: _reference_column(source, features, framework, arrays=columns.describe(index)[1] & col.MEMORY_ROWS)
            for name, source in plan.held.items()
        }
        deferred = remembers and collator.deferred and not held and choices is None
        try:
            batch = run_steps(columns, plan.steps, values, framework, layout, deferred=deferred)
        except plan_cache.StepFailed as reason:
            refused = reason
    if remembers and not held:
        recipe: dict[str, Any] = {
            "wrapper": BatchEncoding,
            "attributes": plan_cache.EMPTY_ENCODING,
            "deferred": deferred_batch if collator.deferred else None,
        }
        if choices is not None:
            recipe = {"plain": choices.label, "absent": (choices.absent,)}
        facts = plan_cache.padding_facts(collator, options), labelling_facts, () if choices is None else choices.facts
        plan_cache.remember(
            collator,
            key,
            plan,
            values,
            plan_cache.joined_facts(*facts),
            falls_back=plan_cache.falls_back_plainly(collator),
            failed=plan.refusal is None and refused is not None,
            main=main,
            layout=layout if fixed else layout._replace(width=-1),
            **recipe,
            notice=notice,
        )
    if refused is not None:
        _raise_for(refused, pad_values, asked.omits)
    if notice is not None:
        notice(collator)  # the reference, where it makes the batch, warns by itself
    return {**batch, **held} if held else batch


def require_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for what is not a tokenizer."""
    names = ("pad", "padding_side", "model_input_names")
    if isinstance(tokenizer, type) or not all(hasattr(tokenizer, name) for name in names):
        raise FallBack(f"a {type(tokenizer).__name__} is not a tokenizer", "give a tokenizer of transformers")


def warns_of_fast(tokenizer: Any) -> bool:
    """Whether the reference will warn, once, that a fast tokenizer has a faster method than `pad`."""
    return (
        pad_warns_of_fast_tokenizers()
        and tokenizer.__class__.__name__.endswith("Fast")
        and not tokenizer.deprecation_warnings.get(FAST_WARNING, False)
    )


def check_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for a tokenizer that pads in its own way."""
    cls = type(tokenizer)
    if (
        not plan_cache.is_pad(getattr(cls, "pad", None))
        or cls._pad is not plan_cache.PAD_ONE
        or cls._get_padding_truncation_strategies is not plan_cache.STRATEGIES
    ):
        raise AlwaysFallBack(*pads_its_own_way(cls))
    if not plan_cache.METHODS.isdisjoint(tokenizer.__dict__):
        raise FallBack(f"{cls.__name__} pads in its own way", "do not replace its methods that pad")


def _collected(features: Any, pad_values: Mapping[str, Any] | None) -> tuple[tuple[str, ...], _core.Columns]:
    names, columns = collected(features)
    if not all(isinstance(name, str) for name in names):
        raise FallBack("names of columns are not strings", "give strings")
    require_extra_columns(pad_values, names, features)
    return names, columns


def _width(
    collator: Any, options: plan_cache.PadOptions, longest: int, label: LabelColumn | None
) -> tuple[bool, int, bool]:
    """Whether the reference pads, to how many tokens, and whether these are the same for all batches."""
    rounded_up(0, options.pad_to_multiple_of)  # raises where the reference may fail even without padding
    strategy: Any = "longest"
    limit: Any = None
    if plan_cache.asks_tokenizer(options):
        with or_fall_back("the padding options are refused"):
            strategy, _, limit, _ = _strategies(options, collator, verbose=False)
        if type(limit) is not int and limit is not None:
            raise FallBack("max_length is not an int", "give an int, or None")
    pads, fixed = strategy != "do_not_pad", limit is not None and strategy == "max_length"
    if not pads and options.pad_to_multiple_of is not None and label is not None and label.action == col.PAD_OWN:
        raise FallBack("the labels are padded where the tokens are not", "leave out pad_to_multiple_of")
    width: int = limit if fixed else longest
    if pads:
        width = rounded_up(width, options.pad_to_multiple_of)
        if width < longest:
            raise FallBack("max_length is below the longest row", "truncate the rows when you tokenize them")
    return pads, width, fixed


def _strategies(options: plan_cache.PadOptions, collator: Any, *, verbose: bool = True) -> Any:
    """What the tokenizer makes of the options; it warns of them as the reference does for each batch."""
    given = {"padding": options.padding, "max_length": options.max_length, "verbose": verbose}
    return collator.tokenizer._get_padding_truncation_strategies(**given)


def _values(
    tokenizer: Any, names: tuple[str, ...], options: PaddedOptions, pad_values: Mapping[str, Any] | None
) -> dict[str, Any]:
    values: dict[str, Any] = {"attention_mask": 0, "special_tokens_mask": 1}
    if options.pads:
        pad_token_id = tokenizer.pad_token_id
        if pad_token_id is None or pad_token_id < 0:
            raise FallBack("the tokenizer has no pad token", "set tokenizer.pad_token")
        values[options.main] = pad_token_id
        if "token_type_ids" in names:
            values["token_type_ids"] = tokenizer.pad_token_type_id
    return {**values, **(pad_values or {})}


def _raise_for(reason: FallBack, pad_values: Mapping[str, Any] | None, omits: tuple[str, ...]) -> NoReturn:
    if isinstance(reason, plan_cache.StepFailed):
        reason.raise_if_words(omits)
        if pad_values is not None and (name := reason.step[0]) in pad_values:
            said = f"padded with {pad_values[name]!r}: {col.explain(reason.failure)}"
            raise ValueError(f"pad_values: column '{name}' {said}")
    raise reason


def _reference_column(name: str, features: Sequence[Mapping[str, Any]], framework: Framework, *, arrays: int) -> Any:
    """A column that is not padded depends on no other: the reference's own conversion, for it alone."""
    values = [feature[name] for feature in each_of(features)]
    with or_fall_back(f"column '{name}' does not stack", "give all its rows one shape, or remove it"):
        return BatchEncoding({name: to_py_obj(values) if arrays else values}, tensor_type=framework)[name]


@planned
def padded_plan(key: PlanKey) -> Plan:
    """What becomes of the columns."""
    names, options, shapes = key.names, key.options, col.column_shapes(key.signature)
    main = names.index(options.main)
    forms, first_form, kinds, equal, _, _ = shapes[main]
    # In lists the reference looks at the first number; arrays it turns into lists first.
    arrays = bool(first_form & col.MEMORY_ROWS)
    if not arrays and (forms & ~col.PYTHON_ROWS or kinds != col.PYTHON_INTS):
        empty = not kinds and not forms & ~col.PYTHON_ROWS
        why = (
            ("has empty rows only", "leave them out")
            if empty
            else ("is not made of lists of ints", "give lists of ints")
        )
        raise FallBack(f"column '{options.main}' {why[0]}", why[1])
    if _is_padded(options.main, True):
        raise FallBack(f"the tokenizer pads by '{options.main}'", "list the token ids first in model_input_names")
    if not options.pads and not equal:
        raise FallBack("rows of different lengths without padding", "set padding=True")
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
            raise FallBack("column 'labels' does not stack", "remove it: the collator makes labels")
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
            raise FallBack(f"column '{label.name}' is not made of ints", "give one int for each example")
        return label.output, index, col.NUMBERS, INT64
    known = col.LIST if label.lists and shape.first_form == col.LIST else col.ROWS
    if shape.forms & ~known or not shape.kinds or shape.kinds & ~col.INTS:
        raise FallBack(f"column '{label.name}' is not made of rows of ints", "give lists of ints")
    if label.action == col.STACK and (shape.forms != col.LIST or not shape.equal):
        raise FallBack(f"column '{label.name}' is not made of lists of one length", "set padding=True")
    return label.output, index, label.action, INT64


def _renamed(steps: list[col.Step], renames: tuple[str, ...]) -> list[col.Step]:
    """The columns to rename come last, as `labels`."""
    for name in renames:
        names = [step[0] for step in steps]
        if name in names and "labels" in names:  # one overwrites the other, but may fail first
            raise FallBack(f"both '{name}' and 'labels' are there", "remove one of the two columns")
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
        raise FallBack(f"column '{name}' differs in length from the tokens", "give one number for each token")
    # The reference cannot add a list to a tuple.
    allowed = col.ROWS if arrays else col.PYTHON_ROWS if shape.full else col.LIST
    kind = None if shape.forms & ~allowed else col.inferred_kind(shape.kinds, float_kind)
    if kind is None:
        raise FallBack(f"column '{name}' holds something else than rows of numbers", "give lists of numbers")
    return INT64 if kind == BOOL and not shape.full else kind


def _stacked(name: str, shape: col.ColumnShape, arrays: bool, float_kind: int | None) -> tuple[int, int]:
    kind = col.inferred_kind(shape.kinds, float_kind)
    # Beside arrays, tensors of one number become Python numbers first.
    if kind is not None and (shape.forms == col.NUMBER or (arrays and shape.forms == col.TENSOR_NUMBER)):
        return col.NUMBERS, kind
    if kind is not None and shape.forms == col.SCALAR and shape.kinds in col.KEPT_KINDS:
        keeps = not arrays or _keeps_numpy_numbers()
        return col.NUMBERS, shape.kinds.bit_length() - 1 if keeps else kind
    if kind is not None and shape.equal and not shape.forms & ~(col.ROWS if arrays else col.PYTHON_ROWS) & ~col.DEEP:
        return col.STACK, kind
    if not arrays and shape.equal and shape.forms == col.ARRAY | col.DEEP and shape.kinds in col.KEPT_KINDS:
        return col.STACK, shape.kinds.bit_length() - 1
    if name == "attention_mask" and shape.forms & (col.OTHER | col.DEEP):
        raise FallBack("an attention mask of more dimensions", "give one number for each token")
    return col.HOLD, 0


def _extra(name: str, shape: col.ColumnShape, value_type: type, float_kind: int | None) -> tuple[int, int]:
    """A column of `pad_values`: to the width of the batch where it has its lengths, else to its own."""
    kind = extra_kind(shape.forms, shape.kinds, float_kind, value_type)
    if kind is None:
        raise ValueError(f"pad_values: column '{name}' is not made of rows of numbers of one kind")
    return col.PAD if shape.aligned else col.PAD_OWN, kind
