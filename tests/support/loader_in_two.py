"""A training loop as those of accelerate's examples, one process of several: saves the rows that it saw."""

import sys
from pathlib import Path

import datasets
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, set_seed

from support.strategies import make_tokenizer
from support.streams import LENGTHS

set_seed(1)
accelerator = Accelerator(cpu=True)
rows = datasets.Dataset.from_list([{"input_ids": [5] * (1 + length), "number": i} for i, length in enumerate(LENGTHS)])
loader = DataLoader(rows, shuffle=True, collate_fn=DataCollatorWithPadding(make_tokenizer()), batch_size=4)
steps = len(loader)
model = torch.nn.Linear(1, 1)
model, loader = accelerator.prepare(model, loader)
epochs, computed = [], 0
for _ in range(2):
    seen = []
    for batch in loader:
        seen.append(batch["number"].tolist())
        computed += batch["input_ids"].numel()
    epochs.append(seen)
Path(sys.argv[1]).mkdir(exist_ok=True)
torch.save((epochs, computed, steps), Path(sys.argv[1], f"{accelerator.process_index}.pt"))
model, loader = accelerator.free_memory(model, loader)  # which hold threads: a process that ends with them may abort
accelerator.end_training()
