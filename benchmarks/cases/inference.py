"""Inference: `map_by_length` beside a pipeline of transformers, and beside batches of texts sorted by characters.

A BERT of two layers gives each text a label and a score; times are those of the processor. Texts are docstrings, cut at
512 tokens; texts whose numbers of words are drawn from a lognormal distribution; texts of one length; and one text.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from benchmarks.measure import Case, Cases, processor
from benchmarks.workload import MAX_LENGTH, ROWS, corpus, tokenizer


@cache
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    sizes |= {"max_position_embeddings": MAX_LENGTH, "vocab_size": len(tokenizer())}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, num_labels=4)).eval()


def classify(batch: Any) -> list[dict[str, Any]]:
    scores, classes = model()(**batch).logits.softmax(-1).max(-1)
    names = model().config.id2label
    return [{"label": names[one], "score": score} for one, score in zip(classes.tolist(), scores.tolist(), strict=True)]


def by_characters(texts: list[str]) -> list[Any]:
    """As sentence-transformers does it."""
    order = np.argsort([-len(text) for text in texts], kind="stable").tolist()
    found: list[Any] = [None] * len(texts)
    for rows in (order[first : first + ROWS] for first in range(0, len(order), ROWS)):
        batch = tokenizer()([texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt")
        for row, result in zip(rows, classify(batch), strict=True):
            found[row] = result
    return found


def words(lengths: Any) -> list[str]:
    known = " ".join(corpus().texts[:200]).split()
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(known, length)) for length in lengths]


def docstrings(count: int) -> list[str]:
    return [corpus().texts[row] for row in np.random.default_rng(0).permutation(len(corpus().texts))[:count]]


def lognormal(count: int) -> list[str]:
    return words(np.random.default_rng(1).lognormal(4.0, 1.0, count).clip(1, 400).astype(int))


def equal(count: int) -> list[str]:
    return ["of " * 100] * count


def scored(make: Callable[[int], list[str]], count: int) -> Case:
    texts = make(count)
    pipeline = transformers.pipeline("text-classification", model=model(), tokenizer=tokenizer(), device="cpu")
    ways: dict[str, Callable[[], Any]] = {
        f"pipeline(batch_size={ROWS})": lambda: pipeline(texts, batch_size=ROWS, truncation=True),
        "sorted by characters": torch.inference_mode()(partial(by_characters, texts)),
        "quadrat": torch.inference_mode()(
            lambda: quadrat.batching.map_by_length(classify, texts, tokenizer=tokenizer())
        ),
    }

    def check() -> None:
        expected, *others = (way() for way in ways.values())
        for found in others:
            assert [one["label"] for one in found] == [one["label"] for one in expected]
            assert np.allclose([one["score"] for one in found], [one["score"] for one in expected], rtol=0, atol=1e-5)

    return Case(
        ways, {"rows": len(texts)}, check=check, stopwatch=processor, rounds=3 if count > 1 else 101, least=0.95
    )


def cases(*, quick: bool) -> Cases:
    count = 40 if quick else 800
    made = {f"{make.__name__}": partial(scored, make, count) for make in (docstrings, lognormal, equal)}
    return made | {"one text": partial(scored, docstrings, 1)}
