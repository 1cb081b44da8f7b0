"""Plans of all kinds of batches: the key that a plan is made from, its steps, and how they are run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input.columns import BatchLayout, Step
from quadrat.planning.fallback import FallBack
from quadrat.support.memory import Framework, NotOnCpu, default_float_kind, interop, require_plain_tensors


class PlanKey(NamedTuple):
    """All that a plan depends on."""

    names: tuple[str, ...]  # of the columns
    signature: bytes
    framework: Framework
    float_kind: int | None  # of Python floats
    options: Any  # hashable; each kind of batch has a type for them


class Plan(NamedTuple):
    """What to do: steps for `_core.Columns.run`, or the reason to fall back."""

    steps: tuple[Step, ...] = ()
    held: dict[str, str] = {}  # noqa: RUF012 - output -> column of those that the reference's own conversion makes
    refusal: str | None = None


def key_of(
    names: tuple[str, ...], columns: _core.Columns, framework: Framework, options: Any, padded: tuple[int, int] = (0, 1)
) -> PlanKey:
    """The key of a batch. padded: the column by which it is padded, and to which width."""
    signature = columns.signature(*padded) if names else b""
    return PlanKey(names, signature, framework, default_float_kind(framework), options)


def planned(plan: Callable[[PlanKey], Plan]) -> Callable[[PlanKey], Plan]:
    """Makes `plan`, a pure function of its key, answer once per key. A FallBack becomes the plan's refusal."""

    @functools.lru_cache(maxsize=1024)
    def answer(key: PlanKey) -> Plan:
        try:
            return plan(key)
        except FallBack as reason:
            return Plan(refusal=str(reason))

    return answer


def check_device(framework: Framework) -> None:
    """Raises FallBack where torch would not make plain CPU tensors."""
    if framework == "pt":
        try:
            require_plain_tensors()
        except NotOnCpu as error:
            raise FallBack(str(error)) from error


def run_steps(
    columns: _core.Columns,
    steps: tuple[Step, ...],
    values: dict[str, Any],
    framework: Framework,
    layout: BatchLayout,
    *,
    deferred: bool = False,
) -> Any:
    """The outputs of a plan, as a dict or `DeferredBatch`; (step, code, row, position) where a step failed."""
    factory = deferred_batch if deferred else None
    return columns.run(steps, values, interop(), framework == "pt", layout, factory)
