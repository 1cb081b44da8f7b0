"""`PreTrainedTokenizerBase.pad` on columns: the same decisions, without its loop over rows.

Written against transformers 4.57 and 5.x: `pad`, `_pad`, `_get_padding_truncation_strategies` of
`PreTrainedTokenizerBase` and `BatchEncoding.convert_to_tensors`. A batch needs two compiled calls: one reads what the
rows are made of, one writes the outputs. The plan in between is made once per key.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from transformers import BatchEncoding
from transformers.utils.generic import to_py_obj

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.input.rows import each_of
from quadrat.installed.behaviour import pad_warns_of_fast_tokenizers
from quadrat.planning import plan_cache
from quadrat.planning.extra_columns import require_extra_columns
from quadrat.planning.fallback import AlwaysFallBack, FallBack, or_fall_back, rounded_up
from quadrat.planning.labels import Labelling, refuse_words
from quadrat.planning.padded_plan import LabelColumn, PaddedOptions, padded_plan
from quadrat.planning.plan import check_device, key_of, run_steps
from quadrat.support.memory import Framework

FAST_WARNING = "Asking-to-pad-a-fast-tokenizer"


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
    labelling: Labelling | None = None,
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
    left, inputs = _pads_left(tokenizer, options), tokenizer.model_input_names
    main = inputs[0]
    if main not in names:
        raise FallBack(f"no column '{main}' to pad by")
    index = names.index(main)
    pads, limit = _limit(tokenizer, options)
    notice = functools.partial(_notice, options) if options.verbose and plan_cache.asks_tokenizer(options) else None
    width = columns.longest(index) if limit is None else limit
    if pads:
        width = rounded_up(width, options.pad_to_multiple_of)
        if width < columns.longest(index):
            raise FallBack("max_length is below the longest row")
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
    layout = col.BatchLayout(width, multiple, left, choices=0 if choices is None else choices.per_example)
    values: dict[str, Any] = {}
    held: dict[str, Any] = {}
    batch: Any = None
    if plan.refusal is None:
        check_device(framework)
        values = _values(tokenizer, names, asked, pad_values)
        if column is not None:
            values[column.output] = label_value if type(label_value) is int else None
            if column.action == col.PAD_OWN and not pads and options.pad_to_multiple_of is not None:
                raise FallBack("the labels are padded where the tokens are not")
        if made is not None:
            values["labels"] = made
        if plan.held and choices is not None:
            raise FallBack(f"columns {list(plan.held.values())} are not ones the kernels know")
        held = {  # before the steps: what they draw must be kept
            name: _reference_column(source, features, framework, arrays=columns.describe(index)[1] & col.MEMORY_ROWS)
            for name, source in plan.held.items()
        }
        deferred = remembers and collator.deferred and not held and choices is None
        batch = run_steps(columns, plan.steps, values, framework, layout, deferred=deferred)
    if remembers and not held:
        recipe: dict[str, Any] = (
            {"plain": choices.label, "absent": (choices.absent,)}
            if choices is not None
            else {
                "wrapper": BatchEncoding,
                "attributes": plan_cache.EMPTY_ENCODING,
                "deferred": deferred_batch if collator.deferred else None,
            }
        )
        facts = plan_cache.padding_facts(collator, options), labelling_facts, () if choices is None else choices.facts
        plan_cache.remember(
            collator,
            key,
            plan,
            values,
            plan_cache.joined_facts(*facts),
            falls_back=plan_cache.falls_back_plainly(collator),
            failed=isinstance(batch, tuple),
            main=main,
            layout=layout if limit is not None else layout._replace(width=-1),
            **recipe,
            notice=notice,
        )
    if plan.refusal is not None:
        raise FallBack(plan.refusal)
    if isinstance(batch, tuple):
        _raise_for(plan.steps, batch, pad_values, asked.omits)
    if notice is not None:
        notice(collator)  # the reference, where it makes the batch, warns by itself
    return {**batch, **held} if held else batch


def require_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for what is not a tokenizer."""
    names = ("pad", "padding_side", "model_input_names")
    if isinstance(tokenizer, type) or not all(hasattr(tokenizer, name) for name in names):
        raise FallBack(f"a {type(tokenizer).__name__} is not a tokenizer")


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
        raise AlwaysFallBack(f"{cls.__name__} pads in its own way")
    if not plan_cache.METHODS.isdisjoint(tokenizer.__dict__):
        raise FallBack(f"{cls.__name__} pads in its own way")


