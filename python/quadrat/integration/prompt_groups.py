"""Trainers of TRL that generate: the rows of one prompt in one micro-batch, so that they can share it."""

from __future__ import annotations

from typing import Any

import torch

from quadrat.model.calls import Counts

# The gradient of an optimizer step is the same sum in any order: rows count alike, or all tokens do.
_SUMS = {"grpo", "dr_grpo", "sapo", "luspo", "dapo", "cispo", "vespo"}
_TRAINERS = {("trl.trainer.grpo_trainer", "GRPOTrainer"), ("trl.trainer.rloo_trainer", "RLOOTrainer")}


class PromptGroups:
    """Reorders the rows of each optimizer step of a trainer: those with one prompt are neighbours.

    Micro-batches have as many rows as before, and each optimizer step has the same rows.

    Args:
        trainer: a GRPOTrainer or RLOOTrainer.
        counts: gets a sentence for what is done.
    """

    def __init__(self, trainer: Any, counts: Counts) -> None:
        self._trainer, self.counts = trainer, counts
        trainer._prepare_inputs = self._prepared

    def undo(self) -> None:
        """Leave the order of rows to the trainer."""
        if vars(self._trainer).get("_prepare_inputs") == self._prepared:
            del self._trainer._prepare_inputs

    def _prepared(self, generation_batch: Any) -> Any:
        trainer = self._trainer
        before = trainer._buffered_inputs
        inputs = type(trainer)._prepare_inputs(trainer, generation_batch)
        buffered = trainer._buffered_inputs
        if not trainer.model.training or buffered is before:
            return inputs
        size = min(trainer.args.gradient_accumulation_steps, len(buffered))
        steps = [grouped(buffered[start : start + size]) for start in range(0, len(buffered), size)]
        trainer._buffered_inputs = [batch for step in steps for batch in step]
        self.counts.ways[f"{type(trainer).__name__} trains on the rows of one prompt together"] = None
        return trainer._buffered_inputs[trainer._step % trainer.args.steps_per_generation]


def group_prompts(trainer: Any, counts: Counts) -> PromptGroups | None:
    """Reorders the rows of a trainer that generates, unless its steps would have other gradients; None for others."""
    bases = (cls for cls in type(trainer).__mro__ if (cls.__module__, cls.__name__) in _TRAINERS)
    base: Any = next(bases, None)  # of TRL
    if base is None or trainer.args.num_generations < 2 or trainer.args.per_device_train_batch_size < 2:
        return None
    groups = getattr(vars(trainer).get("_prepare_inputs"), "__self__", None)
    if isinstance(groups, PromptGroups):
        return groups  # of a call before
    if reason := _reason(trainer, base):
        counts.left[f"{type(trainer).__name__} scatters the rows of one prompt over micro-batches: {reason}"] = None
        return None
    return PromptGroups(trainer, counts)


def grouped(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of micro-batches in an order in which rows of one prompt are neighbours; as they are with images.

    Args:
        batches: dicts of tensors `[rows, ...]`, lists of rows, numbers and None, with equal numbers of rows.
    """
    rows = len(batches[0]["prompt_ids"])
    if any(name.startswith(("pixel", "image", "num_images", "spatial")) for name in batches[0]):
        return batches
    prompts = [torch.cat([batch["prompt_ids"], batch["prompt_mask"]], 1) for batch in batches]
    _, group = torch.unique(torch.cat(prompts), dim=0, return_inverse=True)
    first = torch.full_like(group, len(group)).scatter_reduce(0, group, torch.arange(len(group)).to(group), "amin")
    order = first[group].argsort(stable=True)
    parts = torch.split(order, rows)
    return [{name: _rows_of([batch[name] for batch in batches], part) for name in batches[0]} for part in parts]


def _rows_of(values: list[Any], order: torch.Tensor) -> Any:
    """Some rows of an entry of micro-batches."""
    if isinstance(values[0], torch.Tensor) and values[0].dim():
        return torch.cat(values)[order]
    if isinstance(values[0], list):
        rows = [row for value in values for row in value]
        return [rows[number] for number in order.tolist()]
    return values[0]


def _reason(trainer: Any, base: Any) -> str:
    """Why the gradient of a step could be another sum; empty if it could not."""
    args = trainer.args
    generated, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    if type(trainer)._prepare_inputs is not base._prepare_inputs or "_prepare_inputs" in vars(trainer):
        return "its _prepare_inputs is not that of TRL"
    if generated % accumulated and accumulated % generated:
        return f"{generated} steps for a generation batch are not a multiple of {accumulated} for an optimizer step"
    if (loss := getattr(args, "loss_type", "grpo")) not in _SUMS:
        return f"with loss_type={loss!r} each of them has a mean of its own"
    if getattr(args, "top_entropy_quantile", 1.0) < 1.0:
        return "top_entropy_quantile compares the tokens of a micro-batch"
    if getattr(trainer, "aux_loss_enabled", False):
        return "the auxiliary loss of experts is a mean over a micro-batch"
    return "the loss of Liger is not known" if getattr(args, "use_liger_kernel", False) else ""
