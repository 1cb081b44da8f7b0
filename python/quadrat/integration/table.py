"""The table: a row for each thing that quadrat imitates, from the module that imitates it."""

import contextlib

from quadrat.collators import default, flattening, language_modeling, padding, permutation, whole_word  # noqa: F401
from quadrat.installed.imitated import TABLE, Imitation
from quadrat.planning import conversion  # noqa: F401
from quadrat.tokenizers import pad  # noqa: F401


def rows() -> dict[str, Imitation]:
    """The rows by name; those of an evaluation and of TRL only where what they derive from loads."""
    with contextlib.suppress(Exception):
        from quadrat.evaluation import containers  # noqa: F401
    with contextlib.suppress(Exception):
        from quadrat import trl  # noqa: F401
    return TABLE
