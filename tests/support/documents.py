"""Tokenizers of transformers that pad in their own way, and rows for them."""

import importlib
import random
from collections.abc import Sequence
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from support.strategies import make_tokenizer

NAMES = ["LayoutLMv2", "LayoutLMv3", "LayoutXLM", "LED", "Luke", "MarkupLM", "MLuke", "RoCBert", "Tapas", "Udop"]


def classes() -> dict[str, Any]:
    """The tokenizers of the installed transformers that pad in their own way; 4.x has two of most."""
    tokenizers = {}
    for title in NAMES:
        name = "roc_bert" if title == "RoCBert" else title.lower()
        for module, cls in ((f"tokenization_{name}", "Tokenizer"), (f"tokenization_{name}_fast", "TokenizerFast")):
            try:
                home = importlib.import_module(f"transformers.models.{name}.{module}")
            except ImportError:
                continue
            candidate = getattr(home, title + cls, None)
            if candidate is not None and (candidate._pad is not PreTrainedTokenizerBase._pad):
                tokenizers[title + cls] = candidate
    return tokenizers


CLASSES = classes()


def make(cls: Any, side: str) -> Any:
    """A tokenizer with the attributes that padding needs."""
    subclass = type(cls.__name__, (cls,), {"pad_token_id": 7, "pad_token": "[PAD]", "pad_token_type_id": 3})
    tokenizer = subclass.__new__(subclass)
    vars(tokenizer).update(vars(make_tokenizer()))
    tokenizer.padding_side = side
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.pad_token_box, tokenizer.pad_token_label = [0, 1, 2, 3], -100
    tokenizer.pad_xpath_tags_seq, tokenizer.pad_xpath_subs_seq = [216] * 5, [1001] * 5
    tokenizer.max_mention_length, tokenizer.entity_pad_token_id, tokenizer.task = 4, 9, None
    tokenizer.max_entity_length = 6
    return tokenizer


def rows_for(name: str, *, seed: int = 0, lengths: Sequence[int] = (3, 1, 6)) -> list[dict[str, Any]]:
    """Rows with the columns that a tokenizer of this name pads."""
    draw, rows = random.Random(seed), []

    def lists(length: int, width: int) -> list[list[int]]:
        return [[draw.randint(0, 999) for _ in range(width)] for _ in range(length)]

    for length in lengths:
        numbers = [draw.randint(8, 300) for _ in range(length)]
        row: dict[str, Any] = {"input_ids": numbers, "attention_mask": [1] * length}
        if "Layout" in name or "Udop" in name:
            row |= {"bbox": lists(length, 4), "labels": numbers[::-1]}
        elif "Markup" in name:
            row |= {"xpath_tags_seq": lists(length, 5), "xpath_subs_seq": lists(length, 5), "token_type_ids": numbers}
        elif "Luke" in name:
            row |= {"entity_ids": numbers[:2], "entity_position_ids": lists(len(numbers[:2]), 4)}
        elif "Tapas" in name:
            row |= {"token_type_ids": lists(length, 7), "numeric_values": [0.5] * length, "labels": [1] * length}
        elif "RoCBert" in name:
            row |= {"input_shape_ids": numbers, "input_pronunciation_ids": numbers}
        else:
            row |= {"global_attention_mask": [1] * length}
        rows.append(row)
    return rows
