"""Plans of all kinds of batches, and recipes for known kinds: one compiled call, if nothing of a plan has changed."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizer
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat.installed import imitated, originals
from quadrat.planning.fallback import FallBack, Why
from quadrat.planning.remembering import guarded_options
from quadrat.support import kinds, tensors
from quadrat.support.arrays import fill_value
from quadrat.support.columns import LABELS, BatchLayout, Failure, Step, explain
from quadrat.support.kinds import BFLOAT16, FLOAT16, Framework
from quadrat.support.memory import interop
from quadrat.support.tensors import NotOnCpu

# Kept from import time: quadrat does not imitate tokenizer classes, or patches of the base class, that differ.
PAD_ONE = PreTrainedTokenizerBase._pad
STRATEGIES = PreTrainedTokenizerBase._get_padding_truncation_strategies
METHODS = frozenset(("pad", "_pad", "_get_padding_truncation_strategies"))
_GETATTR = PreTrainedTokenizerBase.__getattr__
# How tokenizers without a Rust backend look up the id of a token: first among those that were added.
_LOOK_UPS = ("convert_tokens_to_ids", "_convert_token_to_id_with_added_voc")
_LOOK_UP = {name: getattr(PreTrainedTokenizer, name) for name in _LOOK_UPS}
_TYPE_ID = PreTrainedTokenizerBase.pad_token_type_id

# The wrapper and attributes of a batch that is a `BatchEncoding`.
ENCODING: dict[str, Any] = {"wrapper": BatchEncoding, "attributes": dict(BatchEncoding().__dict__)}

# What a plan depends on: (one of these, object, key, expected), see csrc/bindings/plan/recipe.hpp.
_FACTS = _core.FACTS
TYPE, ENTRY, ABSENT, ATTRIBUTE = _FACTS.TYPE, _FACTS.ENTRY, _FACTS.ABSENT, _FACTS.ATTRIBUTE
ITEMS, CALL, OWN, OWN_ABSENT, OWN_SET = _FACTS.ITEMS, _FACTS.CALL, _FACTS.OWN, _FACTS.OWN_ABSENT, _FACTS.OWN_SET
Fact = tuple[int, Any, Any, Any]


class PlanKey(NamedTuple):
    """All that a plan depends on."""

    names: tuple[str, ...]  # of the columns
    signature: bytes
    framework: Framework
    float_kind: int | None  # of Python floats
    options: Any  # hashable; each kind of batch has a type for them


class Plan(NamedTuple):
    """The steps of a kind of batch, or why it falls back."""

    steps: tuple[Step, ...] = ()
    held: dict[str, str] = {}  # noqa: RUF012 - output -> column of those that the reference's own conversion makes
    refusal: Why | None = None


def planned(plan: Callable[[PlanKey], Plan]) -> Callable[[PlanKey], Plan]:
    """Makes `plan`, a pure function of its key, answer once per key. A FallBack becomes the plan's refusal."""

    @functools.lru_cache(maxsize=1024)
    def answer(key: PlanKey) -> Plan:
        try:
            return plan(key)
        except FallBack as reason:
            return Plan(refusal=reason.args)

    return answer


_REMEDIES = {
    _core.CODES.ROW_TOO_LONG: "truncate the rows when you tokenize them",
    _core.CODES.NO_CONVERSION: "give all rows of the column one dtype",
    _core.CODES.OUT_OF_RANGE: "give numbers that the column's dtype holds",
    _core.CODES.WRONG_TYPE: "give all rows of the column one element type, for example floats alone",
    _core.CODES.CHANGED: "do not change rows while they are collated",
    _core.CODES.WRONG_LENGTH: "give one number for each token",
}


_TOO_LARGE: Failure = (_core.CODES.OUT_OF_RANGE, -1, -1)


def step_failed(collator: Any, names: tuple[str, ...], step: Step, failure: Failure) -> Why | None:
    """The reason to fall back when a step fails on values that the signature does not describe."""
    # The reference reads no column of words.
    if step[2] == LABELS and "word_ids" in names:
        raise ValueError(
            f"column 'word_ids': {explain(failure)}; each row needs one int, or None, for each of its tokens, as "
            "BatchEncoding.word_ids() gives them"
        )
    return f"column '{step[0]}': {explain((failure[0], -1, -1))}", _REMEDIES.get(failure[0])


