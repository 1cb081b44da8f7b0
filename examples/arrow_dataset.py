"""Feed a DataLoader from a dataset on disk: Python lists with transformers' collator, Arrow data with quadrat's.

The script tokenises the docstrings of installed packages, saves them and loads them as a memory-mapped dataset. A
plain `datasets.Dataset` makes Python lists from the rows of a batch, and transformers' collator makes tensors from
the lists. With `quadrat.ArrowDataset`, quadrat's collator reads the rows in the Arrow data. Both mask tokens for
language modelling with the same seed. If the batches are not identical, the exit status is 1. It takes 15 seconds.

    python examples/arrow_dataset.py
    python examples/arrow_dataset.py --per-package 100 --workers 0 --batch-size 8
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive the fork of workers

import datasets
import torch
import transformers
from corpus import docstrings, train_tokenizer
from torch.utils.data import DataLoader

import quadrat


def epoch(loader: DataLoader) -> tuple[list[dict[str, torch.Tensor]], float]:
    """All batches, and batches per second."""
    torch.manual_seed(1)  # sets the order and, through the workers' seeds, the masks
    start = time.perf_counter()
    batches = [dict(batch) for batch in loader]
    return batches, len(batches) / (time.perf_counter() - start)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def main() -> int:
    parser = argparse.ArgumentParser(description="Batches per second from a dataset on disk, two ways.")
    parser.add_argument("--per-package", type=int, default=300, help="texts of a package (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches (default: %(default)s)")
    options = parser.parse_args()

    datasets.disable_progress_bars()
    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts)
    with tempfile.TemporaryDirectory() as folder:
        encoded = tokenizer(texts, truncation=True, return_special_tokens_mask=True)
        datasets.Dataset.from_dict(dict(encoded)).save_to_disk(folder)
        dataset = datasets.load_from_disk(folder)
        print(f"{len(dataset)} rows, {dataset.data.nbytes / 1e6:.1f} MB on disk; {options.workers} workers")

        def loader(rows: datasets.Dataset, collator: Callable[[Any], Any]) -> DataLoader:
            return DataLoader(
                rows,
                batch_size=options.batch_size,
                shuffle=True,
                collate_fn=collator,
                num_workers=options.workers,
                persistent_workers=options.workers > 0,
            )

        loaders = (
            loader(dataset, transformers.DataCollatorForLanguageModeling(tokenizer)),
            loader(quadrat.ArrowDataset(dataset), quadrat.DataCollatorForLanguageModeling(tokenizer)),
        )
        reference, ours = (epoch(side)[0] for side in loaders)  # workers start here, so this epoch's time says little
        rates = [epoch(side)[1] for side in loaders]

    if len(reference) != len(ours) or not all(map(same, reference, ours)):
        print("The batches differ, although only their way to the tensors changed.", file=sys.stderr)
        return 1
    print(f"datasets.Dataset and transformers' collator: {rates[0]:8.1f} batches/s")
    print(f"quadrat.ArrowDataset and quadrat's collator: {rates[1]:8.1f} batches/s")
    print(f"{rates[1] / rates[0]:.1f} times as many")
    print(f"All {len(ours)} batches are identical.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
