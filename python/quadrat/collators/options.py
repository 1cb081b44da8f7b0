"""Options that several collators have: of columns, and of batches without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.ops.flattening import Flattening
from quadrat.planning.flat import LACKS


@dataclass
class ColumnOptions(Collator):
    """Of a collator that pads."""

    pad_values: Mapping[str, Any] | None = None
    deferred: bool = False
    join_columns: Sequence[str] = ()
    pad_axes: Mapping[str, Any] | None = None
    dtypes: Mapping[str, Any] | None = None


@dataclass
class PaddingFreeOptions(ColumnOptions):
    """Of a collator that pads, or joins the rows."""

    padding_free: bool | Flattening = False

    _lacks: ClassVar[Mapping[str, str]] = LACKS

    @property
    def _joins_rows(self) -> bool:  # type: ignore[override]
        return bool(self.padding_free)

    def _is_own(self, features: Any) -> bool:
        return bool(self.padding_free) or super()._is_own(features)
