"""`DataCollatorForPreference` of TRL's `RewardTrainer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from trl.trainer.reward_trainer import DataCollatorForPreference as _Original

from quadrat.trl.preference import Joined, Numbers, PreferenceCollator

Original: Any = _Original


@dataclass
class DataCollatorForPreference(PreferenceCollator, Original):
    """Pads chosen rows, then rejected ones; a drop-in for the class in `trl.trainer.reward_trainer`.

    Arguments and results are those of TRL's class: a dict of `input_ids` and `attention_mask`, `[2 * rows, width]`
    int64; then `margin`, `[rows]` float32, where the first example has one.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.
    """

    deferred: bool = False

    _numbers: ClassVar[tuple[Numbers, ...]] = (Numbers("margin", torch.float32),)

    def _rows(self) -> tuple[Joined, ...]:
        return (Joined(None, ("chosen_ids", "rejected_ids")),)
