"""Rows of similar length in the micro-batches of an optimizer step of TRL's online trainers.

The gradient of a step is the same sum in another order, if the loss is not averaged within a micro-batch.
"""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import torch

from quadrat.trl.online import TrimmedPasses, trim
from quadrat.trl.row_sizes import sizes_of, split_by_tokens
from quadrat.trl.tested import unlike_tested

logger = logging.getLogger("quadrat")
# Losses of GRPOTrainer: divided by the tokens of a generation batch; a mean over the rows of a micro-batch.
_BY_TOKENS, _BY_ROWS = ("dapo", "cispo", "vespo"), ("grpo", "dr_grpo", "sapo", "luspo")
# How names of micro-batches without images end.
_IDS, _MASKS = ("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask", "tool_mask")
_COLUMNS = (*_IDS, *_MASKS, "_logps", "advantages", "num_items_in_batch", "importance_sampling_ratio")


class OnlineBatches:
    """What `batch_by_tokens` does for an online trainer; as a string, in a few sentences."""

    def __init__(self, trainer: Any, passes: TrimmedPasses) -> None:
        self.passes = passes
        # Why rows stay in their micro-batches; None: they are sorted.
        self.reason = passes.reason or unlike_tested(type(trainer), "micro_batches") or not_exact(trainer)
        self.say: Callable[[str], object] = logger.info
        self._trainer, self._original = trainer, trainer._prepare_inputs

    def __str__(self) -> str:
        made = f"rows stay in their micro-batches: {self.reason}."
        if self.reason is None:
            rows = "as many as a token budget allows" if is_by_tokens(self._trainer) else "as many as before"
            made = f"micro-batches have rows of similar length, {rows}."
        passes = str(self.passes)
        return f"{made} {passes[:1].upper()}{passes[1:]}"

    def __call__(self, generation_batch: Any) -> Any:
        """The inputs of the next micro-batch, as `_prepare_inputs` returns them."""
        trainer, before = self._trainer, self._trainer._buffered_inputs
        inputs = self._original(generation_batch)
        parts = trainer._buffered_inputs
        if parts is before or not trainer.model.training:
            return inputs
        reason = not_exact(trainer) or _not_rows(parts)
        if reason != self.reason:
            self.reason = reason
            self.say(str(self))
        if reason is not None:
            return inputs
        steps = min(trainer.args.gradient_accumulation_steps, len(parts))
        made = [self._sorted(parts[first : first + steps]) for first in range(0, len(parts), steps)]
        trainer._buffered_inputs = [*chain.from_iterable(made)]
        return trainer._buffered_inputs[trainer._step % len(parts)]

    def _sorted(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The micro-batches of an optimizer step with their rows in order of length, the longest first."""
        trainer = self._trainer
        joined = {
            name: torch.cat([one[name] for one in parts]) if value is not None and value.ndim else value
            for name, value in parts[0].items()
        }
        ids, mask = (
            torch.cat([joined[f"{one}_{name}"] for one in ("prompt", "completion")], dim=1) for name in ("ids", "mask")
        )
        sizes = sizes_of(mask, joined["completion_mask"].size(1), trainer.pad_to_multiple_of)
        sides = self.passes.ask(trainer.model_wrapped, ids, mask, sizes)
        if sides is None or not sides.right:  # more rows in a micro-batch would need more memory
            return parts
        if not sides.left:
            sizes.prompts[:] = joined["prompt_mask"].size(1)
        order = sizes.order()
        rows = len(order) // len(parts)
        counts = [rows] * len(parts)
        if is_by_tokens(trainer):
            longest = np.stack(sizes)[:, order]
            if trainer.accelerator.num_processes > 1:  # which need as many rows in a micro-batch: metrics are gathered
                own = torch.from_numpy(longest)[None].to(trainer.accelerator.device)
                longest = trainer.accelerator.gather(own).cpu().numpy().max(0)
            counts = split_by_tokens(longest[0], longest[1], len(parts), rows * int(longest.max(1).sum()))
        chosen = [torch.from_numpy(one).to(mask.device) for one in np.split(order, np.cumsum(counts)[:-1])]
        return [
            {name: value[index] if value is not None and value.ndim else value for name, value in joined.items()}
            for index in chosen
        ]


def is_by_tokens(trainer: Any) -> bool:
    """True if a micro-batch may have any number of rows."""
    return getattr(trainer, "loss_type", None) in _BY_TOKENS


def not_exact(trainer: Any) -> str | None:
    """Why other micro-batches of the same rows would train something else; None if they would not."""
    args, loss = trainer.args, getattr(trainer, "loss_type", None)
    a_step, generated = args.gradient_accumulation_steps, args.steps_per_generation
    if loss is not None and loss not in (*_BY_TOKENS, *_BY_ROWS):
        return f"the loss {loss!r} is averaged within a micro-batch"
    if getattr(trainer, "top_entropy_quantile", 1.0) < 1.0:
        return "the quantile of top_entropy_quantile is that of a micro-batch"
    if getattr(trainer, "_entropy_bonus_enabled", False):
        return "the entropy bonus is averaged within a micro-batch"
    if trainer.aux_loss_enabled:
        return "the auxiliary loss of experts is that of a micro-batch"
    if max(a_step, generated) % min(a_step, generated):
        return (
            f"an optimizer step has parts of generation batches (gradient_accumulation_steps={a_step}, "
            f"steps_per_generation={generated})"
        )
    return None


def _not_rows(parts: list[dict[str, Any]]) -> str | None:
    """Why the rows of micro-batches cannot be sorted; None if they can."""
    name = next((name for name, value in parts[0].items() if value is not None and not name.endswith(_COLUMNS)), None)
    return None if name is None else f"a micro-batch has `{name}`, whose passes are not cut"


def batch_online(trainer: Any) -> OnlineBatches:
    """As `quadrat.batch_by_tokens`, for a trainer of which `is_online` is true."""
    batches = OnlineBatches(trainer, trim(trainer))
    if batches.reason is None:
        trainer._prepare_inputs = batches
    batches.say(str(batches))
    return batches
