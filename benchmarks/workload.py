"""What benchmarks have in common: rows of real texts, tokenised docstrings, and the job of two collators."""

import functools
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from benchmarks.jobs import Job, size

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))
from corpus import docstrings, train_tokenizer  # noqa: E402

ROWS = 32
MAX_LENGTH = 512
MIN_LENGTH = 32
OLD = transformers.__version__.startswith("4.")

Feature = dict[str, Any]
Collate = Callable[[list[Feature]], Any]


@functools.cache
def corpus() -> Any:
    return docstrings(**size({}, {"packages": ["networkx", "fsspec"], "per_package": 60}))


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


def rows(**options: Any) -> list[Feature]:
    """The usual batch."""
    return [encode(index, **options) for index in pick()]


def only_ids() -> list[Feature]:
    return [{"input_ids": row["input_ids"]} for row in rows()]


def token_rows(tokens: int, *, min_length: int = 384) -> list[np.ndarray]:
    """Rows of `min_length` to `MAX_LENGTH` token ids, `tokens` in all: the corpus repeated and cut anew."""
    stream = np.resize(np.concatenate([np.array(ids) for ids in token_ids()]), tokens)
    most_rows = tokens // min_length + 1
    ends = np.cumsum(np.random.default_rng(0).integers(min_length, MAX_LENGTH, size=most_rows, endpoint=True))
    return [row.copy() for row in np.split(stream, ends[ends < tokens])]


def as_numpy(feature: Feature) -> Feature:
    """The same row with an array in place of each list, as `Dataset.with_format("numpy")` gives it."""
    return {key: np.array(value, dtype=np.int64) for key, value in feature.items()}


def as_torch(feature: Feature) -> Feature:
    """The same row with a tensor in place of each list, as `Dataset.with_format("torch")` gives it."""
    return {key: torch.tensor(value, dtype=torch.int64) for key, value in feature.items()}


def pair(collator: str, **options: Any) -> tuple[Collate, Collate]:
    """A collator of transformers, and quadrat's."""
    arguments = () if collator == "DataCollatorWithFlattening" else (tokenizer(),)
    return getattr(transformers, collator)(*arguments, **options), getattr(quadrat, collator)(*arguments, **options)


def collated(
    collators: tuple[Collate, Collate], features: list[Feature], *, main: str = "input_ids", of: Any = None
) -> Job:
    """The reference's collator and quadrat's; `main` is the column whose tokens are counted.

    of: the features as quadrat gets them, if these are others.
    """
    reference, ours = collators
    ways = {
        "transformers": functools.partial(reference, features),
        "quadrat": functools.partial(ours, features if of is None else of),
    }
    tokens = sum(len(row[main] if isinstance(row, Mapping) else row) for row in features)
    padded = int(np.prod(reference(features)["input_ids"].shape))
    return Job(ways, {"rows": len(features), "tokens": tokens, "padded_tokens": padded})


def by_name(collator: str, features: list[Feature], **options: Any) -> Job:
    return collated(pair(collator, **options), features)


@functools.cache
def saved(*, special: bool = False) -> Any:
    """The corpus as a `datasets.Dataset`, tokenised, saved and memory-mapped, with the types that datasets infers."""
    indices = range(len(corpus().texts))
    return stored([encode(index, return_special_tokens_mask=special) for index in indices])


def stored(rows: list[Feature], **columns: Any) -> Any:
    """Rows of token ids and masks as a memory-mapped `datasets.Dataset`; `columns`: more, of other types."""
    import datasets

    types = {name: datasets.Sequence(datasets.Value("int32" if name == "input_ids" else "int8")) for name in rows[0]}
    dataset = datasets.Dataset.from_list(rows, features=datasets.Features(types))
    for name, values in columns.items():
        dataset = dataset.add_column(name, values)
    folder = tempfile.mkdtemp(prefix="quadrat-bench-")
    dataset.save_to_disk(folder)
    return datasets.load_from_disk(folder)


def shuffled(*, special: bool = False) -> tuple[Any, list[int]]:
    """The corpus behind an indices mapping, in random order, and where the usual 32 rows are in it."""
    order = np.random.default_rng(0).permutation(len(saved(special=special)))
    place = np.argsort(order)
    return saved(special=special).select(order), [int(place[index]) for index in pick()]
