"""`DataCollatorForPreference` of TRL's `RewardTrainer`."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from trl.trainer.reward_trainer import DataCollatorForPreference as Original
from trl.trainer.utils import pad

from quadrat.installed.imitated import Imitation, code_of, code_of_trl
from quadrat.trl._base import Joined, Numbers, PreferenceCollator


@dataclass
class DataCollatorForPreference(PreferenceCollator, Original):
    """Pad chosen rows, then rejected ones; replaces the class in `trl.trainer.reward_trainer`.

    The result is that of TRL's class: a dict of `input_ids` and `attention_mask`, `[2 * rows, width]` int64; then
    `margin`, `[rows]` float32, if the first example has one.

    Args:
        pad_token_id, pad_to_multiple_of, return_tensors, deferred: as in `quadrat.trl.dpo.DataCollatorForPreference`.

    Examples:
        >>> from quadrat.trl.reward import DataCollatorForPreference
        >>> batch = DataCollatorForPreference(pad_token_id=0)([{"chosen_ids": [5, 6, 7], "rejected_ids": [8]}])
        >>> batch["input_ids"].tolist()
        [[5, 6, 7], [8, 0, 0]]
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = Imitation("trl.reward", code_of_trl(Original, pad) + code_of("DataCollatorMixin"))
    _numbers: ClassVar[tuple[Numbers, ...]] = (Numbers("margin", torch.float32),)
    _rows: ClassVar[tuple[Joined, ...]] = (Joined(None, ("chosen_ids", "rejected_ids")),)
