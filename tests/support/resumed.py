"""Trainings on streams that stop or are killed, and go on: the rows of each batch, by the step that it was of."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback

import quadrat
from support.streams import Torch
from support.trainer import arguments

LENGTHS = np.random.default_rng(0).integers(1, 12, 45).tolist()
ROWS = [{"input_ids": [number + 1] * length} for number, length in enumerate(LENGTHS)]
WIDTH = 40  # of all batches: accelerate joins those of several processes


class Plain(Torch):
    """A stream without a state, of which each worker has a part."""

    def __init__(self) -> None:
        super().__init__(ROWS, shards_itself=True)


class Counting(IterableDataset):
    """A stream with a state, which counts the rows that are read."""

    def __init__(self, first: Any = 0) -> None:
        self.at, self.first, self.read = first, first, 0

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.first = state["at"]

    def __iter__(self) -> Any:
        self.at, self.first = self.first, 0
        while self.at < len(ROWS):
            self.at, self.read = self.at + 1, self.read + 1
            yield ROWS[self.at - 1]


def of_datasets(shards: int) -> Any:
    return datasets.Dataset.from_list(ROWS).to_iterable_dataset(num_shards=shards)


STREAMS = {
    "batches of a list": lambda: quadrat.BatchedStream(ROWS, WIDTH, window=12),
    "batches": lambda: quadrat.BatchedStream(of_datasets(4), WIDTH, window=12),
    "packs": lambda: quadrat.data.PackedStream(of_datasets(4), 16, window=12),
    "3 shards": lambda: of_datasets(3),
    "concatenated": lambda: datasets.concatenate_datasets([of_datasets(1), of_datasets(1)]),
    "1 shard": lambda: of_datasets(1),
    "mapped": lambda: of_datasets(3).map(lambda rows: {"more": rows["input_ids"]}, batched=True, batch_size=7),
    "buffer": lambda: of_datasets(3).shuffle(seed=3, buffer_size=10),
    "no state": Plain,
    "rows by tokens": lambda: ROWS,
}


def collate(items: Any) -> Any:
    """Items are rows, batches or packs."""
    rows = [row for item in items for row in (item if isinstance(item, list) else [item])]
    ids = torch.zeros(len(rows), WIDTH, dtype=torch.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row["input_ids"])] = torch.as_tensor(row["input_ids"])
    return {"input_ids": ids}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, input_ids: Any) -> Any:
        return {"loss": (self.weight * input_ids.float().mean()) ** 2}


class Recording(Trainer):
    """Keeps the rows of each batch with the step that they are of, in a file too."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rows = [[number for number in dict.fromkeys(row) if number] for row in inputs["input_ids"].tolist()]
        self.record.append([self.state.global_step, rows])
        with self.record_file.open("a") as file:
            print(json.dumps(self.record[-1]), file=file)
        return super().compute_loss(model, inputs, *args, **kwargs)


class Ends(TrainerCallback):
    """Keeps the epoch of each step, and ends after one of them: as a job at its limit does, or killed at an event."""

    def __init__(self, stop: int | None, kill: tuple[str, int] | None) -> None:
        self.stop, self.kill, self.epochs = stop, kill, []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_") and self.kill is not None and self.kill[0] == name:
            return self._ends
        return super().__getattribute__(name)

    def _ends(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= self.kill[1]:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.epochs.append([state.global_step, state.epoch])
        if state.global_step == self.stop:
            control.should_save = control.should_training_stop = True


def train(
    folder: Any,
    stream: Any,
    *,
    stop: int | None = None,
    kill: tuple[str, int] | None = None,
    resume: Any = False,
    callback: Any = quadrat.SetEpochCallback,
    trainer: Any = Recording,
    evaluated: Any = None,
    **options: Any,
) -> Recording:
    """A Trainer after its steps: `record` has [step, rows] of each batch, and `epochs` [step, epoch] of each step."""
    dataset = STREAMS[stream]() if isinstance(stream, str) else stream
    length = {"num_train_epochs": 3} if stream == "rows by tokens" else {"max_steps": 40}
    size = 3 if str(stream) in ("3 shards", "concatenated", "1 shard", "mapped", "buffer", "no state") else 1
    settings = {"save_strategy": "steps", "save_steps": 1000, "per_device_train_batch_size": size, **length, **options}
    ends = Ends(stop, kill)
    callbacks = [ends] if callback is None or stream == "rows by tokens" else [callback(), ends]
    trainer = trainer(
        model=Model(),
        args=arguments(folder, **settings),
        train_dataset=dataset,
        eval_dataset=evaluated,
        data_collator=collate,
        callbacks=callbacks,
    )
    if stream == "rows by tokens":
        quadrat.batch_by_tokens(trainer, WIDTH)
    trainer.record, trainer.epochs, trainer.record_file = [], ends.epochs, Path(folder, "said")
    trainer.record_file.parent.mkdir(parents=True, exist_ok=True)
    trainer.train(resume_from_checkpoint=resume)
    return trainer
