"""A trainer's start and collators in the manner of LLaMA-Factory: subclasses of the one transformers has at import."""

from dataclasses import dataclass
from typing import Any

import datasets
import torch
from transformers import DataCollatorForSeq2Seq, Trainer

from support.standins import TEXTS, decoder, decoder_tokenizer
from support.trainer import arguments

IGNORED = -100
done: dict[str, Any] = {}  # trainers and batches, by collator


@dataclass
class WithMedia(DataCollatorForSeq2Seq):
    """Takes media out of the features, and gives the first of them the tokens of a made-up one."""

    template: Any = None

    def __post_init__(self) -> None:
        if self.template is None:
            raise ValueError("a template is needed")

    def __call__(self, features: Any, return_tensors: Any = None) -> Any:
        media = [feature.pop("images", None) or [] for feature in features]
        suffix = [] if any(media) else self.tokenizer.encode(self.template, add_special_tokens=False)
        features[0]["input_ids"] = features[0]["input_ids"] + suffix
        features[0]["attention_mask"] = features[0]["attention_mask"] + [0] * len(suffix)
        features[0]["labels"] = features[0]["labels"] + [IGNORED] * len(suffix)
        return super().__call__(features)


@dataclass
class With4DMask(WithMedia):
    """Makes a mask of token pairs from a mask that numbers the documents of a pack."""

    compute_dtype: torch.dtype = torch.float32

    def __call__(self, features: Any, return_tensors: Any = None) -> Any:
        batch = super().__call__(features)
        documents = batch["attention_mask"]
        same = (documents[:, None, :, None] == documents[:, None, None, :]) & (documents != 0)[:, None, None, :]
        same &= torch.ones(same.shape[-2:], dtype=torch.bool).tril()
        batch["attention_mask"] = torch.where(same, 0.0, torch.finfo(self.compute_dtype).min).to(self.compute_dtype)
        return batch


@dataclass
class Pairwise(WithMedia):
    """Chosen examples, then rejected ones."""

    def __call__(self, features: Any, return_tensors: Any = None) -> Any:
        columns = ("input_ids", "attention_mask", "labels")
        rows = [
            {**{name: feature[f"{kind}_{name}"] for name in columns}, "images": feature["images"]}
            for kind in ("chosen", "rejected")
            for feature in features
        ]
        return super().__call__(rows)


def run_exp() -> None:
    """Trains a tiny model with each collator."""
    tokenizer = decoder_tokenizer()
    encoding = dict(tokenizer(TEXTS))
    encoding["labels"] = [[IGNORED, *ids[1:]] for ids in encoding["input_ids"]]
    pairs = {f"{kind}_{name}": values for kind in ("chosen", "rejected") for name, values in encoding.items()}
    encoding["attention_mask"] = [[1 + place // 3 for place in range(len(ids))] for ids in encoding["input_ids"]]
    options = {"template": TEXTS[0], "pad_to_multiple_of": 8, "label_pad_token_id": IGNORED}
    for cls, columns in ((WithMedia, encoding), (With4DMask, encoding), (Pairwise, pairs)):
        settings = arguments(cls.__name__, max_steps=4, remove_unused_columns=False)
        rows = datasets.Dataset.from_dict({**columns, "images": [None] * len(TEXTS)})
        model = decoder(attn_implementation="eager")
        collator = cls(tokenizer, model=model, **options)
        trainer = Trainer(model, settings, collator, rows)
        trainer.train()
        done[cls.__name__] = trainer