def check_device(framework: Framework) -> None:
    """Raises FallBack where torch would not make plain CPU tensors."""
    if framework == "pt":
        try:
            tensors.require_plain_tensors()
        except NotOnCpu as error:
            raise FallBack(str(error), "collate where torch makes plain CPU tensors by default") from error


class Labelling(NamedTuple):
    """How labels come from ids, and how to tell that a recipe for them still holds; by default there are none."""

    # (collator, column names) -> a `_core.Labels`, or, with `fills`, the number that fills the gaps of a copy of ids.
    make: Callable[[Any, tuple[str, ...]], Any] | None = None
    fills: bool = False
    omits: tuple[str, ...] = ()  # columns that are looked at, and do not come out
    facts: tuple[Fact, ...] | None = ()

    @property
    def derives(self) -> str:
        """How, for the key of a plan: "" for none, "fill" for a copy with other padding, else "labels"."""
        return "" if self.make is None else "fill" if self.fills else "labels"


NO_LABELS = Labelling()


class Spec(NamedTuple):
    """All that is needed to make batches of one form; no collator, so that none keeps itself alive."""

    framework: Any  # a `Framework`; of collators that always fall back, "other" too
    plan: Callable[[PlanKey], Plan]
    options: Any = None  # that plans depend on, hashable
    names: tuple[str, ...] | None = None  # the columns that are read; None: all that the first feature has
    optional: str | None = None  # one more, where any feature has it
    joined: tuple[str, ...] = ()  # more; rows that have none, or None, are left out of them
    dense: tuple[str, ...] = ()  # columns whose arrays and tensors may have any strides
    absent: tuple[str, ...] = ()  # columns that the first feature must not have
    only: tuple[str, ...] | None = None  # with names: other columns that the first feature may have; None: any
    main: str | None = None  # the column to pad by
    bare: bool = False  # features are the rows of the one column, without mappings
    plain: str | None = None  # of multiple choice, the column with one value for each example
    layout: BatchLayout = BatchLayout(width=-1)
    # What the steps write, by output.
    values: Callable[[Any, PlanKey], dict[str, Any]] = lambda collator, key: {}
    labelling: Labelling = NO_LABELS
    hold: Callable[[str, Any, PlanKey], Any] | None = None  # the reference's conversion of a column of features
    failed: Callable[[Any, tuple[str, ...], Step, Failure], Why | None] = step_failed  # None: another recipe may try
    facts: tuple[Fact, ...] | None = None  # read before all else; None: not known, so nothing is remembered
    wrapper: type | None = None
    attributes: Mapping[str, Any] | None = None
    deferred: Callable[..., Any] | None = None
    check: Callable[[Any], Why | None] | None = None  # of features, before they are read
    mismatch: Why | None = None  # why features that are not of the form fall back
    finish: Callable[[Any, Any, Any], Any] | None = None  # (collator, batch, features) -> batch
    refusal: Why | None = None  # of all batches
    compared: bool = False  # whether some batches are compared with the reference's

    def decide(
        self, collator: Any, names: tuple[str, ...], signature: bytes
    ) -> tuple[tuple[Step, ...], dict[str, Any], Callable[[Any], Any] | None, Why | None]:
        """Steps, what they write, what makes the columns that they do not, and why such batches fall back."""
        key = PlanKey(names, signature, self.framework, kinds.default_float_kind(self.framework), self.options)
        steps, held, refusal = self.plan(key)
        if refusal is not None:
            return (), {}, None, refusal
        try:
            values = self.values(collator, key)
            if self.labelling.make is not None:
                values = {**values, "labels": self.labelling.make(collator, names)}
        except FallBack as reason:
            return (), {}, None, reason.args
        values = {name: _plain(value) for name, value in values.items()}
        for step in steps:
            if step[3] in (FLOAT16, BFLOAT16) and not _fits(values.get(step[0]), step[3]):
                failed = None if self.failed is None else self.failed(collator, names, step, _TOO_LARGE)
                return (), {}, None, failed or (f"column '{step[0]}': its padding does not fit its dtype", None)
        return steps, values, functools.partial(_held, self.hold, held, key) if held else None, None


