"""`DataCollatorForTriplePreference` of TRL's `TPOTrainer`; an ImportError if the installed TRL has none."""

from dataclasses import dataclass
from typing import ClassVar

from trl.experimental.tpo.tpo_trainer import DataCollatorForTriplePreference as Original
from trl.trainer.utils import pad

from quadrat.installed.imitated import Imitation, code_of, code_of_trl
from quadrat.trl._base import Joined, PreferenceCollator


@dataclass
class DataCollatorForTriplePreference(PreferenceCollator, Original):
    """Join prompts and completions, and pad them; replaces the class in `trl.experimental.tpo.tpo_trainer`.

    The result is that of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`, `[3 * rows,
    width]` int64: chosen rows, rejected ones, and with `include_reference` those of the reference completion; otherwise
    `[2 * rows, width]`.

    Args:
        include_reference: whether rows have `reference_ids`.
        pad_token_id, max_length, truncation_mode, pad_to_multiple_of, return_tensors, deferred: as in
            `quadrat.trl.dpo.DataCollatorForPreference`.

    Examples:
        >>> import os
        >>> os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        >>> from quadrat.trl.tpo import DataCollatorForTriplePreference
        >>> rows = [{"prompt_ids": [5], "chosen_ids": [7], "rejected_ids": [8, 9], "reference_ids": [6]}]
        >>> DataCollatorForTriplePreference(pad_token_id=0)(rows)["input_ids"].tolist()
        [[5, 7, 0], [5, 8, 9], [5, 6, 0]]
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = Imitation("trl.tpo", code_of_trl(Original, pad) + code_of("DataCollatorMixin"))

    @property
    def _rows(self) -> tuple[Joined, ...]:  # type: ignore[override]
        reference = ("reference_ids",) if self.include_reference else ()
        return (Joined("prompt_ids", ("chosen_ids", "rejected_ids", *reference)),)
