"""Options that several collators have: of columns, and of batches without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.ops.flatten import Names
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

    padding_free: bool = False
    return_position_ids: bool = True
    return_seq_idx: bool = False
    position_ids_start: int = 0
    kwargs_for: Names | None = None
    align_to: int | None = None
    total_length: int | None = None
    continue_positions: bool = True

    _lacks: ClassVar[Mapping[str, str]] = LACKS

    @property
    def _joins_rows(self) -> bool:  # type: ignore[override]
        return self.padding_free

    def _is_own(self, features: Any) -> bool:
        return self.padding_free or super()._is_own(features)
