"""Batches that a `DataLoader` delivers, with the reference's collators and with quadrat's.

Both loaders exist at the same time, their workers persistent, and are read through in turn. Nothing is done with the
batches. First, all of them are compared, made from the same seeds, worker by worker.
"""

from collections import deque
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

import quadrat
from benchmarks.jobs import Job, same, seed, size, timed
from benchmarks.workload import MIN_LENGTH, ROWS, Collate, Feature, encode, pair, shuffled, token_ids

BATCHES = size(40, 3)


def in_memory(**options: Any) -> list[Feature]:
    """The rows of `BATCHES` batches in the order of the corpus, whose lengths are mixed."""
    long_enough = [index for index, ids in enumerate(token_ids()) if len(ids) >= MIN_LENGTH]
    spread = np.linspace(0, len(long_enough) - 1, ROWS * BATCHES).astype(int)
    return [encode(long_enough[index], **options) for index in np.random.default_rng(0).permutation(spread)]


def loader(rows: Any, collate: Collate, workers: int) -> Any:
    return DataLoader(rows, batch_size=ROWS, collate_fn=collate, num_workers=workers, persistent_workers=workers > 0)


def batches(source: Any) -> list[Any]:
    """Copies, for a batch in shared memory holds a file descriptor."""
    seed()
    return [type(batch)({key: value.clone() for key, value in batch.items()}) for batch in source]


def loading(collator: str, workers: int, *, arrow: bool) -> Job:
    """A list of features for both; or a datasets.Dataset in random order, and an ArrowDataset over it."""
    special = collator == "DataCollatorForLanguageModeling"
    if arrow:
        theirs = shuffled(special=special)[0].select(range(ROWS * BATCHES))
        ours = quadrat.ArrowDataset(theirs)
    else:
        theirs = ours = in_memory(**{"return_special_tokens_mask": True} if special else {})
    reference, replacement = (
        loader(rows, collate, workers) for rows, collate in zip((theirs, ours), pair(collator), strict=True)
    )
    ways = {"transformers": lambda: deque(reference, 0), "quadrat": lambda: deque(replacement, 0)}
    facts = {"workers": workers, "rows": ROWS, "batches": BATCHES}
    return Job(ways, facts, check=lambda: same(batches(reference), batches(replacement)), per=BATCHES)


COLLATORS = {"padding": "DataCollatorWithPadding", "masked language modelling": "DataCollatorForLanguageModeling"}
CASES = {
    f"{job}, {rows}, {workers} workers": partial(loading, collator, workers, arrow=arrow)
    for arrow, rows in ((False, "a list of features"), (True, "datasets.Dataset and ArrowDataset"))
    for job, collator in COLLATORS.items()
    for workers in (0, 2)
}
test_dataloader = timed(CASES, seconds=2)
