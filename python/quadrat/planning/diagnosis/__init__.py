"""Explains what is wrong with a batch: column, row, lengths, and what to do. Runs only after an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quadrat.planning.diagnosis import options, rules

# In place of features, for an error of a collator's constructor.
NO_FEATURES: Any = object()


def diagnose(features: Any, collator: Any) -> str | None:
    """The first problem found in the collator's options or in `features`, or None."""
    try:
        return next(_problems(features, collator), None)
    except Exception:  # a feature that fails to be looked at: the reference's error stands alone
        return None


def _problems(features: Any, collator: Any) -> Iterator[str]:
    """Certain ones first, then what is most likely the cause."""
    yield from options.not_a_tokenizer(collator)
    if features is NO_FEATURES:
        return
    yield from options.not_features(features)
    yield from options.unknown(collator)
    yield from rules.problems(features, collator)
