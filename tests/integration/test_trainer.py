"""A Trainer run: the same losses, step by step, with workers, with samplers, and where it was stopped and resumed."""

import functools
import warnings
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
    trainer_pt_utils,
)

import quadrat
from support.compare import both
from support.masking import make_masking_tokenizer
from support.strategies import make_tokenizer
from support.streams import Torch
from support.trainer import Losses, Stop, arguments, tiny, trained


def rows(label: str | None) -> list[dict[str, object]]:
    """label: None, "label" for one of each row or "labels" for one of each token."""
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(48):
        ids = random.integers(3, 400, random.integers(4, 20)).tolist()
        labels = random.integers(0, 3, len(ids)).tolist() if label == "labels" else int(random.integers(0, 3))
        row = {"input_ids": ids, "token_type_ids": [0] * len(ids), "attention_mask": [1] * len(ids)}
        drawn.append(row if label is None else {**row, label: labels})
    return drawn


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "model_class", "label"),
    [
        ("DataCollatorWithPadding", BertForSequenceClassification, "label"),
        ("DataCollatorForTokenClassification", BertForTokenClassification, "labels"),
    ],
)
def test_same_losses(name, model_class, label, workers, tmp_path):
    args = arguments(tmp_path, max_steps=8, dataloader_num_workers=workers)
    collators = both(name, make_tokenizer())
    expected, got = (trained(model_class, rows(label), args, data_collator=collator).losses for collator in collators)
    assert got == expected


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_what_trainer_uses_by_itself(with_tokenizer, tmp_path):
    """Inside a patch a Trainer without `data_collator` collates with quadrat, to the same losses."""
    short = {"token_type_ids": [0] * 4, "attention_mask": [1] * 4}
    dataset = [{**row, "input_ids": row["input_ids"][:4], **short} for row in rows("label")]
    options = {"processing_class": make_tokenizer() if with_tokenizer else None}
    args = arguments(tmp_path, max_steps=8)
    before = trained(BertForSequenceClassification, dataset, args, **options)
    with quadrat.patch_transformers():
        inside = trained(BertForSequenceClassification, dataset, args, **options)
    for trainer, module in ((before, transformers), (inside, quadrat)):
        if with_tokenizer:
            assert type(trainer.data_collator) is module.DataCollatorWithPadding
        else:
            assert trainer.data_collator is module.default_data_collator
    assert inside.losses == before.losses


IS_NEW = "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
BY_LENGTH = {"train_sampling_strategy": "group_by_length"} if IS_NEW else {"group_by_length": True}


@pytest.mark.parametrize("given_lengths", [False, True])
def test_same_losses_by_length(given_lengths, tmp_path):
    dataset = datasets.Dataset.from_list(rows("label")).shuffle(seed=0)
    if given_lengths:
        dataset = dataset.add_column("length", quadrat.lengths(dataset))
    options = {"max_steps": 8, "gradient_accumulation_steps": 2, **BY_LENGTH}

    def run():
        set_seed(1)
        collator = quadrat.DataCollatorWithPadding(make_tokenizer())
        args = arguments(tmp_path, **options)
        trainer = trained(BertForSequenceClassification, dataset, args, data_collator=collator)
        loader = trainer.get_train_dataloader()
        return trainer.losses, type(trainer._get_train_sampler()), [batch["input_ids"].shape for batch in loader]

    expected, reference, shapes = run()
    with quadrat.patch_transformers():
        got, ours, shapes_inside = run()
    assert (got, shapes_inside) == (expected, shapes)
    assert reference is trainer_pt_utils.LengthGroupedSampler
    assert ours is quadrat.batching.LengthGroupedSampler


STEPS = 6  # an epoch
BATCH = 4


class Recording(Losses):
    """Keeps each step's masked batch and loss."""

    seen: list[tuple[Any, Any]]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        batch = inputs["input_ids"].tolist(), inputs["labels"].tolist()
        result = super().compute_loss(model, inputs, *args, **kwargs)
        self.seen.append((batch, self.losses[-1]))
        return result


def dataset() -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    lengths = random.integers(4, 20, STEPS * BATCH)
    return [{"input_ids": random.integers(7, 400, n).tolist(), "attention_mask": [1] * int(n)} for n in lengths]


