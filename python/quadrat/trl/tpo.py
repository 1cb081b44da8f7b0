"""`DataCollatorForTriplePreference` of TRL's `TPOTrainer`; an ImportError where the installed TRL has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trl.experimental.tpo.tpo_trainer import DataCollatorForTriplePreference as _Original

from quadrat.trl.preference import Joined, PreferenceCollator

Original: Any = _Original


@dataclass
class DataCollatorForTriplePreference(PreferenceCollator, Original):
    """Joins prompts and completions, and pads them; a drop-in for the class in `trl.experimental.tpo.tpo_trainer`.

    Arguments and results are those of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`,
    `[3 * rows, width]` int64: chosen rows, rejected ones, and with `include_reference` those of the reference.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.
    """

    deferred: bool = False

    def _rows(self) -> tuple[Joined, ...]:
        reference = ("reference_ids",) if self.include_reference else ()
        return (Joined("prompt_ids", ("chosen_ids", "rejected_ids", *reference)),)
