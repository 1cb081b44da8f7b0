"""Plans of all kinds of batches, and recipes for known kinds: one compiled call, if nothing of a plan has changed."""

import functools
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from transformers import BatchEncoding

from quadrat import _core
from quadrat.installed import imitated
from quadrat.planning.facts import ABSENT, ATTRIBUTE, METHODS, TYPE, Fact, joined_facts, torch_facts
from quadrat.planning.fallback import FallBack, Reason
from quadrat.support import kinds, tensors
from quadrat.support.arrays import fill_value
from quadrat.support.columns import LABELS, BatchLayout, Failure, Step, explain
from quadrat.support.kinds import Framework
from quadrat.support.memory import interop
from quadrat.support.tensors import NotOnCpu

# The wrapper and attributes of a batch that is a `BatchEncoding`.
ENCODING: dict[str, Any] = {"wrapper": BatchEncoding, "attributes": dict(BatchEncoding().__dict__)}


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
    refusal: Reason | None = None


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


def step_failed(collator: Any, names: tuple[str, ...], step: Step, failure: Failure) -> Reason | None:
    """The reason to fall back when a step fails on values that the signature does not describe."""
    # The reference reads no column of words.
    if step[2] == LABELS and "word_ids" in names and getattr(collator, "whole_word_mask", False):
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
    """All that is needed to make batches of one form. Holds no collator: that would be a cycle."""

    framework: Any  # a `Framework`; of collators that always fall back, "other" too
    plan: Callable[[PlanKey], Plan]
    options: Any = None  # that plans depend on, hashable
    names: tuple[str, ...] | None = None  # the columns that are read; None: all that the first feature has
    optional: str | None = None  # one more, where any feature has it
    joined: tuple[str, ...] = ()  # more; rows that have none, or None, are left out of them
    # Columns that keep the kind of arrays and tensors without elements, and whether these may have any strides.
    read: Mapping[str, bool] = {}
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
    failed: Callable[[Any, tuple[str, ...], Step, Failure], Reason | None] = step_failed  # None: another recipe may try
    facts: tuple[Fact, ...] | None = None  # read before all else; None: not known, so nothing is remembered
    wrapper: type | None = None
    attributes: Mapping[str, Any] | None = None
    deferred: Callable[..., Any] | None = None
    check: Callable[[Any], Reason | None] | None = None  # of features, before they are read
    mismatch: Reason | None = None  # why features that are not of the form fall back
    finish: Callable[[Any, Any, Any], Any] | None = None  # (collator, batch, features) -> batch
    refusal: Reason | None = None  # of all batches
    compared: bool = False  # whether some batches are compared with the reference's

    def decide(
        self, collator: Any, names: tuple[str, ...], signature: bytes
    ) -> tuple[tuple[Step, ...], dict[str, Any], Callable[[Any], Any] | None, Reason | None]:
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
        numbers_of_others = {
            name: fill_value(value, None)
            for name, value in values.items()
            if type(value) not in (int, float) and isinstance(value, (numbers.Real, np.bool_))
        }
        values = {**values, **numbers_of_others}
        if (step := _unfit(steps, values)) is not None:
            failed = None if self.failed is None else self.failed(collator, names, step, _TOO_LARGE)
            return (), {}, None, failed or (f"column '{step[0]}': its padding does not fit its dtype", None)
        return steps, values, functools.partial(_held, self.hold, held, key) if held else None, None

    def make(self, collator: Any, features: Any, columns: _core.Columns | None = None, *, counts: bool = True) -> Any:
        """The batch of `features`, or of their columns; others like it take one compiled call from now on.

        Raises FallBack.
        """
        torch = torch_facts() if self.framework == "pt" else ()
        if torch is None:
            check_device(self.framework)
        known = joined_facts(self.facts, self.labelling.facts, torch)
        spec, facts = self, known or ()
        if imitated.compares(row := getattr(collator, "_imitates", imitated.NOTHING)):
            spec, facts = self._replace(compared=True), (*facts, (ABSENT, imitated.DIFFERENCES, row.name, None))
        recipe = _core.Recipe(spec, facts, interop())
        if columns is None:
            batch = recipe.make(collator, features, counts)
        else:
            batch = recipe.make_of(collator, features, self.names or (), columns, counts)
        if batch is None:
            which = "the same keys" if self.names is None else f"the columns {list(self.names)}"
            why = f"features are not a list of plain mappings with {which}", "give dicts with the same keys"
            raise FallBack(*(self.mismatch or why))
        # The facts are older than the spec, and still true: no other thread has changed one meanwhile, and left it so.
        if known is not None and columns is None and recipe.holds(collator):
            collator._remember(spec, recipe)
        if batch is False:
            raise FallBack("a row is longer than the batch may be", "truncate the rows when you tokenize them")
        if type(batch) is tuple:
            raise FallBack(*batch)
        return batch


def _unfit(steps: tuple[Step, ...], values: Mapping[str, Any]) -> Step | None:
    """The first step whose dtype does not hold what pads its column."""
    for step in steps:
        value = values.get(step[0])
        is_int64 = type(value) is int and step[3] == kinds.INT64 and -(2**63) <= value < 2**63
        if not (value is None or is_int64 or _fits(value, step[3])):
            return step
    return None


def _fits(padding: Any, kind: int) -> bool:
    """True unless what pads, or the first part of what pads on axes, is a number that an int or a short float lacks."""
    number = padding[0] if type(padding) is tuple else padding
    if not isinstance(number, numbers.Real):
        return True
    if "int" in kinds.KINDS[kind]:
        limits: Any = np.iinfo(kinds.KINDS[kind])
        return bool(limits.min <= number <= limits.max and number % 1 == 0)
    try:
        return fill_value(number, kind) is not None
    except OverflowError:
        return False


def _held(hold: Any, columns: dict[str, str], key: PlanKey, features: Any) -> Any:
    try:
        return {output: hold(column, features, key) for output, column in columns.items()}
    except FallBack as reason:
        return reason.args


def remember_fallback(collator: Any, framework: Any, why: Reason, own: tuple[Fact, ...] | None) -> None:
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
