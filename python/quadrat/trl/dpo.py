"""`DataCollatorForPreference` of TRL's `DPOTrainer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trl.trainer.dpo_trainer import DataCollatorForPreference as _Original

from quadrat.trl.preference import Joined, Numbers, PreferenceCollator

Original: Any = _Original


@dataclass
class DataCollatorForPreference(PreferenceCollator, Original):
    """Joins prompts and both completions, and pads them; a drop-in for the class in `trl.trainer.dpo_trainer`.

    Arguments and results are those of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`,
    `[2 * rows, width]` int64, chosen rows first; then `ref_chosen_logps` and `ref_rejected_logps`, `[rows]`, where the
    first example has them.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.
    """

    deferred: bool = False

    _numbers: ClassVar[tuple[Numbers, ...]] = (Numbers("ref_chosen_logps"), Numbers("ref_rejected_logps"))

    def _rows(self) -> tuple[Joined, ...]:
        return (Joined("prompt_ids", ("chosen_ids", "rejected_ids")),)
