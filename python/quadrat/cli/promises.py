"""What `quadrat run --max-tokens` would save of a loop's tokens."""

import sys
from typing import Any

import numpy as np

from quadrat.cli.costs import cost_of

MAX_TOKENS = "--max-tokens"


def option_of(iterator: Any, trainer: Any) -> str | None:
    """`--max-tokens`, if it changes the batches of a loader, of which this is the iterator, in training; else None."""
    try:
        return MAX_TOKENS if _is_shuffled(iterator, trainer) else None
    except Exception:  # objects of the script's, and Trainers that choose their batches
        return None


def _is_shuffled(iterator: Any, trainer: Any) -> bool:
    from torch.utils.data import IterableDataset

    if isinstance(iterator._dataset, IterableDataset) or "transformers" not in sys.modules:
        return False
    if trainer is not None:
        from transformers import Trainer

        from quadrat.integration.batch_by_tokens import require_usual_training

        if type(trainer)._get_train_sampler is not Trainer._get_train_sampler:  # which would be called below
            return False
        require_usual_training(trainer)
        return True
    from quadrat.collators._base import Collator
    from quadrat.support.wrappers import inner_objects

    names = {type(sampler).__name__ for sampler in inner_objects(iterator._index_sampler, "batch_sampler", "sampler")}
    return isinstance(iterator._collate_fn, Collator) and bool(names & {"RandomSampler", "SeedableRandomSampler"})


def promise_of(sums: dict[str, Any]) -> dict[str, Any] | None:
    """The option, and the tokens of loops without it and with it, by the sums of their events."""
    if sums.get("unknown") or not sums.get("computed") or not sums.get("sized"):
        return None
    from quadrat.batching.token_budget import TokenBudgetBatchSampler, usual_sampler  # which import torch

    rows = {int(tokens): number for tokens, number in sums["lengths"].items()}
    lengths = np.array(sorted(rows, reverse=True), np.int64)
    passes = max(sums.get("passes", 0), 1)
    of_a_pass = np.repeat(lengths, [max(1, round(rows[int(length)] / passes)) for length in lengths])
    budget = usual_sampler(of_a_pass, max(1, round(sum(rows.values()) / sums["sized"]))).max_tokens
    batches = TokenBudgetBatchSampler(of_a_pass, budget, overlong="alone").batches()
    with_option = round(cost_of(of_a_pass, batches).computed * sum(rows.values()) / len(of_a_pass))
    return {"option": f"{MAX_TOKENS} {budget}", "computed": sums["computed"], "computed_with": with_option}
