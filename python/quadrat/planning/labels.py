"""Labels of language modelling, made from the ids of a padded or flat batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from quadrat.input.columns import Failure, explain
from quadrat.planning.plan_cache import Fact


class Labelling(NamedTuple):
    """How labels come from ids, and how to tell that a recipe for them still holds."""

    # Column names -> a `_core.Labels`, or the number that fills the gaps of a copy of the ids.
    make: Callable[[tuple[str, ...]], Any]
    omits: tuple[str, ...]  # columns that are looked at, and do not come out
    facts: Callable[[], tuple[Fact, ...] | None]


def refuse_words(names: tuple[str, ...], failure: Failure) -> None:
    """Raises ValueError if labels failed because of a column that the reference does not read."""
    if "word_ids" in names:
        raise ValueError(
            f"column 'word_ids': {explain(failure)}; each row needs one int, or None, for each of its tokens, as "
            "BatchEncoding.word_ids() gives them"
        )
