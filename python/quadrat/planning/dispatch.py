"""`dispatch`: what happens when no recipe matches. A plan makes the batch, the reference is compared, or falls back."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from quadrat import _core
from quadrat.installed import imitated
from quadrat.planning.compared import compared, should_compare
from quadrat.planning.fallback import FallBack, log_once, require_known
from quadrat.planning.remembering import Remembering
from quadrat.support.memory import interop


class Imitator(Remembering):
    """A collator, or a function with its options: what `dispatch` asks of it. Each may raise FallBack."""

    # Whether `compared` adds hints to errors; False: the reference's call does.
    _explains_errors: ClassVar[bool] = False

    def _look(self, features: Any) -> Any:
        """What is given, as the rows that plans read."""
        return features

    def _check(self, rows: Any, framework: Any) -> None:
        """Raises an error for options or rows that are invalid, before plans read them."""

    def _is_own(self, rows: Any) -> bool:
        """True if options or rows ask for a batch that is quadrat's own, and that the reference cannot make."""
        return False

    def _columns(self, rows: Any, framework: Any) -> tuple[tuple[str, ...], _core.Columns, Any] | None:
        """(names, columns, what else tells kinds of batches apart), for `should_compare`; None where not known."""
        collected = _core.collect(rows, None, interop())
        return None if collected is None or not collected[0] else (*collected, framework)

    def _plan(self, rows: Any, framework: Any) -> Any:
        """The batch, made by a plan that is proven to give the reference's."""
        raise NotImplementedError

    def _finish(self, batch: Any, features: Any) -> Any:
        """The result, of the batch of what is given."""
        return batch

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        """The reference's function of what is given."""
        raise NotImplementedError

    def _recipes(self, framework: Any) -> Any:
        """The function that makes known batches (`Recipes` in plan/recipe.hpp); None before the first batch."""
        return self.__dict__.get("_quadrat_pt" if framework == "pt" else "_quadrat_np")


def dispatch(subject: Imitator, features: Any, framework: Any, outcome: Any = None, rows: Any = None) -> Any:
    """The result of quadrat; the reference's where both are made, to be compared.

    Args:
        subject: a collator, or a function with its options; `_imitates` says what it imitates.
        outcome: what recipes returned: None, why the batch falls back, or () if it is to be compared.
        rows: what `_look` makes of what is given, if that is known.

    Raises FallBack where the reference is to make the result: its code is unknown, or no plan is proven to give it.
    """
    imitation = subject._imitates
    rows = subject._look(features) if rows is None else rows
    if outcome:
        if not subject._is_own(rows):
            raise FallBack(*outcome)
        outcome = None  # nobody else can make it: a new plan says why
    if outcome is None:
        subject._check(rows, framework)
        require_known(imitation, framework, functools.partial(subject._is_own, rows))
    make = subject._plan if outcome is None else functools.partial(_made_by_recipes, subject)
    if imitated.compares(imitation) and not subject._is_own(rows):
        columns = subject._columns(rows, framework) if outcome is None else None
        if columns is None or should_compare(subject, *columns):

            def ours(again: Any) -> Any:
                return subject._finish(make(subject._look(again), framework), again)

            return compared(subject, features, ours, subject._reference(framework))
    return subject._finish(make(rows, framework), features)


def _made_by_recipes(subject: Imitator, rows: Any, framework: Any) -> Any:
    """The batch of a known kind, which is not compared here. Raises FallBack."""
    batch = subject._recipes(framework).__self__.make(subject, rows)
    if type(batch) is tuple:
        raise FallBack(*batch)
    if batch is None or batch is False:
        raise FallBack("features changed their form while they were read", "do not edit features meanwhile")
    return batch


def call(subject: Imitator, features: Any, framework: Any, outcome: Any = None, rows: Any = None) -> Any:
    """The result of a function: that of `dispatch`, else the reference's."""
    try:
        return dispatch(subject, features, framework, outcome, rows)
    except FallBack as reason:
        log_once(subject, reason.args, counts=False)
    return subject._reference(framework)(features)
