"""`DataCollatorForUnpairedPreference` of TRL's `KTOTrainer`; an ImportError if the installed TRL has none like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference as Original

from quadrat.trl.preference import Joined, Numbers, PreferenceCollator

if isinstance(Original(pad_token_id=0)([{"prompt_ids": [1], "completion_ids": [2], "label": True}])["label"], list):
    raise ImportError("the labels of this TRL are a list")  # in 1.8


@dataclass
class DataCollatorForUnpairedPreference(PreferenceCollator, Original):
    """Join prompts and completions, and pad them; replaces the class in `trl.trainer.kto_trainer`.

    The result is that of TRL's class: a dict of `input_ids`, `attention_mask` and `completion_mask`, `[rows, width]`
    int64; the same with `KL_` before their names if the first example has `KL_completion_ids`; `ref_logps` and
    `ref_KL_logps`, `[rows]`, if it has them; and `label`, `[rows]`. The options are those of the installed TRL; the
    list below is for TRL 1.16.

    Args:
        pad_token_id: the padding value of ids.
        max_length: longer rows are cut to this many tokens.
        pad_to_multiple_of: rounds the width up to a multiple of this.
        return_tensors: "pt", as in TRL.
        deferred: quadrat only: returns a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Examples:
        >>> from quadrat.trl.kto import DataCollatorForUnpairedPreference
        >>> rows = [
        ...     {"prompt_ids": [5, 6], "completion_ids": [7], "label": True},
        ...     {"prompt_ids": [5], "completion_ids": [8, 9, 4], "label": False},
        ... ]
        >>> batch = DataCollatorForUnpairedPreference(pad_token_id=0)(rows)
        >>> batch["input_ids"].tolist(), batch["label"].tolist()
        ([[5, 6, 7, 0], [5, 8, 9, 4]], [True, False])
    """

    deferred: bool = False

    _imitates: ClassVar[str] = "trl.kto"
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (*Original.__dataclass_fields__, "deferred")
    _numbers: ClassVar[tuple[Numbers, ...]] = (
        Numbers("ref_logps"),
        Numbers("ref_KL_logps"),
        Numbers("label", optional=False),
    )
    _rows: ClassVar[tuple[Joined, ...]] = (
        Joined("prompt_ids", ("completion_ids",), optional=True, int64=True),
        Joined("prompt_ids", ("KL_completion_ids",), prefix="KL_", optional=True, int64=True),
    )
