"""The one way in, where no recipe has the batch: quadrat's, compared with the reference's, or the reference's alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrat.installed import imitated
from quadrat.planning.compared import compared, is_due, of_reference
from quadrat.planning.fallback import FallBack, Why, log_once, raise_saying, require_known


def make(
    subject: Any,
    given: Any,
    framework: Any,
    ours: Callable[[Any], Any],
    reference: Callable[[Any], Any],
    *,
    outcome: Any = None,
    is_own: Callable[[], bool] = bool,
    rows: Any = None,
) -> Any:
    """The batch that `ours` makes of what is given; the reference's where both are made, to be compared.

    Args:
        subject: a collator, or what stands for a function; `_imitates` names its row of the table.
        outcome: what recipes said: None, why the batch falls back, or () if it is to be compared.
        is_own: whether the batch is quadrat's own, which the reference cannot make.
        rows: of functions, which explain errors themselves: the features in what is given, or a `Looked`.

    Raises FallBack where the code of the row is unknown, and where `ours` does.
    """
    if outcome:
        raise FallBack(*outcome)
    if outcome is None:
        require_known(subject._imitates, framework, is_own)
    if not imitated.compares(subject._imitates) or is_own():
        return ours(given)
    if outcome is None and not is_due(subject, given if rows is None else rows, framework):
        return ours(given)
    return compared(subject, given, ours, reference, explains=rows is None)


def call(
    subject: Any,
    given: Any,
    look: Callable[[Any], Any],
    write: Callable[[Any, Any], Any],
    reference: Callable[[Any], Any],
    *,
    hint: Callable[[Why], str | None] = lambda why: None,
) -> Any:
    """The result of a function that has no recipes; the reference's where `look` or `write` raise FallBack.

    look: what is given -> a `Looked`, or a tuple that has its fields. write: both of these -> the result.
    hint: what to add to an error of the reference; it is told why quadrat falls back.
    """
    why: Why = "", None
    if not of_reference():
        try:
            looked = look(given)

            def ours(again: Any) -> Any:
                return write(again, looked if again is given else look(again))

            return make(subject, given, looked.framework, ours, reference, rows=looked)
        except FallBack as reason:
            why = reason.args
            log_once(subject, why, counts=False)
    try:
        return reference(given)
    except Exception as error:
        raise_saying(error, hint(why))
