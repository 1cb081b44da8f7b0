"""`PreTrainedTokenizerBase.pad` on columns: what it would decide, without its loop over rows.

Written against transformers 4.57 and 5.x: `pad`, `_pad`, `_get_padding_truncation_strategies` of
`PreTrainedTokenizerBase` and `BatchEncoding.convert_to_tensors`. A batch costs two compiled calls: what it is made of,
and the outputs. The decision in between depends on a short signature only, so it is taken once per kind of batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from transformers import BatchEncoding
from transformers.utils.generic import to_py_obj

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input.columns import LABELS, MEMORY_ROWS, PAD_OWN, collect, explain
from quadrat.input.rows import each_of
from quadrat.planning import plan_cache
from quadrat.planning.decision import Decision, LabelColumn, Situation, decision_on
from quadrat.planning.fallback import AlwaysFallBack, FallBack, or_fall_back, rounded_up
from quadrat.planning.labels import Labelling, refuse_words
from quadrat.planning.plan_cache import Fact, PadOptions, remember_padded
from quadrat.support.memory import Framework, NotOnCpu, default_float_kind, interop, require_cpu_default


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
    deferred: bool = False,
) -> Any:
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
        deferred: whether a `DeferredBatch` may be the result; recipes make one where the collator's option says so.

    Raises:
        FallBack: when the result cannot be proven to be the reference's.
        ValueError: for a column of `pad_values` that does not pad.
    """
    check_tokenizer(collator.tokenizer)
    collected = collect(features)
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the same keys")
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
        deferred=deferred,
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
    deferred: bool = False,
) -> Any:
    """`pad_features` for names and columns already there.

    features: the mappings that hold these rows, or None; columns that the kernels do not know make it fall back then.
    """
    names, columns = collected
    column, label_value = (None, None) if label is None else label
    tokenizer, pad_values = collator.tokenizer, getattr(collator, "pad_values", None)
    side = tokenizer.padding_side
    left = side == "left"
    if not left and side != "right":
        raise FallBack("unknown padding_side")
    inputs = tokenizer.model_input_names
    main = inputs[0]
    if main not in names:
        raise FallBack(f"no column '{main}' to pad by")
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
    decision = decision_on(situation)
    facts: tuple[Fact, ...] | None = () if labelling is None else labelling.facts()
    if decision.refusal is not None:
        if remembers and facts is not None:
            remember_padded(collator, framework, options, (names, situation.signature, None, {}), facts)
        raise FallBack(decision.refusal)
    if framework == "pt":
        check_device()
    values = _fills(tokenizer, names, main, pads)
    if pad_values is not None:
        values.update(pad_values)
    if column is not None:
        values[column.output] = label_value if type(label_value) is int else None
        if column.action == PAD_OWN and not pads and options.pad_to_multiple_of is not None:
            raise FallBack("the labels are padded where the tokens are not")
    if made is not None:
        values["labels"] = made
    if decision.held and features is None:
        raise FallBack(f"columns {list(decision.held.values())} are not ones the kernels know")
    held = {  # before the steps: what they draw must be kept
        name: _reference_column(source, features, framework, arrays=columns.describe(index)[1] & MEMORY_ROWS)
        for name, source in decision.held.items()
    }
    multiple = options.pad_to_multiple_of if pads and options.pad_to_multiple_of is not None else 1
    shape = (width, multiple, left)
    batch = run_steps(columns, decision.steps, values, framework, shape, deferred=deferred and not held)
    failed = isinstance(batch, tuple)
    if remembers and not held and facts is not None:
        decided = names, situation.signature, decision.steps, values
        remember_padded(collator, framework, options, decided, facts, failed=failed)
    if failed:
        _refuse(decision, batch, pad_values, situation.omits)
    batch = {**batch, **held} if held else batch
    return batch


def run_steps(
    columns: _core.Columns,
    steps: tuple[tuple[str, int, int, int], ...],
    values: dict[str, Any],
    framework: Framework,
    shape: tuple[int, int, bool],
    *,
    deferred: bool,
) -> Any:
    """The outputs of a decision, as a dict or `DeferredBatch`; a tuple where a step failed.

    shape: width, multiple and whether rows are padded on the left.
    """
    factory = deferred_batch if deferred else None
    return columns.run(steps, values, interop(), framework == "pt", *shape, deferred=factory)


def require_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for what is not a tokenizer."""
    names = ("pad", "padding_side", "model_input_names")
    if isinstance(tokenizer, type) or not all(hasattr(tokenizer, name) for name in names):
        raise FallBack(f"a {type(tokenizer).__name__} is not a tokenizer")


def check_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for a tokenizer that pads in its own way."""
    cls = type(tokenizer)
    if (
        getattr(cls, "pad", None) is not plan_cache.PAD
        or cls._pad is not plan_cache.PAD_ONE
        or cls._get_padding_truncation_strategies is not plan_cache.STRATEGIES
    ):
        raise AlwaysFallBack(f"{cls.__name__} pads in its own way")
    if not plan_cache.METHODS.isdisjoint(tokenizer.__dict__):
        raise FallBack(f"{cls.__name__} pads in its own way")


def check_device() -> None:
    """Raises FallBack where torch would not make plain CPU tensors."""
    try:
        require_cpu_default()
    except NotOnCpu as error:
        raise FallBack(str(error)) from error


def _width(tokenizer: Any, options: PadOptions, longest: int) -> tuple[bool, int]:
    """Whether the reference pads, and to which length in tokens."""
    padding, max_length, multiple = options
    rounded_up(0, multiple)  # raises before the tokenizer is asked, which may warn
    width: Any = longest
    if max_length is not None or not (padding is True or padding == "longest"):
        with or_fall_back("the padding options are refused"):  # warns, and fails, just as the reference does
            strategy, _, limit, _ = tokenizer._get_padding_truncation_strategies(
                padding=padding, max_length=max_length, verbose=True
            )
        if type(limit) is not int and limit is not None:
            raise FallBack("max_length is no int")
        if strategy == "do_not_pad":
            return False, longest
        width = longest if strategy == "longest" else limit
    width = rounded_up(width, multiple)
    if width < longest:
        raise FallBack("max_length is below the longest row")
    return True, width


def _fills(tokenizer: Any, names: tuple[str, ...], main: str, pads: bool) -> dict[str, Any]:
    """What fills the gaps of each column."""
    values: dict[str, Any] = {"attention_mask": 0, "special_tokens_mask": 1}
    if pads:
        pad_token_id = tokenizer.pad_token_id
        if pad_token_id is None or pad_token_id < 0:
            raise FallBack("the tokenizer has no pad token")
        values[main] = pad_token_id
        if "token_type_ids" in names:
            values["token_type_ids"] = tokenizer.pad_token_type_id
    return values


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
    raise FallBack(f"column '{name}': {explain((code, -1, -1))}")


def _reference_column(name: str, features: Sequence[Mapping[str, Any]], framework: Framework, *, arrays: int) -> Any:
    """A column that is not padded depends on no other: the reference's own conversion, for it alone."""
    values = [feature[name] for feature in each_of(features)]
    with or_fall_back(f"column '{name}' does not stack"):
        return BatchEncoding({name: to_py_obj(values) if arrays else values}, tensor_type=framework)[name]
