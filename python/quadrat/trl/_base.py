"""What TRL's collators have in common: the rows that they read, and their pad token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.columns import ARRAY, PYTHON_INTS, PYTHON_ROWS
from quadrat.planning.fallback import FallBack
from quadrat.planning.plan_cache import collected

_INT64 = range(-(2**63), 2**63)


class TrlCollator(MixinCollator):
    """A collator of TRL's on quadrat's way through every collator. It makes torch tensors only."""

    _replaces: ClassVar[str] = "TRL"
    _quadrat_instead: ClassVar[str] = "let the trainer prepare the dataset, or give the row that column"


def read(features: Any, names: Sequence[str]) -> _core.Columns:
    """Columns of lists, tuples or arrays of ints. Raises FallBack where one holds something else."""
    _, columns = collected(features, tuple(names))
    for index, name in enumerate(names):
        found, _, kinds, *_ = columns.describe(index)
        forward = not found & ARRAY or columns.steps_forward(index)
        if found & ~(PYTHON_ROWS | ARRAY) or kinds & ~PYTHON_INTS or not forward:
            raise FallBack(f"column '{name}' is not made of lists of ints", "give lists of ints")
    return columns


def require_token(pad_token_id: Any) -> None:
    """Raises FallBack unless this is an int64."""
    if type(pad_token_id) is not int or pad_token_id not in _INT64:
        raise FallBack("pad_token_id is not an int64", "give the id of the pad token")
