"""The named workloads of what pads besides the collators: `tokenizer.pad`, tokenizing to tensors, and TRL."""

import importlib.util
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quadrat
from cases import Case, corpus, encode, pick, token_ids, tokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.documents import CLASSES, make, rows_for

TRL = importlib.util.find_spec("trl") is not None
if TRL:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import trl.trainer.utils

        from quadrat import trl as ours


def padded(name: str, description: str, tokens: Any, rows: list[dict[str, Any]], **options: Any) -> Case:
    """`tokenizer.pad` and `quadrat.tokenizers.tokenizer_pad`."""
    return Case(
        name,
        description,
        lambda given: tokens.pad(given, **options),
        lambda given: quadrat.tokenizers.tokenizer_pad(tokens, given, **options),
        rows,
    )


def pad_pt() -> Case:
    rows = [encode(index) for index in pick()]
    return padded("tokenizer_pad", "tokenizer.pad to tensors", tokenizer(), rows, return_tensors="pt")


def pad_np() -> Case:
    rows = [encode(index) for index in pick()]
    return padded("tokenizer_pad_np", "tokenizer.pad to arrays", tokenizer(), rows, return_tensors="np")


def pad_to_length() -> Case:
    rows = [encode(index) for index in pick()]
    options = {"padding": "max_length", "max_length": 512, "return_tensors": "pt"}
    return padded("tokenizer_pad_length", "tokenizer.pad to 512 tokens", tokenizer(), rows, **options)


def tokenize() -> Case:
    """Encoding included, which is the same for both."""
    texts, tokens = [corpus().texts[index] for index in pick()], tokenizer()
    options = {"padding": True, "truncation": True, "max_length": 512}
    return Case(
        "tokenize",
        "tokenizer(texts, padding=True) to tensors",
        lambda given: tokens(given, **options, return_tensors="pt"),
        lambda given: quadrat.tokenizers.convert_to_tensors(tokens(given, **options), "pt"),
        texts,
    )


def document(name: str) -> Callable[[], Case]:
    """A tokenizer that pads extra columns."""

    def build() -> Case:
        rows = rows_for(name, lengths=[len(token_ids()[index]) for index in pick()])
        short = name.removesuffix("Tokenizer")
        return padded(short.lower(), f"{short}: tokenizer.pad", make(CLASSES[name], "right"), rows, return_tensors="pt")

    build.__name__ = name
    return build


def of_trl(name: str, room: Any, collator: str, rows: list[dict[str, Any]], **options: Any) -> Case:
    """A collator of TRL and quadrat's subclass; the tokens of the first column are counted."""
    made = room.Original(pad_token_id=0, **options), getattr(room, collator)(pad_token_id=0, **options)
    described = name.replace("_", " ").replace("sft", "SFT").replace("dpo", "DPO")
    return Case(f"trl_{name}", f"TRL: {described}", *made, rows, main=next(iter(rows[0])))


def rows_of(*columns: str) -> list[dict[str, Any]]:
    """Rows that have other documents in each column."""
    picked = [pick(), pick(rows=32, min_length=48), pick(rows=32, min_length=64)]
    each = zip(*picked[: len(columns)], strict=True)
    return [{name: list(token_ids()[i]) for name, i in zip(columns, row, strict=True)} for row in each]


def trl_sft() -> Case:
    return of_trl("sft", ours.sft, "DataCollatorForLanguageModeling", rows_of("input_ids"))


def trl_padding_free() -> Case:
    rows = rows_of("input_ids")
    return of_trl("sft_padding_free", ours.sft, "DataCollatorForLanguageModeling", rows, padding_free=True)


def trl_dpo() -> Case:
    return of_trl("dpo", ours.dpo, "DataCollatorForPreference", rows_of("prompt_ids", "chosen_ids", "rejected_ids"))


def trl_reward() -> Case:
    return of_trl("reward", ours.reward, "DataCollatorForPreference", rows_of("chosen_ids", "rejected_ids"))


def trl_pad() -> Case:
    draw = random.Random(0)
    rows: Any = [torch.from_numpy(np.array(token_ids()[index])) for index in pick()]
    draw.shuffle(rows)
    return Case(
        "trl_pad",
        "TRL: pad, of tensors",
        lambda given: {"input_ids": trl.trainer.utils.pad(given)},
        lambda given: {"input_ids": ours.pad(given)},
        rows,
    )


def builders() -> list[Callable[[], Case]]:
    documents = [
        document(name) for name in ("LayoutLMv3Tokenizer", "MarkupLMTokenizer", "LukeTokenizer", "TapasTokenizer")
    ]
    own = [trl_sft, trl_padding_free, trl_dpo, trl_reward, trl_pad] if TRL else []
    return [pad_pt, pad_np, pad_to_length, tokenize, *documents, *own]
