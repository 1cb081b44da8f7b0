"""How batches and packs are planned is in checkpoints: other ones are refused, and the same ones resume."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import quadrat
from integration.test_batch_by_tokens import rows
from support.trainer import trainer_of


def test_a_run_resumed_with_other_batches_is_refused(tmp_path):
    """Both plans are named; with other batches it begins the epoch anew if it is told to, and stores these."""

    def resumed(tokens: int | None, data: Any = None, seed: int | None = None, **options: Any) -> Any:
        options = {"save_strategy": "steps", "save_steps": 3, "num_train_epochs": 2, **options}
        trainer = trainer_of(tmp_path / str(tokens is None), rows() if data is None else data, **options)
        if tokens is not None:
            quadrat.batch_by_tokens(trainer, tokens, seed=seed)
        return trainer

    resumed(256, max_steps=3).train()
    for others, message in (
        ([512], "budget_tokens is 512 here and 256 in the checkpoint"),
        ([256, rows()[1:]], "lengths is '95 numbers.*' here and '96 numbers.*' in the checkpoint"),
        ([256, rows()[::-1]], r"lengths is '96 numbers.*' here and '96 numbers.*' in the checkpoint"),
        ([256, None, 7], "seed is 7 here and 42 in the checkpoint"),
    ):
        with pytest.raises(ValueError, match=rf"checkpoint's batches are others.*{message}.*ignore_data_skip=True"):
            resumed(*others).train(resume_from_checkpoint=True)
    assert resumed(512, ignore_data_skip=True, max_steps=6).train(resume_from_checkpoint=True).global_step == 6
    with pytest.raises(ValueError, match="budget_tokens is 256 here and 512 in the checkpoint"):
        resumed(256).train(resume_from_checkpoint=True)
    resumed(None, max_steps=3).train()
    without = resumed(256)
    with pytest.raises(ValueError, match="it was written with other batches, or without this callback"):
        without.train(resume_from_checkpoint=str(tmp_path / "True" / "checkpoint-3"))


def test_two_plans_in_one_trainer_resume(tmp_path):
    """That of the script's packs, which its own callback tells the epoch, and that of their batches."""

    def packed(**options: Any) -> Any:
        packs = quadrat.PackedDataset(rows(), 60, columns=["input_ids"], **options)
        save = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 2}
        flat = lambda features: {"input_ids": torch.tensor([[len(features)] * 4]), "labels": torch.tensor([1])}  # noqa: E731
        trainer = trainer_of(tmp_path, packs, flat, **save)
        trainer.add_callback(quadrat.SetEpochCallback(packs))
        quadrat.batch_by_tokens(trainer, 240)
        return trainer

    whole = packed()
    whole.train()
    resumed = packed()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == whole.state.global_step > 4
    assert resumed.numbers == whole.numbers[2:]
    with pytest.raises(ValueError, match="the checkpoint's batches are others"):
        packed(counts=[1] * 96, max_count=9).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_packs_and_batches_of_ones_own_are_in_checkpoints_too():
    def begin(dataset: Any, stored: dict[str, Any], step: int) -> None:
        args = SimpleNamespace(ignore_data_skip=False, process_index=0)
        state = SimpleNamespace(global_step=step, stateful_callbacks=stored, epoch=0.0)
        callback, loader = quadrat.SetEpochCallback(), SimpleNamespace(dataset=dataset, collate_fn=None)
        for event in (callback.on_train_begin, callback.on_epoch_begin, callback.on_step_begin):
            event(args, state, None, train_dataloader=loader)

    counts = {"counts": [1] * 96, "max_count": 4}
    others: Any = ((80, {}), (64, {"seed": 1}), (64, counts), (64, {**counts, "max_count": 5}))
    packs = [quadrat.PackedDataset(rows(), length, **options) for length, options in ((64, {}), *others)]
    packs.append(quadrat.PackedDataset(rows(), 64, strategy="in_order", overlong="truncate", shuffle=False))
    batches = [quadrat.data.BatchedDataset(rows(), [[0, number], [3]]) for number in (1, 2)]
    for first, *others in (packs, batches):
        stored: dict[str, Any] = {}
        begin(first, stored, 0)
        begin(first, stored, 3)
        for other in others:
            with pytest.raises(ValueError, match=r"here and .* in the checkpoint"):
                begin(other, dict(stored), 3)
