"""Tokenise and collate with Ray Data, on the cores of this machine. Ray Data also works on several machines.

Ray's workers tokenise the docstrings of installed packages and keep them in the object store, in Arrow.
`iter_torch_batches` gives batches that are masked for language modelling, in two ways. The usual way: Ray makes NumPy
arrays of the rows, and transformers' collator takes a list of dicts. With `quadrat.data.ray.CollateFn`, quadrat's
collator takes the Arrow table. Both use the same seed. If the batches are not identical, the exit status is 1. It
takes half a minute.

    python examples/ray_data.py
    python examples/ray_data.py --per-package 100 --batch-size 64
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere

import pyarrow as pa
import ray
import torch
import transformers
from corpus import docstrings, train_tokenizer
from ray.data.collate_fn import NumpyBatchCollateFn

import quadrat
from quadrat.data.ray import CollateFn


class ReferenceCollateFn(NumpyBatchCollateFn):
    """The usual way: makes a dict of each row and calls transformers' collator."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        rows = [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
        return dict(self.collator(rows))


def epoch(dataset: ray.data.Dataset, collate: Any, batch_size: int) -> tuple[list[dict[str, torch.Tensor]], float]:
    """All batches, and rows per second."""
    start = time.perf_counter()
    batches = list(dataset.iter_torch_batches(batch_size=batch_size, collate_fn=collate))
    seconds = time.perf_counter() - start
    return batches, sum(len(batch["input_ids"]) for batch in batches) / seconds


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def main() -> int:
    parser = argparse.ArgumentParser(description="Rows per second from Ray Data, with either collator.")
    parser.add_argument("--per-package", type=int, default=300, help="texts of a package (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--cpus", type=int, default=2, help="processes of Ray (default: %(default)s)")
    options = parser.parse_args()

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts)

    def tokenize(batch: pa.Table) -> pa.Table:
        encoded = tokenizer(batch.column("text").to_pylist(), truncation=True, return_special_tokens_mask=True)
        return pa.table(dict(encoded))

    ray.init(
        num_cpus=options.cpus,
        include_dashboard=False,
        object_store_memory=200 * 2**20,
        logging_level="error",
        log_to_driver=False,
    )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        table = pa.table({"text": texts})
        start = time.perf_counter()
        dataset = ray.data.from_arrow(table).repartition(options.cpus)
        dataset = dataset.map_batches(tokenize, batch_format="pyarrow").materialize()
        seconds = time.perf_counter() - start
        print(f"{dataset.count()} rows tokenised in {seconds:.1f} s, the start of {options.cpus} workers included")

        def collators() -> tuple[Any, Any]:
            """New collators, each with its own seeded generator."""
            return (
                ReferenceCollateFn(transformers.DataCollatorForLanguageModeling(tokenizer, seed=0)),
                CollateFn(quadrat.DataCollatorForLanguageModeling(tokenizer, seed=0)),
            )

        for collate in collators():
            epoch(dataset.limit(options.batch_size), collate, options.batch_size)  # the first one is slow
        (reference, reference_rate), (ours, rate) = (
            epoch(dataset, collate, options.batch_size) for collate in collators()
        )
    finally:
        ray.shutdown()

    if len(reference) != len(ours) or not all(map(same, reference, ours)):
        print("The batches differ, although only their way to the tensors changed.", file=sys.stderr)
        return 1
    print(f"NumPy batches and transformers' collator: {reference_rate:9.0f} rows/s")
    print(f"Arrow batches and quadrat's collator:     {rate:9.0f} rows/s")
    print(f"{rate / reference_rate:.1f} times as many; all {len(ours)} batches are identical.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
