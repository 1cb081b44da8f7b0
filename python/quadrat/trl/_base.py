"""The base of TRL's collators: the rows that they read, and their pad token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.planning.fallback import FallBack
from quadrat.support.columns import ARRAY, DERIVED, PYTHON_INTS, PYTHON_ROWS, ColumnShape

_INT64 = range(-(2**63), 2**63)


class TrlCollator(MixinCollator):
    """A collator of TRL's on quadrat's way through every collator. It makes torch tensors only."""

    _replaces: ClassVar[str] = "TRL"
    _quadrat_instead: ClassVar[str] = "let the trainer prepare the dataset, or give the row that column"


def require_ints(
    names: Sequence[str], shapes: Sequence[ColumnShape], forms: int = PYTHON_ROWS | ARRAY | DERIVED
) -> None:
    """Raises FallBack unless columns, as many as there are of both, are ints in rows of these forms."""
    for name, shape in zip(names, shapes, strict=False):
        if shape.forms & ~forms or shape.kinds & ~PYTHON_INTS or shape.backward:
            raise FallBack(f"column '{name}' is not made of lists of ints", "give lists of ints")


def require_token(pad_token_id: Any) -> None:
    """Raises FallBack unless this is an int64."""
    if type(pad_token_id) is not int or pad_token_id not in _INT64:
        raise FallBack("pad_token_id is not an int64", "give the id of the pad token")
