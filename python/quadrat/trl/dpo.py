"""`DataCollatorForPreference` of TRL's `DPOTrainer`."""

from dataclasses import dataclass
from typing import ClassVar

from trl.trainer.dpo_trainer import DataCollatorForPreference as Original
from trl.trainer.utils import pad

from quadrat.installed.imitated import Imitation, code_of, code_of_trl
from quadrat.trl._base import Joined, Numbers, PreferenceCollator


@dataclass
class DataCollatorForPreference(PreferenceCollator, Original):
    """Join prompts and both completions, and pad them; replaces the class in `trl.trainer.dpo_trainer`.

    The result is that of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`, `[2 * rows,
    width]` int64, chosen rows first; then `ref_chosen_logps` and `ref_rejected_logps`, `[rows]`, if the first example
    has them.

    Args:
        pad_token_id: the padding value of ids.
        max_length: longer rows are cut to this many tokens.
        truncation_mode: "keep_start" or "keep_end": which part of a longer row stays.
        pad_to_multiple_of: rounds the width up to a multiple of this.
        return_tensors: "pt", as in TRL.
        deferred: quadrat only: returns a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Examples:
        >>> from quadrat.trl.dpo import DataCollatorForPreference
        >>> rows = [{"prompt_ids": [5, 6], "chosen_ids": [7], "rejected_ids": [8, 9]}]
        >>> batch = DataCollatorForPreference(pad_token_id=0)(rows)
        >>> batch["input_ids"].tolist(), batch["completion_mask"].tolist()
        ([[5, 6, 7, 0], [5, 6, 8, 9]], [[0, 0, 1, 0], [0, 0, 1, 1]])
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = Imitation("trl.dpo", code_of_trl(Original, pad) + code_of("DataCollatorMixin"))
    _numbers: ClassVar[tuple[Numbers, ...]] = (Numbers("ref_chosen_logps"), Numbers("ref_rejected_logps"))
    _rows: ClassVar[tuple[Joined, ...]] = (Joined("prompt_ids", ("chosen_ids", "rejected_ids")),)
