"""Plans of all kinds of batches, and recipes for known kinds: one compiled call, if nothing of a plan has changed."""

import functools
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input.rows import SEQUENCES
from quadrat.installed import imitated
from quadrat.planning.facts import ABSENT, ATTRIBUTE, METHODS, TYPE, Fact, joined_facts, torch_facts
from quadrat.planning.fallback import FallBack, Reason
from quadrat.support import kinds, tensors
from quadrat.support.arrays import fill_value
from quadrat.support.columns import CONCAT, LABELS, PAD_AXES, BatchLayout, Failure, Step, explain
from quadrat.support.kinds import Framework
from quadrat.support.memory import interop
from quadrat.support.tensors import NotOnCpu


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


def check_device(framework: Framework) -> None:
    """Raises FallBack where torch would not make plain CPU tensors."""
    if framework == "pt":
        try:
            tensors.require_plain_tensors()
        except NotOnCpu as error:
            raise FallBack(str(error), "collate where torch makes plain CPU tensors by default") from error


class Labelling(NamedTuple):
    """How labels come from ids, and how to tell that a recipe for them still holds; by default there are none."""

    # (collator, column names) -> a `_core.Labels`; with "fill", the number that fills the gaps of a copy of ids.
    make: Callable[[Any, tuple[str, ...]], Any] | None = None
    derives: Literal["", "fill", "labels"] = ""  # how, for the key of a plan: "" without `make`
    omits: tuple[str, ...] = ()  # columns that are looked at, and do not come out
    facts: tuple[Fact, ...] | None = ()


NO_LABELS = Labelling()