def _collected(features: Any, pad_values: Mapping[str, Any] | None) -> tuple[tuple[str, ...], _core.Columns]:
    collected = col.collect(features)
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the same keys")
    if not all(isinstance(name, str) for name in collected[0]):
        raise FallBack("a BatchEncoding gives its values only by keys that are strings")
    require_extra_columns(pad_values, collected[0], features)
    return collected


def _pads_left(tokenizer: Any, options: plan_cache.PadOptions) -> bool:
    side = tokenizer.padding_side if options.padding_side is None else options.padding_side
    if side not in ("left", "right"):
        raise FallBack("unknown padding_side")
    return bool(side == "left")


def _limit(tokenizer: Any, options: plan_cache.PadOptions) -> tuple[bool, int | None]:
    """Whether the reference pads, and to which length in tokens; None: to the longest row."""
    rounded_up(0, options.pad_to_multiple_of)  # raises where the reference may fail even without padding
    if not plan_cache.asks_tokenizer(options):
        return True, None
    with or_fall_back("the padding options are refused"):
        strategy, _, limit, _ = tokenizer._get_padding_truncation_strategies(**_asked(options), verbose=False)
    if type(limit) is not int and limit is not None:
        raise FallBack("max_length is no int")
    return strategy != "do_not_pad", limit if strategy == "max_length" else None


def _notice(options: plan_cache.PadOptions, collator: Any) -> None:
    """Warns of the options as the reference does for each batch."""
    collator.tokenizer._get_padding_truncation_strategies(**_asked(options), verbose=True)


def _asked(options: plan_cache.PadOptions) -> dict[str, Any]:
    return {"padding": options.padding, "max_length": options.max_length}


def _values(
    tokenizer: Any, names: tuple[str, ...], options: PaddedOptions, pad_values: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What fills the gaps of each column but the labels."""
    values: dict[str, Any] = {"attention_mask": 0, "special_tokens_mask": 1}
    if options.pads:
        pad_token_id = tokenizer.pad_token_id
        if pad_token_id is None or pad_token_id < 0:
            raise FallBack("the tokenizer has no pad token")
        values[options.main] = pad_token_id
        if "token_type_ids" in names:
            values["token_type_ids"] = tokenizer.pad_token_type_id
    return {**values, **(pad_values or {})}


def _raise_for(
    steps: tuple[col.Step, ...],
    failure: tuple[int, int, int, int],
    pad_values: Mapping[str, Any] | None,
    omits: tuple[str, ...],
) -> NoReturn:
    step, code, row, position = failure
    name = steps[step][0]
    if pad_values is not None and name in pad_values:
        raise ValueError(
            f"pad_values: column '{name}' padded with {pad_values[name]!r}: {col.explain((code, row, position))}"
        )
    if steps[step][2] == col.LABELS:
        refuse_words(omits, (code, row, position))
    raise FallBack(f"column '{name}': {col.explain((code, -1, -1))}")


def _reference_column(name: str, features: Sequence[Mapping[str, Any]], framework: Framework, *, arrays: int) -> Any:
    """A column that is not padded depends on no other: the reference's own conversion, for it alone."""
    values = [feature[name] for feature in each_of(features)]
    with or_fall_back(f"column '{name}' does not stack"):
        return BatchEncoding({name: to_py_obj(values) if arrays else values}, tensor_type=framework)[name]
