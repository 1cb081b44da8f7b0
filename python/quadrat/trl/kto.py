"""`DataCollatorForUnpairedPreference` of TRL's `KTOTrainer`; an ImportError where the installed TRL has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference as _Original

from quadrat.trl.preference import Joined, Numbers, PreferenceCollator

Original: Any = _Original


@dataclass
class DataCollatorForUnpairedPreference(PreferenceCollator, Original):
    """Joins prompts and completions, and pads them; a drop-in for the class in `trl.trainer.kto_trainer`.

    Arguments and results are those of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`,
    `[rows, width]` int64; the same with `KL_` before their names where the first example has `KL_completion_ids`;
    `ref_logps` and `ref_KL_logps`, `[rows]`, where it has them; and `label`, `[rows]`.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.
    """

    deferred: bool = False

    _numbers: ClassVar[tuple[Numbers, ...]] = (
        Numbers("ref_logps"),
        Numbers("ref_KL_logps"),
        Numbers("label", optional=False),
    )

    def _rows(self) -> tuple[Joined, ...]:
        return (
            Joined("prompt_ids", ("completion_ids",), optional=True, int64=True),
            Joined("prompt_ids", ("KL_completion_ids",), prefix="KL_", optional=True, int64=True),
        )
