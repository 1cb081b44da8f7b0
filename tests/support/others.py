"""What has no twin among transformers' collators: those of TRL, `tokenizer_pad` and other functions."""

import copy
import functools
import importlib.util
import warnings
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import datasets
import torch
from transformers import BatchEncoding, trainer_pt_utils

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
            _rows = [{key: [5] * n if key.endswith(("ids", "labels")) else 0.5 for key in _columns} for n in (4, 2, 3)]
            _both = _module.Original, getattr(_module, _module.Original.__name__)
            OTHERS[f"trl.{_name}"] = Other(*(functools.partial(cls, pad_token_id=0) for cls in _both), _rows)
TRL = [name for name in OTHERS if name.startswith("trl.")]


def _gathered(cls: Any, batches: Any) -> Any:
    container = cls()
    for batch in batches:
        container.add(batch)
    return container.get_arrays()


def _encoded(convert: Any, features: Any) -> Any:
    return convert(BatchEncoding({name: [row[name] for row in features] for name in features[0]}), "pt")


def _ordered(cls: Any, dataset: Any) -> Any:
    return list(cls(2, dataset, generator=torch.Generator().manual_seed(1)))


def functions(names: Container[str]) -> dict[str, tuple[Any, Any, Any]]:
    """The reference's call, quadrat's, and what both are given, of the functions among these names."""
    table: dict[str, tuple[Any, Any, Any]] = {
        "convert_to_tensors": (
            functools.partial(_encoded, originals.CONVERT_TO_TENSORS),
            functools.partial(_encoded, quadrat.tokenizers.convert_to_tensors),
            [{"input_ids": [n, n + 1], "attention_mask": [1, 1]} for n in (3, 4)],
        ),
        "EvalLoopContainer": (
            functools.partial(_gathered, trainer_pt_utils.EvalLoopContainer),
            lambda batches: _gathered(quadrat.evaluation.EvalLoopContainer, batches),
            [torch.ones(2, n) for n in (3, 4)],
        ),
        "LengthGroupedSampler": (
            lambda dataset: _ordered(trainer_pt_utils.LengthGroupedSampler, dataset),
            lambda dataset: _ordered(quadrat.batching.LengthGroupedSampler, dataset),
            datasets.Dataset.from_dict({"input_ids": [[7] * n for n in (5, 3, 8, 1)]}),
        ),
    }
    if "trl.pad" in names:
        from quadrat.trl import padding

        table["trl.pad"] = padding.Original, padding.pad, [torch.ones(n) for n in (3, 4)]
    return {name: calls for name, calls in table.items() if name in names}
