"""One of two processes that train with a BatchedDataset: the rows of each batch, epoch by epoch, go into a file."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertForSequenceClassification

import quadrat
from support.trainer import PositioningCollator, arguments, tiny

FOLDER = Path(sys.argv[1])
LENGTHS = np.random.default_rng(0).integers(3, 30, 60).tolist()
ROWS = [{"input_ids": [row + 3] * n, "label": row % 2} for row, n in enumerate(LENGTHS)]


def collate(items: Any) -> Any:
    """As a collate function of one's own."""
    (rows,) = items
    width = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows]
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor([row["label"] for row in rows])}


sampler = quadrat.TokenBudgetBatchSampler(LENGTHS, 64, world_size=2, rank=None)
trainer = PositioningCollator(
    model=tiny(BertForSequenceClassification, num_labels=2),
    args=arguments(FOLDER, per_device_train_batch_size=1, num_train_epochs=2, ddp_backend="gloo"),
    train_dataset=quadrat.data.BatchedDataset(ROWS, sampler),
    data_collator=collate,
    callbacks=[quadrat.SetEpochCallback()],
)
trainer.train()
steps = len(sampler) // 2
seen = [[number - 3 for number in numbers] for numbers, _ in trainer.seen]
epochs = [seen[first : first + steps] for first in range(0, len(seen), steps)]
torch.save(epochs, FOLDER / f"{os.environ['RANK']}.pt")