_AS_WIDE_AS_ROWS = BatchLayout(width=-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
    """All that is needed to make batches of one form. Holds no collator: that would be a cycle.

    Each form has a subclass, with the plan, what its steps write, and how its batches are finished.
    """

    wrapper: ClassVar[Any] = None  # an empty batch of another type than dict
    mismatch: ClassVar[Reason | None] = None  # why features that are not of the form fall back

    framework: Any  # a `Framework`; of collators that always fall back, "other" too
    options: Any = None  # that plans depend on, hashable
    names: tuple[str, ...] | None = None  # the columns that are read; None: all that the first feature has
    # More, where any feature has them, and whether rows that have none, or None, are left out of them.
    optional: Mapping[str, bool] = field(default_factory=dict)
    # Columns that keep the kind of arrays and tensors without elements, and whether these may have any strides.
    read: Mapping[str, bool] = field(default_factory=dict)
    absent: tuple[str, ...] = ()  # columns that the first feature must not have
    only: tuple[str, ...] | None = None  # with names: other columns that the first feature may have; None: any
    main: str | None = None  # the column to pad by
    bare: bool = False  # features are the rows of the one column, without mappings
    plain: str | None = None  # of multiple choice, the column with one value for each example
    layout: BatchLayout = _AS_WIDE_AS_ROWS
    labelling: Labelling = NO_LABELS
    facts: tuple[Fact, ...] | None = None  # read before all else; None: not known, so nothing is remembered
    deferred: bool = False
    check: Callable[[Any], Reason | None] | None = None  # of features, before they are read

    @staticmethod
    def plan(key: PlanKey, /) -> Plan:
        """The plan of a kind of batch; see `planned`."""
        raise NotImplementedError

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        """The values that the steps write, by output. Raises FallBack."""
        return {}

    def hold(self, name: str, features: Any, key: PlanKey) -> Any:
        """The reference's conversion of a column of features. Raises FallBack."""
        raise NotImplementedError

    def failed(self, collator: Any, names: tuple[str, ...], step: Step, failure: Failure) -> Reason | None:
        """Why the reference makes a batch when a step fails on its values; None: another recipe may try.

        Raises ValueError for values that the reference does not read: words, and columns of quadrat's options.
        """
        name, _, action, kind = step
        pads, dtypes = collator.pad_values or {}, collator.dtypes or {}
        if name in pads and (action != PAD_AXES or failure[1] < 0):
            why = explain(failure) if failure[1] >= 0 else f"it does not fit the dtype {kinds.KINDS[kind]}"
            raise ValueError(f"pad_values: column '{name}' padded with {pads[name]!r}: {why}")
        if name in dtypes:
            raise ValueError(f"dtypes: column '{name}', as {kinds.KINDS[kind]}: {explain(failure)}: give another dtype")
        if action in (PAD_AXES, CONCAT):
            return f"column '{name}': {explain(failure)}", f"give dtypes={{'{name}': 'float32'}}, or rows of one dtype"
        if action == LABELS and "word_ids" in names and getattr(collator, "whole_word_mask", False):
            raise ValueError(
                f"column 'word_ids': {explain(failure)}; each row needs one int, or None, for each of its tokens, as "
                "BatchEncoding.word_ids() gives them"
            )
        return f"column '{name}': {explain((failure[0], -1, -1))}", _REMEDIES.get(failure[0])

    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        """The result, of the batch that the steps made."""
        return batch

    @property
    def finishes(self) -> bool:
        """Whether `finish` has something to do."""
        return type(self).finish is not Spec.finish

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
        for output, value in values.items():  # numbers of others become Python's
            if type(value) not in (int, float) and isinstance(value, (numbers.Real, np.bool_)):
                values = {**values, output: fill_value(value, None)}
        if (step := _unfit(steps, values)) is not None:
            failed = self.failed(collator, names, step, _TOO_LARGE)
            return (), {}, None, failed or (f"column '{step[0]}': its padding does not fit its dtype", None)
        return steps, values, functools.partial(self._held, held, key) if held else None, None

    def _held(self, columns: dict[str, str], key: PlanKey, features: Any) -> Any:
        try:
            return {output: self.hold(column, features, key) for output, column in columns.items()}
        except FallBack as reason:
            return reason.args

    def make(self, collator: Any, features: Any) -> Any:
        """The batch of `features`; others like it take one compiled call from now on. Raises FallBack."""
        torch = torch_facts() if self.framework == "pt" else ()
        if torch is None:
            check_device(self.framework)
        known = joined_facts(self.facts, self.labelling.facts, torch)
        facts, imitation = known or (), getattr(collator, "_imitates", imitated.NOTHING)
        if compares := imitated.compares(imitation):
            facts = *facts, (ABSENT, imitated.DIFFERENCES, imitation.name, None)
        recipe = _core.Recipe(self, facts, interop(), deferred_batch if self.deferred else None, compares)
        batch = recipe.make(collator, features)
        if batch is None:
            which = "the same keys" if self.names is None else f"the columns {list(self.names)}"
            why = f"features are not a list of plain mappings with {which}", "give dicts with the same keys"
            raise FallBack(*(self.mismatch or why))
        # The facts are older than the spec, and still true: no other thread has changed one meanwhile, and left it so.
        if known is not None and recipe.holds(collator):
            collator._remember(self, recipe)
        if batch is False:
            raise FallBack("a row is longer than the batch may be", "truncate the rows when you tokenize them")
        if type(batch) is tuple:
            raise FallBack(*batch)
        return batch


def _unfit(steps: tuple[Step, ...], values: Mapping[str, Any]) -> Step | None:
    """The first step whose dtype, an int or a short float, does not hold what pads its column."""
    for step in steps:
        padding, dtype = values.get(step[0]), kinds.KINDS[step[3]]
        number = padding[0] if type(padding) is tuple else padding
        if not isinstance(number, numbers.Real):
            continue
        if "int" in dtype:
            limits: Any = np.iinfo(dtype)
            if not (limits.min <= number <= limits.max and number % 1 == 0):
                return step
            continue
        try:
            fill_value(number, step[3])
        except OverflowError:
            return step
    return None


def remember_fallback(collator: Any, framework: Any, why: Reason, options: tuple[Fact, ...] | None) -> None:
    """Remember that the collator falls back for every batch, as long as its options and its tokenizer do not change.

    options: its own facts, read before that was decided.
    """
    tokenizer = getattr(collator, "tokenizer", None)
    cls = type(tokenizer)
    if tokenizer is None or not options:
        return
    facts = (
        *options,
        (TYPE, tokenizer, None, cls),
        *((ATTRIBUTE, cls, name, getattr(cls, name, None)) for name in sorted(METHODS) if hasattr(cls, name)),
    )
    spec = Spec(
        framework=framework if framework in ("pt", "np") else "other",
        check=lambda features: why if type(features) in SEQUENCES else None,
    )
    collator._remember(spec, _core.Recipe(spec, facts, interop()))