def _plain(value: Any) -> Any:
    if type(value) in (int, float) or not isinstance(value, (numbers.Real, np.bool_)):
        return value
    return fill_value(value, None)


def _fits(padding: Any, kind: int) -> bool:
    """True if a number, or the first of what pads on axes, fits a float of two bytes; also where there is none."""
    number = padding[0] if type(padding) is tuple else padding
    try:
        return number is None or not isinstance(number, numbers.Real) or fill_value(number, kind) is not None
    except OverflowError:
        return False


def _held(hold: Any, columns: dict[str, str], key: PlanKey, features: Any) -> Any:
    try:
        return {output: hold(column, features, key) for output, column in columns.items()}
    except FallBack as reason:
        return reason.args


def make(collator: Any, spec: Spec, features: Any, columns: _core.Columns | None = None, *, counts: bool = True) -> Any:
    """The batch of `features`, or of their columns; others like it take one compiled call from now on."""
    torch = tensors.torch_facts_of_plain_tensors() if spec.framework == "pt" else ()
    if torch is None:
        check_device(spec.framework)
    calls = None if torch is None else [(CALL, call, None, result) for call, result in torch]
    known = joined_facts(spec.facts, spec.labelling.facts, calls)
    facts = known or ()
    if imitated.compares(twin := getattr(collator, "_imitates", "")):
        spec, facts = spec._replace(compared=True), (*facts, (ABSENT, imitated.DIFFERENCES, twin, None))
    recipe = _core.Recipe(spec, facts, interop())
    if columns is None:
        batch = recipe.make(collator, features, counts)
    else:
        batch = recipe.make_of(collator, features, spec.names or (), columns, counts)
    if batch is None:
        which = "the same keys" if spec.names is None else f"the columns {list(spec.names)}"
        why = f"features are not a list of plain mappings with {which}", "give dicts with the same keys"
        raise FallBack(*(spec.mismatch or why))
    # The facts are older than the spec, and still true: no other thread has changed one meanwhile, and left it so.
    if known is not None and columns is None and recipe.holds(collator):
        collator._remember(spec, recipe)
    if batch is False:
        raise FallBack("a row is longer than the batch may be", "truncate the rows when you tokenize them")
    if type(batch) is tuple:
        raise FallBack(*batch)
    return batch


class PadOptions(NamedTuple):
    """How a collator asks its tokenizer to pad; the defaults are those of `tokenizer.pad`."""

    padding: Any = True
    max_length: Any = None
    pad_to_multiple_of: Any = None
    padding_side: Any = None  # None: the tokenizer's own
    return_attention_mask: Any = None  # None: whether the tokenizer's model_input_names list it
    verbose: Any = True


def remember_fallback(collator: Any, framework: Any, why: Why, own: tuple[Fact, ...] | None) -> None:
    """Remember that the collator falls back for every batch, as long as its options and its tokenizer do not change.

    own: its own facts, read before that was decided.
    """
    tokenizer = getattr(collator, "tokenizer", None)
    cls = type(tokenizer)
    if tokenizer is None or not own:
        return
    facts = (
        *own,
        (TYPE, tokenizer, None, cls),
        *((ATTRIBUTE, cls, name, getattr(cls, name, None)) for name in sorted(METHODS) if hasattr(cls, name)),
    )
    spec = Spec(framework if framework in ("pt", "np") else "other", planned(lambda key: Plan()), refusal=why)
    collator._remember(spec, _core.Recipe(spec, facts, interop()))


def joined_facts(*facts: Sequence[Fact] | None) -> tuple[Fact, ...] | None:
    """All facts; None if some are not known."""
    joined: list[Fact] = []
    for one in facts:
        if one is None:
            return None
        joined += one
    return tuple(joined)


def own_facts(collator: Any) -> tuple[Fact, ...] | None:
    """The facts that all options have these values; None if one is not a plain attribute of the collator."""
    own, facts = collator.__dict__, list[Fact]()
    for name in guarded_options(type(collator)):
        if name not in own or (value := own[name]) is not getattr(collator, name):
            return None
        facts.append((OWN_SET, None, name, frozenset(value)) if type(value) is set else (OWN, None, name, value))
    return tuple(facts)


