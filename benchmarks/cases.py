"""The named workloads: real tokenised docstrings, collated by transformers and by quadrat.

To add a workload, write a function that returns a `Case` and put it into `BUILDERS`; language_cases.py has the rest.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from quadrat.cli.measure import Collate, Feature

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from corpus import Corpus, docstrings, train_tokenizer

ROWS = 32
MAX_LENGTH = 512
MIN_LENGTH = 32


@dataclass(frozen=True)
class Case:
    """One batch and the two collators that turn it into tensors."""

    name: str
    description: str
    reference: Collate
    quadrat: Collate
    features: list[Feature]
    main: str = "input_ids"  # the column whose tokens are counted


@functools.cache
def corpus() -> Corpus:
    return docstrings()


@functools.cache
def tokenizer() -> Any:
    return train_tokenizer(corpus().texts, max_length=MAX_LENGTH)


@functools.cache
def token_ids() -> list[list[int]]:
    """The token ids of every text of the corpus, truncated to `MAX_LENGTH`."""
    encoded = tokenizer()(corpus().texts, truncation=True, max_length=MAX_LENGTH)
    return encoded["input_ids"]  # type: ignore[no-any-return]


def pick(rows: int = ROWS, *, min_length: int = MIN_LENGTH) -> list[int]:
    """Indices of `rows` texts of at least `min_length` tokens, spread evenly over the texts sorted by length."""
    lengths = np.array([len(ids) for ids in token_ids()])
    candidates = np.flatnonzero(lengths >= min_length)
    by_length = candidates[np.argsort(lengths[candidates], kind="stable")]
    spread = by_length[np.linspace(0, len(by_length) - 1, rows).round().astype(int)]
    # Batches of a shuffled data set are not sorted by length.
    return [int(index) for index in np.random.default_rng(0).permutation(spread)]


def encode(index: int, *, max_length: int = MAX_LENGTH, **options: Any) -> Feature:
    """Tokenise one text anew, so that no two rows share a list or an integer above Python's cache of small ones."""
    return dict(tokenizer()(corpus().texts[index], truncation=True, max_length=max_length, **options))


def token_rows(tokens: int, *, min_length: int = 384) -> list[np.ndarray]:
    """Rows of `min_length` to `MAX_LENGTH` token ids, `tokens` in all: the corpus repeated and cut anew."""
    stream = np.resize(np.concatenate([np.array(ids) for ids in token_ids()]), tokens)
    most_rows = tokens // min_length + 1
    ends = np.cumsum(np.random.default_rng(0).integers(min_length, MAX_LENGTH, size=most_rows, endpoint=True))
    return [row.copy() for row in np.split(stream, ends[ends < tokens])]


def padding(name: str, description: str, features: list[Feature]) -> Case:
    """A case of `DataCollatorWithPadding`."""
    return Case(
        name,
        description,
        transformers.DataCollatorWithPadding(tokenizer()),
        quadrat.DataCollatorWithPadding(tokenizer()),
        features,
    )


def pad_lists() -> Case:
    return padding("pad_lists", "padding, Python lists", [encode(index) for index in pick()])


def as_numpy(feature: Feature) -> Feature:
    """The same row with an array in place of each list, as `Dataset.with_format("numpy")` gives it."""
    return {key: np.array(value, dtype=np.int64) for key, value in feature.items()}


def as_torch(feature: Feature) -> Feature:
    """The same row with a tensor in place of each list, as `Dataset.with_format("torch")` gives it."""
    return {key: torch.tensor(value, dtype=torch.int64) for key, value in feature.items()}


def pad_numpy() -> Case:
    return padding("pad_numpy", "padding, NumPy arrays", [as_numpy(encode(index)) for index in pick()])


def pad_torch() -> Case:
    return padding("pad_torch", "padding, torch tensors", [as_torch(encode(index)) for index in pick()])


def pad_numpy_label() -> Case:
    features = [{**as_numpy(encode(index)), "label": np.int64(corpus().labels[index])} for index in pick()]
    return padding("pad_numpy_label", "padding, NumPy arrays with a NumPy scalar label", features)


def pad_torch_label() -> Case:
    features = [{**as_torch(encode(index)), "label": torch.tensor(int(corpus().labels[index]))} for index in pick()]
    return padding("pad_torch_label", "padding, torch tensors with a 0-d label tensor", features)


def token_classification() -> Case:
    features = []
    for index in pick():
        encoded = tokenizer()(corpus().texts[index], truncation=True, max_length=MAX_LENGTH)
        words = encoded.word_ids(0)
        first_piece = [word is not None and word != before for before, word in zip([None, *words], words, strict=False)]
        # `tolist` makes every -100 an object of its own, as a row read from a data set has them.
        labels = np.where(first_piece, corpus().labels[index], -100).tolist()
        features.append({**encoded, "labels": labels})
    return Case(
        "token_classification",
        "padding with token labels, Python lists",
        transformers.DataCollatorForTokenClassification(tokenizer()),
        quadrat.DataCollatorForTokenClassification(tokenizer()),
        features,
    )


def default_collator() -> Case:
    return Case(
        "default_collator",
        "equal lengths of 128 with a label, Python lists",
        transformers.default_data_collator,
        quadrat.default_data_collator,
        [
            {**encode(index, max_length=128, padding="max_length"), "label": int(corpus().labels[index])}
            for index in pick()
        ],
    )


def single_short_row() -> Case:
    return padding("single_short_row", "padding, one row of 8 tokens", [encode(pick(1)[0], max_length=8)])


BUILDERS: dict[str, Callable[[], Case]] = {
    build.__name__: build
    for build in (
        pad_lists,
        pad_numpy,
        pad_torch,
        pad_numpy_label,
        pad_torch_label,
        token_classification,
        default_collator,
        single_short_row,
    )
}