def run(folder: Any, *, workers: int = 0, stop: int | None = None, resume: bool = False, callback: Any = True) -> Any:
    """What each step of two epochs saw, from the same start."""
    collator = quadrat.DataCollatorForLanguageModeling(
        make_masking_tokenizer(), rng="philox", seed=11, mlm_probability=0.4
    )
    callbacks = [quadrat.SetEpochCallback()] if callback is True else [callback] if callback else []
    args = arguments(
        folder, num_train_epochs=2, per_device_train_batch_size=BATCH, dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0, save_strategy="steps", save_steps=stop or 1000,
    )  # fmt: skip
    trainer = Recording(
        model=tiny(BertForMaskedLM, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        args=args,
        train_dataset=dataset(),
        data_collator=collator,
        callbacks=callbacks + ([Stop(stop)] if stop else []),
    )
    trainer.seen = []
    # What workers do to torch's generator is theirs: dropout is off, and masks do not come from it.
    trainer.train(resume_from_checkpoint=resume)
    return trainer.seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    seen = run(tmp_path_factory.mktemp("whole"))
    assert len(seen) == 2 * STEPS
    return seen


def row_of_labels(seen: list[Any]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """What was masked of each row, by its first step."""
    return {
        tuple(token if label == -100 else label for token, label in zip(ids, labels, strict=True) if token != 0): tuple(
            label for token, label in zip(ids, labels, strict=True) if token != 0
        )
        for (batch_ids, batch_labels), _ in seen
        for ids, labels in zip(batch_ids, batch_labels, strict=True)
    }


@pytest.mark.parametrize("stop", [STEPS, STEPS // 2, STEPS + 2], ids=["between", "in the first", "in the second"])
def test_resumed_runs_see_the_same_masks(whole: list[Any], stop: int, tmp_path: Any) -> None:
    first = run(tmp_path, stop=stop)
    rest = run(tmp_path, resume=True)
    assert [batch for batch, _ in first + rest] == [batch for batch, _ in whole]
    assert np.allclose([loss for _, loss in first + rest], [loss for _, loss in whole], rtol=1e-5)


def test_workers_that_live_on_see_the_same_masks(whole: list[Any], tmp_path: Any) -> None:
    assert [batch for batch, _ in run(tmp_path, workers=2)] == [batch for batch, _ in whole]


def test_each_epoch_masks_anew(whole: list[Any], tmp_path: Any) -> None:
    first, second = row_of_labels(whole[:STEPS]), row_of_labels(whole[STEPS:])
    assert first.keys() == second.keys()
    assert len(first) == STEPS * BATCH
    assert sum(first[row] == second[row] for row in first) < STEPS
    with pytest.warns(UserWarning, match="no epoch was set, so a row is masked alike in all 2 epochs"):
        without = run(tmp_path, callback=None)
    assert row_of_labels(without[STEPS:]) == row_of_labels(without[:STEPS]) == first, "without the callback"


def test_a_collator_without_epochs_is_refused(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="has no set_epoch"):
        run(tmp_path, callback=quadrat.SetEpochCallback(object()))


def test_epochs_that_stand_still_are_counted() -> None:
    """Where a data set has no length, Trainer's epoch is less than one for long."""
    collator = quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), rng="philox")
    callback, seen = quadrat.SetEpochCallback(collator), []
    state = transformers.TrainerState()
    for start in (0, 2):
        callback.on_train_begin(None, state, None)
        for state.epoch in (start + 0.0, start + 0.3, start + 0.6):
            callback.on_epoch_begin(None, state, None)
            seen.append(collator.epoch)
    assert seen == [0, 1, 2, 2, 3, 4]
    loader = torch.utils.data.DataLoader([], collate_fn=collator)
    quadrat.SetEpochCallback().on_epoch_begin(None, state, None, train_dataloader=loader)
    assert collator.epoch == 2


class Later(TrainerCallback):
    """Sets the epoch of the next epoch at the end of one."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.collator.set_epoch(round(state.epoch))


SETS_EPOCHS = {"none": [], "usual": [lambda collator: quadrat.SetEpochCallback()], "later": [Later]}


def said_of_epochs(
    folder: Any, *, sets: str = "none", cls: Any = Trainer, rows: Any = None, **overrides: Any
) -> list[str]:
    """Warnings, those of workers too, in a training by counter, with an evaluation in between."""
    collator = quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), rng="philox")
    evaluated = dataset()[:BATCH]
    for _ in range(3):
        collator(evaluated)
    with (folder / "said").open("w+") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "showwarning", lambda warning, *_: print(warning, file=file, flush=True))
        options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_train_batch_size": BATCH, **overrides}
        trainer = cls(
            model=tiny(BertForMaskedLM),
            args=arguments(folder, **options),
            train_dataset=dataset()[: 3 * BATCH] if rows is None else rows,
            eval_dataset=evaluated,
            data_collator=collator,
            callbacks=[make(collator) for make in SETS_EPOCHS[sets]],
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("always", ".*no epoch was set")
            trainer.train()
        file.seek(0)
        return file.read().splitlines()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("cls", "sets"), [(Trainer, "none"), (Losses, "none"), (Trainer, "usual"), (Trainer, "later")])
def test_masks_that_repeat_are_said_once(cls: Any, sets: str, workers: int, tmp_path: Any) -> None:
    messages_of = functools.partial(said_of_epochs, tmp_path, sets=sets, cls=cls, dataloader_num_workers=workers)
    if sets != "none":
        assert messages_of(num_train_epochs=2) == []
        return
    (once,) = messages_of(num_train_epochs=2)
    assert "masked alike in all 2 epochs" in once
    assert messages_of(num_train_epochs=1) == []


def test_masks_of_streams_that_repeat(tmp_path: Any) -> None:
    (message,) = said_of_epochs(tmp_path, rows=Torch(dataset()[: 3 * BATCH]), max_steps=6)
    assert "masked alike in each epoch" in message
    assert said_of_epochs(tmp_path, rows=Torch(dataset()[: 3 * BATCH]), max_steps=3) == []


def test_masks_that_repeat_with_workers_that_are_spawned(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are by default, but on Linux before Python 3.14: the process of the Trainer warns."""
    loader = functools.partial(torch.utils.data.DataLoader, multiprocessing_context="spawn")
    monkeypatch.setattr(transformers.trainer, "DataLoader", loader)
    (message,) = said_of_epochs(tmp_path, num_train_epochs=2, dataloader_num_workers=1, eval_strategy="no")
    assert "masked alike in all 2 epochs" in message
