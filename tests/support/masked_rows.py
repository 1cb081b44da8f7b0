"""What rng="philox" makes of rows, worked out row by row, and the rows of the batches that collators make."""

from typing import Any

import numpy as np

import oracles
from support.masking import MASK_VOCABULARY, make_masking_tokenizer, make_pair

NAME = "DataCollatorForLanguageModeling"
TOKENIZER = make_masking_tokenizer()
ROWS = [np.random.default_rng(n).integers(7, 400, size=n).tolist() for n in (5, 1, 40, 129, 33, 0, 12)]


def make(tokenizer: Any = TOKENIZER, **options: Any) -> Any:
    return make_pair(tokenizer, {"rng": "philox", "mlm_probability": 0.4, **options}, NAME, both=False)


def key_of(row: list[int]) -> int:
    out = np.empty(1, np.uint64)
    oracles.row_keys([np.array(row, np.int64)], out)
    return int(out[0])


def masked_row(
    row: list[int], words: Any, *, key: int | None = None, seed: int = 0, epoch: int = 0, collator: Any
) -> tuple[list[int], list[int]]:
    """(ids, labels) of one row by the kernel's oracle."""
    ids, labels = np.array(row, np.int64), np.empty(len(row), np.int64)
    oracles.philox_mask(
        ids,
        np.array(words, np.uint8),
        labels,
        seed=seed,
        epoch=epoch,
        row_key=key_of(row) if key is None else key % 2**64,
        probabilities=(collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob),
        mask_id=MASK_VOCABULARY["[MASK]"],
        vocab_size=len(MASK_VOCABULARY),
    )
    return ids.tolist(), labels.tolist()


def unpadded(batch: Any, lengths: list[int], *, side: str = "right") -> list[tuple[list[int], list[int]]]:
    """(ids, labels) of each row, and that padding is no label."""
    rows = []
    for ids, labels, length in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), lengths, strict=True):
        inside = slice(len(ids) - length, None) if side == "left" else slice(0, length)
        rows.append((ids[inside], labels[inside]))
        rest = labels[: -length or None] if side == "left" else labels[length:]
        assert set(rest) <= {-100}
    return rows


def split(batch: Any, lengths: list[int]) -> list[tuple[list[int], list[int]]]:
    """The same of a flat batch."""
    ids, labels, first = batch["input_ids"][0].tolist(), batch["labels"][0].tolist(), 0
    rows = []
    for length in lengths:
        rows.append((ids[first : first + length], labels[first : first + length]))
        first += length
    assert set(labels[first:]) <= {-100}
    return rows
