"""`DataCollatorForUnpairedPreference` of TRL's `KTOTrainer`; an ImportError if the installed TRL has none like it."""

from dataclasses import dataclass
from typing import ClassVar

from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference as Original
from trl.trainer.utils import pad

from quadrat.installed.imitated import Imitation, code_of, code_of_trl
from quadrat.trl._base import Joined, Numbers, PreferenceCollator

if isinstance(Original(pad_token_id=0)([{"prompt_ids": [1], "completion_ids": [2], "label": True}])["label"], list):
    raise ImportError("the labels of this TRL are a list")  # in 1.8


@dataclass
class DataCollatorForUnpairedPreference(PreferenceCollator, Original):
    """Join prompts and completions, and pad them; replaces the class in `trl.trainer.kto_trainer`.

    The result is that of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`, `[rows, width]`
    int64; the same with `KL_` before their names if the first example has `KL_completion_ids`; `ref_logps` and
    `ref_KL_logps`, `[rows]`, if it has them; and `label`, `[rows]`.

    Args:
        pad_token_id, max_length, pad_to_multiple_of, return_tensors, deferred: as in
            `quadrat.trl.dpo.DataCollatorForPreference`.

    Examples:
        >>> from quadrat.trl.kto import DataCollatorForUnpairedPreference
        >>> row = {"prompt_ids": [5, 6], "completion_ids": [7], "label": True}
        >>> batch = DataCollatorForUnpairedPreference(pad_token_id=0)([row, {**row, "prompt_ids": [5]}])
        >>> batch["input_ids"].tolist(), batch["label"].tolist()
        ([[5, 6, 7], [5, 7, 0]], [True, True])
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = Imitation("trl.kto", code_of_trl(Original, pad) + code_of("DataCollatorMixin"))
    _numbers: ClassVar[tuple[Numbers, ...]] = tuple(
        Numbers(name, optional=name != "label") for name in ("ref_logps", "ref_KL_logps", "label")
    )
    _rows: ClassVar[tuple[Joined, ...]] = tuple(
        Joined("prompt_ids", (f"{prefix}completion_ids",), prefix, optional=True, int64=True) for prefix in ("", "KL_")
    )