def padding_facts(collator: Any) -> tuple[Fact, ...] | None:
    """All that plans of padded batches depend on besides their key; None for tokenizers that keep it elsewhere."""
    tokenizer, own, extra = collator.tokenizer, own_facts(collator), columns_facts(collator)
    cls, state = type(tokenizer), getattr(tokenizer, "__dict__", {})
    kept: tuple[str, ...] = ("_special_tokens_map", "_pad_token_type_id", "padding_side", "model_input_names")
    kept = (*kept, *(("model_max_length",) if "model_max_length" in state else ()))
    plain = (
        state.keys() >= {*kept}
        and type(state["_special_tokens_map"]) is dict
        and type(state["model_input_names"]) is list
        # The pad token and its type id are looked up in the usual places, and the token is in the vocabulary.
        and originals.is_of(getattr(cls, "pad", None), originals.PAD)
        and cls._pad is PAD_ONE
        and cls.__getattr__ is _GETATTR
        and cls.pad_token_type_id is _TYPE_ID
        and not hasattr(cls, "pad_token_id")
        and "pad_token_id" not in state
        and (
            tokenizer.convert_ids_to_tokens(pad_token_id) == str(tokenizer.pad_token)
            if (pad_token_id := tokenizer.pad_token_id) is not None
            else "pad_token" in state["_special_tokens_map"]
        )
    )
    tokens = token_facts(tokenizer, () if pad_token_id is None else (str(tokenizer.pad_token),)) if plain else None
    if tokens is None or own is None or extra is None:
        return None
    return (
        *own,
        *extra,
        *tokens,
        *(((TYPE, tokenizer, None, cls),) if collator._keeps_tokenizer else ()),
        (ATTRIBUTE, cls, "pad", cls.pad),
        (ATTRIBUTE, cls, "_pad", PAD_ONE),
        (ATTRIBUTE, cls, "_get_padding_truncation_strategies", STRATEGIES),
        *[(ABSENT, state, name, None) for name in METHODS],
        *[(ENTRY, state, name, state[name]) for name in kept],
        (ENTRY, state["_special_tokens_map"], "pad_token", state["_special_tokens_map"].get("pad_token")),
        (ITEMS, state["model_input_names"], None, tuple(state["model_input_names"])),
    )


def asks_tokenizer(options: PadOptions) -> bool:
    """True if the tokenizer is asked what the options mean."""
    return options.max_length is not None or not (options.padding is True or options.padding == "longest")


def token_facts(tokenizer: Any, tokens: Iterable[str]) -> tuple[Fact, ...] | None:
    """The facts that these tokens have their current ids; None if it is not known how ids are looked up."""
    cls, state = type(tokenizer), tokenizer.__dict__
    if "_tokenizer" in state:
        return ((ENTRY, state, "_tokenizer", state["_tokenizer"]),)
    added, tokens = state.get("_added_tokens_encoder"), tuple(tokens)
    if (
        any(getattr(cls, name, None) is not method for name, method in _LOOK_UP.items())
        or type(added) is not dict
        or not all(token in added for token in tokens)
    ):
        return None
    return (
        (ENTRY, state, "_added_tokens_encoder", added),
        *((ABSENT, state, name, None) for name in _LOOK_UP),
        *((ENTRY, added, token, added[token]) for token in tokens),
    )


def items_facts(values: Any) -> tuple[Fact, ...] | None:
    """The facts that `pad_values` has these items; None where it is not a plain dict."""
    if values is None:
        return ()
    if type(values) is not dict or not all(type(name) is str for name in values):
        return None
    return (CALL, values.__len__, None, len(values)), *((ENTRY, values, *item) for item in values.items())


def columns_facts(collator: Any) -> tuple[Fact, ...] | None:
    """The facts that the collator's options about columns have these items; None where they are not plain."""
    joined = collator.join_columns
    items = () if type(joined) is not list else ((ITEMS, joined, None, tuple(joined)),)
    known = joined is None or type(joined) in (list, tuple)
    return joined_facts(
        items if known else None,
        *(items_facts(getattr(collator, name)) for name in ("pad_values", "pad_axes", "dtypes")),
    )
