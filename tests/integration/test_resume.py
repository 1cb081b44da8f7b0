"""rng="philox" in Trainer: a run that was stopped and resumed sees the masks of one that was not."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import BertForMaskedLM

import quadrat
from support.masking import make_masking_tokenizer
from support.trainer import Losses, Stop, arguments, tiny

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
    given = arguments(
        folder, num_train_epochs=2, per_device_train_batch_size=BATCH, dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0, save_strategy="steps", save_steps=stop or 1000,
    )  # fmt: skip
    trainer = Recording(
        model=tiny(BertForMaskedLM, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        args=given,
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
