"""Collators without a twin in transformers: `tokenizer_pad` and those of TRL."""

import copy
import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import quadrat
from quadrat.installed import originals
from support import samples


class Other(NamedTuple):
    """What makes the reference's collator, what makes quadrat's, and features that both take."""

    reference: Callable[..., Any]
    ours: Callable[..., Any]
    features: list[dict[str, Any]]

    def batch(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.features)


def _pads(pad: Any) -> Any:
    return functools.partial(pad, samples.tokenizer(), return_tensors="pt")


OTHERS = {
    "tokenizer_pad": Other(
        lambda: _pads(originals.PAD),
        lambda: _pads(quadrat.tokenizers.tokenizer_pad),
        [{"input_ids": [5] * n, "attention_mask": [1] * n, "labels": n} for n in (4, 2, 3)],
    ),
}
if importlib.util.find_spec("trl") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from quadrat import trl
    _COLUMNS = {
        "sft": ("input_ids", "labels"),
        "dpo": ("prompt_ids", "chosen_ids", "rejected_ids", "ref_chosen_logps", "ref_rejected_logps"),
        "reward": ("chosen_ids", "rejected_ids", "margin"),
        "kto": ("prompt_ids", "completion_ids", "KL_completion_ids", "ref_logps", "label"),
        "tpo": ("prompt_ids", "chosen_ids", "rejected_ids", "reference_ids"),
    }
    for _name, _columns in _COLUMNS.items():
        if (_module := getattr(trl, _name)) is not None:
            _rows = [{one: [5] * n if one.endswith(("ids", "labels")) else 0.5 for one in _columns} for n in (4, 2, 3)]
            _both = _module.Original, getattr(_module, _module.Original.__name__)
            OTHERS[f"trl.{_name}"] = Other(*(functools.partial(one, pad_token_id=0) for one in _both), _rows)
TRL = [name for name in OTHERS if name.startswith("trl.")]
