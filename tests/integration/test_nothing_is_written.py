"""Nothing of the user's is written to: arguments, configs, datasets, tokenizers and loaders stay as they were.

The Trainer that `batch_by_tokens` is given changes, as it says; the arguments that it was made with do not.
"""

import copy
import inspect
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader
from transformers import BertForSequenceClassification, BertForTokenClassification, TrainingArguments

import quadrat
from support import samples
from support.public import PUBLIC
from support.strategies import make_tokenizer
from support.trainer import DETERMINISTIC, PositioningCollator, arguments, tiny

IS_NEW = "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
BY_LENGTH = {"train_sampling_strategy": "group_by_length"} if IS_NEW else {"group_by_length": True}
# The parameters by which public functions take what is the user's.
OF_USERS = {"trainer", "dataset", "tokenizer", "collator", "model", "processor", "lengths"}


class Things:
    """What a user has, new each time."""

    def __init__(self, folder: Any, **options: Any) -> None:
        sizes = [1 + 7 * row % 23 for row in range(24)]
        self.rows = [{"input_ids": [5 + row] * size, "labels": row % 2} for row, size in enumerate(sizes)]
        self.lengths, self.dataset = np.array(sizes), datasets.Dataset.from_list(self.rows)
        self.tokenizer = make_tokenizer()
        self.collator = quadrat.DataCollatorWithPadding(self.tokenizer)
        self.model = tiny(BertForSequenceClassification, **DETERMINISTIC)
        self.args = arguments(folder, **{"num_train_epochs": 1, **options})
        self.loader = DataLoader(self.rows, batch_size=4, shuffle=True, collate_fn=self.collator)
        self.trainer()  # which changes the config of its model

    def trainer(self) -> Any:
        options = {"model": self.model, "args": self.args, "data_collator": self.collator}
        return PositioningCollator(train_dataset=self.dataset, eval_dataset=self.dataset, **options)

    def facts(self) -> Any:
        """All that can be seen of them."""
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        told = {name: value for name, value in backend.items() if name not in ("padding", "truncation")}  # of a call
        public = {name: value for name, value in vars(self.collator).items() if not name.startswith("_quadrat")}
        attributes = [repr(sorted(of.items())) for of in (vars(self.args), public)]
        shared = {name: value for name, value in vars(self.tokenizer).items() if name != "_tokenizer"}
        weights = {name: (value.data_ptr(), value._version) for name, value in self.model.named_parameters()}
        return copy.deepcopy(
            {
                "rows": self.rows,
                "lengths": self.lengths.tolist(),
                "dataset": (self.dataset._fingerprint, self.dataset.format, self.dataset[:]),
                "tokenizer": (told, repr(shared)),
                "args and collator": attributes,
                "model": (self.model.config.to_dict(), weights, self.model.training, sorted(vars(self.model))),
                "loader": {name: id(value) for name, value in vars(self.loader).items()},
            }
        )


def read(items: Any) -> None:
    for _ in items:
        pass


def called(make: Callable[[], Any], batch: Callable[[], Any]) -> Callable[[Things], None]:
    """A collator's batch, by what makes the collator and its features."""

    def collate(_: Things) -> None:
        collator, features = make(), batch()
        holder = getattr(collator, "processor", collator)
        before = [repr(features), *(repr(vars(of)) for of in users_of(holder))]
        collator(features)
        assert [repr(features), *(repr(vars(of)) for of in users_of(holder))] == before

    return collate


def users_of(holder: Any) -> list[Any]:
    parts = (getattr(holder, name, None) for name in ("tokenizer", "feature_extractor", "config"))
    return [part for part in parts if part is not None]


def by_tokens(of: Things) -> None:
    read(quadrat.batch_by_tokens(of.loader, 64, lengths=of.lengths))
    for options in ({"lengths": of.lengths}, {"attention": "auto"}, {"max_tokens": 64}):
        quadrat.batch_by_tokens(of.trainer(), **options).steps  # noqa: B018


def told_epochs(of: Things) -> None:
    loader = SimpleNamespace(dataset=quadrat.PackedDataset(of.rows, 64), collate_fn=of.collator)
    state = SimpleNamespace(epoch=0.0, global_step=0, stateful_callbacks={})
    callback = quadrat.SetEpochCallback()
    for event in (callback.on_train_begin, callback.on_epoch_begin, callback.on_step_begin):
        event(of.args, state, None, train_dataloader=loader)


def by_length(of: Things) -> None:
    for options in ({"collator": of.collator}, {"tokenizer": of.tokenizer}):
        read(quadrat.batching.by_length(of.dataset, lengths=of.lengths, **options))
        quadrat.batching.map_by_length(lambda batch: batch["input_ids"], of.rows, **options)
    quadrat.batching.map_by_length(lambda batch: batch["input_ids"], ["w1 w2", "w3"], tokenizer=of.tokenizer)


def checked(model: Any) -> None:
    before = model.config.to_dict(), sorted(vars(model)), model.training
    quadrat.check_packing(model, quadrat.DataCollatorWithFlattening())
    assert (model.config.to_dict(), sorted(vars(model)), model.training) == before


