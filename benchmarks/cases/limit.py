"""How close padding from Arrow comes to the memory's limit: a memcpy of the tokens and a fill of the padding.

Both write the same bytes of three int64 columns; the limit into existing memory, the collator into new tensors.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import quadrat
from benchmarks.measure import Case, Cases
from benchmarks.workload import token_rows, tokenizer
from quadrat.input.rows import rows_of_arrow

COLUMNS = ("input_ids", "token_type_ids", "attention_mask")
SIZES = (14_000, 100_000, 1_000_000, 10_000_000)


def arrow(rows: list[np.ndarray], kind: str) -> pa.Table:
    """Three columns of these rows, as lists of `kind`."""
    offsets = pa.array(np.cumsum([0, *map(len, rows)]), pa.int32())
    values = pa.array(np.concatenate(rows).astype(kind))
    return pa.table({name: pa.ListArray.from_arrays(offsets, values) for name in COLUMNS})


def copying(rows: list[np.ndarray]) -> Callable[[], None]:
    """A function that copies the bytes of the columns and fills those of the padding."""
    tokens, padded = sum(map(len, rows)), len(rows) * max(map(len, rows))
    sources = [np.concatenate(rows).astype(np.int64) for _ in COLUMNS]
    targets = [np.ones(padded, np.int64) for _ in COLUMNS]

    def copy_and_fill() -> None:
        for source, target in zip(sources, targets, strict=True):
            np.copyto(target[:tokens], source)
            target[tokens:].fill(0)

    return copy_and_fill


def check(rows: list[np.ndarray], batch: Any) -> None:
    for i, row in enumerate(rows):
        for name in COLUMNS:
            assert np.array_equal(batch[name][i, : len(row)], row), (name, i)
    assert all(int(batch[name].sum()) == sum(int(row.sum()) for row in rows) for name in COLUMNS)


def limit(kind: str, tokens: int) -> Case:
    rows = token_rows(tokens)
    collator, features = quadrat.DataCollatorWithPadding(tokenizer()), rows_of_arrow(arrow(rows, kind))
    batch = collator(features)
    ways = {"memcpy and fill": copying(rows), "quadrat": partial(collator, features)}
    facts = {"tokens": tokens, "rows": len(rows), "arrow": kind}
    facts["padded_bytes"] = sum(batch[name].nbytes for name in COLUMNS)
    effort: Any = {"rounds": 15, "seconds": 2, "shortest": 400_000, "alone": 1 / 4}
    return Case(ways, facts, base="memcpy and fill", check=partial(check, rows, batch), **effort)


def cases(*, quick: bool) -> Cases:
    sizes = SIZES[: 2 if quick else None]
    return {
        f"{kind}, {tokens:,} tokens": partial(limit, kind, tokens) for kind in ("int64", "int32") for tokens in sizes
    }
