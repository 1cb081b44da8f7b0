"""Which option of `quadrat run`, or which function, changes the batches of a loop, and how many tokens it saves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from quadrat.cli.waste import LITTLE_PADDING, padded, token_budget

TRAINING, EVALUATION = "training", "evaluation"
MAX_TOKENS, EVALUATE = "--max-tokens", "--evaluation"
_BY_TOKENS, _STREAM, BY_LENGTH = "quadrat.batch_by_tokens", "quadrat.BatchedStream", "quadrat.batching.by_length"
_OPTIONS = {MAX_TOKENS, EVALUATE, _BY_TOKENS, _STREAM, BY_LENGTH}
_DEPTH = 8  # a sampler may name itself as its sampler


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
        return _option_for(iterator)
    except Exception as error:  # of objects of the script's
        return f"{type(error).__name__} when its loader was looked at"


def _option_for(iterator: Any) -> str:
    from quadrat.batching._epoch import WithEpoch

    parts = vars(iterator)
    dataset, samplers = parts.get("_dataset"), [*_chain(parts.get("_index_sampler"), "batch_sampler", "sampler")]
    names = {type(one).__name__ for one in samplers}
    if "LongestFirst" in names or any(isinstance(one, WithEpoch) for one in (*samplers, *_chain(dataset, "dataset"))):
        return "rows of similar length are together already"
    is_stream = isinstance(dataset, sys.modules["torch.utils.data"].IterableDataset)
    trainer, evaluates = _trainer()
    if trainer is not None and not is_stream:
        return _option_for_trainer(trainer, EVALUATE if evaluates else MAX_TOKENS)
    if is_stream:
        return _STREAM
    if not names & {"RandomSampler", "SeedableRandomSampler"}:
        return BY_LENGTH
    collator: Any = getattr(sys.modules.get("quadrat.collators._base"), "Collator", ())
    return MAX_TOKENS if isinstance(parts.get("_collate_fn"), collator) else _BY_TOKENS


def _chain(value: Any, *names: str) -> Iterator[Any]:
    """An object, the one within it, and so on."""
    for _ in range(_DEPTH):
        yield value
        value = next((within for name in names if (within := getattr(value, name, None)) is not None), None)
        if value is None:
            return


def _trainer() -> tuple[Any, bool]:
    """The Trainer that reads a loader, and whether it evaluates."""
    module, frame, evaluates = sys.modules.get("transformers.trainer"), sys._getframe(3), False
    while module is not None and frame is not None:
        evaluates |= frame.f_code.co_name in {"evaluation_loop", "prediction_loop"}
        if isinstance(trainer := frame.f_locals.get("self"), module.Trainer):
            return trainer, evaluates
        frame = frame.f_back  # type: ignore[assignment]
    return None, False


def _option_for_trainer(trainer: Any, option: str) -> str:
    from quadrat.integration.batch_by_tokens import require_usual_training
    from quadrat.integration.evaluate_by_length import require_usual_evaluation

    try:
        (require_usual_evaluation if option == EVALUATE else require_usual_training)(trainer)
    except (TypeError, ValueError) as error:
        return str(error)
    return option


def promised(loop: str, option: str, counts: dict[str, Any], *, trims: bool) -> Promise | str:
    """What an option saves of a loop's batches; or why that is not known. trims: whether batches are trimmed."""
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
    stored = sums["cut"] > LITTLE_PADDING * sums["computed"] and not trims
    if option == EVALUATE:
        if stored:
            return "its rows are stored padded"
        size = max(map(int, counts["rows"]))
        computed = sum(
            len(of_a_pass[first : first + size]) * int(of_a_pass[first]) for first in range(0, len(of_a_pass), size)
        )
    else:
        from quadrat.batching.token_budget import usual_max_tokens  # which imports torch

        budget = usual_max_tokens(of_a_pass, max(1, round(sum(rows.values()) / sums["sized"])))
        computed = padded(of_a_pass, token_budget(of_a_pass, budget)).computed
        trim = "--trim " if option == MAX_TOKENS else ", trim=True"
        option = (
            f"{trim * stored}{option} {budget}"
            if option == MAX_TOKENS
            else f"{option}(..., max_tokens={budget}{trim * stored})"
        )
    return Promise(loop, option, sums["computed"], round(computed * sum(rows.values()) / len(of_a_pass)))
