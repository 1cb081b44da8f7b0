"""The collators of speech that transformers' example scripts define, written plainly."""

import functools
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class CTC:
    """As in the example script."""

    processor: Any
    padding: Any = "longest"
    pad_to_multiple_of: Any = None
    pad_to_multiple_of_labels: Any = None
    feature_extractor_input_name: str = "input_values"

    def __call__(self, features: Any) -> Any:
        name = self.feature_extractor_input_name
        clips = [{name: feature[name]} for feature in features]
        labels = [{"input_ids": feature["labels"]} for feature in features]
        sizes = self.pad_to_multiple_of, self.pad_to_multiple_of_labels
        pad = functools.partial(self.processor.pad, padding=self.padding, return_tensors="pt")
        batch = pad(clips, pad_to_multiple_of=sizes[0])
        padded = pad(labels=labels, pad_to_multiple_of=sizes[1])
        batch["labels"] = padded["input_ids"].masked_fill(padded.attention_mask.ne(1), -100)
        if "attention_mask" in batch:
            batch["attention_mask"] = batch["attention_mask"].to(torch.long)
        return batch


@dataclass
class Seq2Seq:
    """As in the example script."""

    processor: Any
    decoder_start_token_id: int
    forward_attention_mask: bool

    def __call__(self, features: Any) -> Any:
        name = self.processor.model_input_names[0]
        clips = [{name: feature[name]} for feature in features]
        labels = [{"input_ids": feature["labels"]} for feature in features]
        batch = self.processor.feature_extractor.pad(clips, return_tensors="pt")
        if self.forward_attention_mask:
            batch["attention_mask"] = torch.LongTensor([feature["attention_mask"] for feature in features])
        padded = self.processor.tokenizer.pad(labels, return_tensors="pt")
        labels = padded["input_ids"].masked_fill(padded.attention_mask.ne(1), -100)
        if (labels[:, 0] == self.decoder_start_token_id).all().cpu().item():
            labels = labels[:, 1:]
        batch["labels"] = labels
        return batch