def without_padding(of: Things) -> None:
    with quadrat.remove_padding(of.model):
        of.model(**of.collator([{"input_ids": row["input_ids"]} for row in of.rows[:4]]))


CASES: dict[str, Callable[[Things], Any]] = {
    "DataCollatorForWholeWordMask": called(
        lambda: quadrat.DataCollatorForWholeWordMask(samples.tokenizer()),
        lambda: [{"input_ids": [5, 6, 7], "offset_mapping": [(0, 2), (2, 4), (5, 6)]} for _ in range(3)],
    ),
    **{
        name: called(lambda name=name: samples.make(quadrat, name), lambda name=name: samples.batch(name))
        for name in samples.CLASSES
    },
    "tokenizer_pad": lambda of: quadrat.tokenizers.tokenizer_pad(of.tokenizer, of.rows[:4], return_tensors="pt"),
    "lengths": lambda of: [quadrat.lengths(data) for data in (of.dataset, of.rows)],
    "TokenBudgetBatchSampler": lambda of: read(quadrat.TokenBudgetBatchSampler(of.lengths, 64)),
    "LengthGroupedSampler": lambda of: read(quadrat.batching.LengthGroupedSampler(4, of.dataset)),
    "ArrowDataset": lambda of: of.collator(quadrat.ArrowDataset(of.dataset)[:4]),
    "PackedDataset": lambda of: read(quadrat.PackedDataset(of.dataset, 64, lengths=of.lengths, columns=["input_ids"])),
    "BatchedDataset": lambda of: read(
        quadrat.data.BatchedDataset(of.dataset, quadrat.TokenBudgetBatchSampler(of.lengths, 64))
    ),
    "BatchedStream": lambda of: read(quadrat.BatchedStream(of.dataset.to_iterable_dataset(), 64)),
    "PackedStream": lambda of: read(quadrat.data.PackedStream(of.rows, 64, columns=["input_ids"])),
    "plan_packs": lambda of: quadrat.batching.plan_packs(of.lengths, 64, counts=of.lengths, max_count=64),
    "unpad": lambda of: quadrat.unpad(np.zeros((24, 32)), lengths=of.lengths),
    "from_transformers": lambda of: quadrat.from_transformers(transformers.DataCollatorWithPadding(of.tokenizer)),
    "mask_tokens": lambda of: quadrat.mask_tokens(
        np.full((24, 32), 5), mask_token_id=4, vocab_size=300, rng="philox", lengths=of.lengths
    ),
    "batch_by_tokens": by_tokens,
    "SetEpochCallback": told_epochs,
    "by_length": by_length,
    "map_by_length": by_length,
    "remove_padding": without_padding,
    "check_packing": lambda of: checked(tiny(BertForTokenClassification)),
}


def test_each_function_has_a_case():
    needed = set()
    for package in PUBLIC:
        for name in package.__all__:
            if callable(thing := getattr(package, name)) and OF_USERS & inspect.signature(thing).parameters.keys():
                needed.add(name)
    assert needed <= CASES.keys()
    assert "batch_by_tokens" in needed


@pytest.mark.parametrize("name", CASES)
def test_all_stay_as_they_were(tmp_path, name):
    of = Things(tmp_path, **BY_LENGTH)
    before = of.facts()
    CASES[name](of)
    assert of.facts() == before


@pytest.mark.parametrize("options", [{}, BY_LENGTH, {"max_steps": 4}, {"gradient_accumulation_steps": 2}])
def test_arguments_serve_a_second_trainer(tmp_path, options):
    """It trains as many steps, on the same rows, as if no other had been made with them."""
    of = Things(tmp_path / "first", **options)
    second = of.trainer()
    second.train()
    of = Things(tmp_path / "second", save_strategy="steps", save_steps=2, **options)
    before = of.facts()
    first = of.trainer()
    quadrat.batch_by_tokens(first, 64)
    assert of.facts() == before
    first.train()
    again = of.trainer()
    assert again.args is first.args
    again.model.load_state_dict(Things(tmp_path).model.state_dict())
    again.train()
    assert again.state.global_step == second.state.global_step
    assert (again.numbers, again.losses) == (second.numbers, second.losses)


def test_logs_and_checkpoints_name_the_batch_size(tmp_path):
    of = Things(tmp_path, save_strategy="steps", save_steps=2)
    trainer = of.trainer()
    quadrat.batch_by_tokens(trainer, 64)
    trainer.train()
    saved = torch.load(tmp_path / "checkpoint-2" / "training_args.bin", weights_only=False)
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    assert saved.per_device_train_batch_size == state["train_batch_size"] == trainer.state.train_batch_size == 4
    resumed = of.trainer()
    quadrat.batch_by_tokens(resumed, 64)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.numbers == trainer.numbers[-len(resumed.numbers) :]
    assert resumed.state.global_step == trainer.state.global_step


def test_a_training_dataset_that_is_replaced_has_its_own_batches(tmp_path):
    of = Things(tmp_path)
    trainer = of.trainer()
    quadrat.batch_by_tokens(trainer, 64)
    trainer.train_dataset = of.dataset
    assert trainer.get_train_dataloader().total_batch_size == 4
