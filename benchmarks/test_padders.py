"""What pads besides the collators: `tokenizer.pad`, tokenizing to tensors, and TRL."""

import importlib.util
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import quadrat
from benchmarks.jobs import Job, timed, timed_alone
from benchmarks.workload import ROOT, collated, corpus, pick, rows, token_ids, tokenizer

sys.path.append(str(ROOT / "tests"))
from support.documents import CLASSES, make, rows_for


def padded(tokens: Any, features: list[dict[str, Any]], **options: Any) -> Job:
    """`tokenizer.pad` and `quadrat.tokenizers.tokenizer_pad`."""
    ours = partial(quadrat.tokenizers.tokenizer_pad, tokens, **options)
    return collated((partial(tokens.pad, **options), ours), features)


def tokenize() -> Job:
    """Encoding included, which is the same for both."""
    tokens, options = tokenizer(), {"padding": True, "truncation": True, "max_length": 512}
    ours = lambda batch: quadrat.tokenizers.convert_to_tensors(tokens(batch, **options), "pt")  # noqa: E731
    texts: Any = [corpus().texts[index] for index in pick()]
    return collated((partial(tokens, **options, return_tensors="pt"), ours), texts)


def document(name: str) -> Job:
    """A tokenizer that pads extra columns."""
    features = rows_for(name, lengths=[len(token_ids()[index]) for index in pick()])
    return padded(make(CLASSES[name], "right"), features, return_tensors="pt")


def of_trl(room: str, collator: str, columns: str, **options: Any) -> Job:
    """A collator of TRL and quadrat's subclass, on rows with other documents in each column."""
    ours = importlib.import_module(f"quadrat.trl.{room}")
    names = columns.split()
    picked = [pick(), pick(min_length=48), pick(min_length=64)][: len(names)]
    ids = [[list(token_ids()[index]) for index in column] for column in picked]
    features = [dict(zip(names, row, strict=True)) for row in zip(*ids, strict=True)]
    classes = ours.Original, getattr(ours, collator)
    reference, replacement = (cls(pad_token_id=0, **options) for cls in classes)
    return collated((reference, replacement), features, main=names[0])


def pad_of_trl() -> Job:
    import trl.trainer.utils

    from quadrat import trl as ours

    tensors: Any = [torch.from_numpy(np.array(token_ids()[index])) for index in pick()]
    random.Random(0).shuffle(tensors)
    pads = (lambda values, pad=home.pad: {"input_ids": pad(values)} for home in (trl.trainer.utils, ours))
    return collated((next(pads), next(pads)), tensors)


WIDEST: dict[str, Any] = {"padding": "max_length", "max_length": 512, "return_tensors": "pt"}
LANGUAGE, PREFERENCE = "DataCollatorForLanguageModeling", "DataCollatorForPreference"
CASES: dict[str, Callable[[], Job]] = {
    "tokenizer.pad to tensors": lambda: padded(tokenizer(), rows(), return_tensors="pt"),
    "tokenizer.pad to arrays": lambda: padded(tokenizer(), rows(), return_tensors="np"),
    "tokenizer.pad to 512 tokens": lambda: padded(tokenizer(), rows(), **WIDEST),
    "tokenizer(texts, padding=True) to tensors": tokenize,
}
NAMES = ("LayoutLMv3", "MarkupLM", "Luke", "Tapas")
CASES |= {f"{name}: tokenizer.pad": partial(document, f"{name}Tokenizer") for name in NAMES}
if importlib.util.find_spec("trl") is not None:
    CASES |= {
        "TRL: SFT": lambda: of_trl("sft", LANGUAGE, "input_ids"),
        "TRL: SFT padding free": lambda: of_trl("sft", LANGUAGE, "input_ids", padding_free=True),
        "TRL: DPO": lambda: of_trl("dpo", PREFERENCE, "prompt_ids chosen_ids rejected_ids"),
        "TRL: reward": lambda: of_trl("reward", PREFERENCE, "chosen_ids rejected_ids"),
        "TRL: pad, of tensors": pad_of_trl,
    }
test_cold = timed(CASES)
test_warm = timed_alone(CASES, small=1, said_as="warm_ns")
