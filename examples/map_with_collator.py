"""Collate inside `Dataset.map`: a slice of the dataset is a dict of lists, which quadrat's collators take.

Two processes pad the rows to one length and store them: once with transformers' collator, on a list of dicts, and
once with quadrat's. (In transformers only DataCollatorWithPadding also takes a dict of lists.) `map` identifies a
function by a hash of all that it holds. A quadrat collator has the same hash before and after a call, so a second
`map` finds its result in the cache. If the columns differ, or the result is not in the cache, the exit status is 1.
It takes 15 seconds.

    python examples/map_with_collator.py
    python examples/map_with_collator.py --per-package 100 --length 64 --processes 1
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive the fork of processes

import datasets
import transformers
from corpus import docstrings, train_tokenizer

import quadrat

Columns = dict[str, list[Any]]


def written(dataset: datasets.Dataset) -> dict[str, int]:
    """The files of a dataset and when they were written."""
    return {file["filename"]: Path(file["filename"]).stat().st_mtime_ns for file in dataset.cache_files}


def main() -> int:
    parser = argparse.ArgumentParser(description="Pad a dataset inside Dataset.map with each collator.")
    parser.add_argument("--per-package", type=int, default=300, help="texts of a package (default: %(default)s)")
    parser.add_argument("--length", type=int, default=512, help="tokens of a stored row (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes of `map` (default: %(default)s)")
    options = parser.parse_args()

    datasets.disable_progress_bars()
    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, max_length=options.length)
    how: dict[str, Any] = {"padding": "max_length", "max_length": options.length, "return_tensors": "np"}
    reference = transformers.DataCollatorWithPadding(tokenizer, **how)
    collator = quadrat.DataCollatorWithPadding(tokenizer, **how)

    def pad_with_reference(batch: Columns) -> Columns:
        rows = [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
        return dict(reference(rows))

    def pad(batch: Columns) -> Columns:
        return dict(collator(batch))

    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset.from_dict(dict(tokenizer(texts, truncation=True))).save_to_disk(folder)
        dataset = datasets.load_from_disk(folder)

        def mapped(function: Any) -> tuple[datasets.Dataset, float]:
            start = time.perf_counter()
            result = dataset.map(function, batched=True, batch_size=256, num_proc=options.processes)
            return result, time.perf_counter() - start

        expected, reference_seconds = mapped(pad_with_reference)
        padded, seconds = mapped(pad)
        files = written(padded)
        collator(dataset[:8])  # its plan cache must not change the hash
        again, cached_seconds = mapped(pad)
        cached = again._fingerprint == padded._fingerprint and written(again) == files
        equal = expected.data.table.equals(padded.data.table)

    print(
        f"{len(padded)} rows padded to {options.length} tokens in {options.processes} processes, their start included"
    )
    print(f"transformers' collator on a list of dicts: {reference_seconds:6.2f} s")
    print(f"quadrat's on the dict of lists:            {seconds:6.2f} s")
    print(f"the same again, from the cache:            {cached_seconds:6.2f} s")
    if not (equal and cached):
        print("The columns differ." if cached else "The cached result was not found.", file=sys.stderr)
        return 1
    print("The columns are identical, and the second time nothing was computed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
