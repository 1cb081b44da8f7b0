"""Which option of `quadrat run`, or which function, changes the batches of a loop, and how many tokens it saves."""

import sys
from typing import Any, NamedTuple

import numpy as np

from quadrat.cli.waste import LITTLE_PADDING, padded, token_budget
from quadrat.support.around import calling_trainer, within

TRAINING, EVALUATION = "training", "evaluation"
MAX_TOKENS = "--max-tokens"
_BY_TOKENS, _STREAM, BY_LENGTH = "quadrat.batch_by_tokens", "quadrat.BatchedStream", "quadrat.batching.by_length"
_OPTIONS = {MAX_TOKENS, _BY_TOKENS, _STREAM, BY_LENGTH}


class Promise(NamedTuple):
    """The tokens of batches, and those that they would have with an option."""

    loop: str  # "training", "evaluation" or "": of collators that no loader called
    option: str
    computed: int
    computed_with: int

    @property
    def share(self) -> float:
        """The share of the tokens that the option saves."""
        return max(0.0, 1 - self.computed_with / self.computed)

    def __str__(self) -> str:
        place = f"in {self.loop}" if self.loop else "outside of loaders"
        return f"{self.option} would compute {self.share:.0%} fewer of the {self.computed:,} tokens {place}"


def option_for(iterator: Any) -> str:
    """The option that changes the batches of a loader, of which this is the iterator; else, why none does."""
    try:
        return _option_for(**{name: vars(iterator)[name] for name in ("_dataset", "_index_sampler", "_collate_fn")})
    except Exception as error:  # also of objects of the script's
        return str(error) or type(error).__name__


def _option_for(_dataset: Any, _index_sampler: Any, _collate_fn: Any) -> str:
    from quadrat.batching._epoch import WithEpoch

    parts = [*within(_index_sampler, "batch_sampler", "sampler"), *within(_dataset, "dataset")]
    names = {type(one).__name__ for one in parts}
    if any(isinstance(one, WithEpoch) for one in parts):
        return "rows of similar length are together already"
    if isinstance(_dataset, sys.modules["torch.utils.data"].IterableDataset):
        return _STREAM
    if (found := _of_trainer()) is not None:
        return found
    if not names & {"RandomSampler", "SeedableRandomSampler"}:
        return BY_LENGTH
    collator: Any = getattr(sys.modules.get("quadrat.collators._base"), "Collator", ())
    return MAX_TOKENS if isinstance(_collate_fn, collator) else _BY_TOKENS


def _of_trainer() -> str | None:
    """The option for the loader that a Trainer reads; None if none does. Raises ValueError where it does not act."""
    trainer, running = calling_trainer()
    if trainer is None:
        return None
    from quadrat.integration.batch_by_tokens import require_usual_training
    from quadrat.integration.rows import require_usual

    if running & {"evaluation_loop", "prediction_loop"}:
        raise ValueError("an evaluation keeps its rows in order")
    require_usual(trainer, ["_get_train_sampler"], "chooses rows")  # without a call of it
    require_usual_training(trainer)
    return MAX_TOKENS


def promised(loop: str, option: str, counts: dict[str, Any]) -> Promise | str:
    """The tokens that an option saves of a loop's batches, or a reason why none are estimated."""
    if loop == TRAINING and option == BY_LENGTH:
        return "a loader that does not shuffle keeps its rows in order"
    if option not in _OPTIONS:
        return option
    sums, rows = counts["sums"], {int(tokens): number for tokens, number in counts["lengths"].items()}
    if sums["unknown"] or not sums["computed"]:
        return "the tokens of its batches are not known"
    lengths = np.array(sorted(rows, reverse=True), np.int64)
    passes = max(counts["passes"][""], 1)
    of_a_pass = np.repeat(lengths, [max(1, round(rows[int(one)] / passes)) for one in lengths])
    if sums["cut"] > LITTLE_PADDING * sums["computed"]:
        return "its rows are stored padded"
    from quadrat.batching.token_budget import usual_sampler  # which imports torch

    budget = usual_sampler(of_a_pass, max(1, round(sum(rows.values()) / sums["sized"]))).max_tokens
    computed = padded(of_a_pass, token_budget(of_a_pass, budget)).computed
    option += f" {budget}" if option == MAX_TOKENS else f"(..., max_tokens={budget})"
    return Promise(loop, option, sums["computed"], round(computed * sum(rows.values()) / len(of_a_pass)))
