"""Of the online trainers that a script of `quadrat run` trains: their options, and the padding of their passes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import quadrat
from quadrat.cli.waste import LITTLE_PADDING

_NAMES = ("passes", "computed", "tokens", "trimmed", "sorted")  # the last two: tokens that options would compute


def prepare_online(trainer: Any, tally: Any, options: Any, say: Callable[[str], object], **of_batches: Any) -> None:
    """Before the training of an online trainer: the options that were given, and counting. Raises what they raise."""
    from quadrat.trl.online import PASS, TrimmedPasses

    passes = getattr(trainer, PASS, None)
    if isinstance(passes, TrimmedPasses):  # by the script
        passes.original = _Counted(trainer, passes.original, tally)
        return
    if passes is not None:  # OnlineDPOTrainer has none
        setattr(trainer, PASS, _Counted(trainer, passes, tally))
    if options.max_tokens is not None:
        made = quadrat.batch_by_tokens(trainer, options.max_tokens or "auto", **of_batches)
        made.say = made.passes.say = say
        say(str(made))
    elif options.trim:
        passes = quadrat.trl.trim(trainer)
        passes.say = say
        say(str(passes))


class _Counted:
    """The passes of a trainer, counted as they are computed."""

    def __init__(self, trainer: Any, original: Any, tally: Any) -> None:
        self._trainer, self._original, self._tally = trainer, original, tally
        self._step: list[Any] = []  # the sizes of rows in the policy passes of an optimizer step so far

    def __call__(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *args: Any, **kw: Any
    ) -> Any:
        made = self._original(model, input_ids, attention_mask, logits_to_keep, *args, **kw)
        self._count(
            attention_mask, logits_to_keep, args[0] if args else kw.get("batch_size"), trains=made[0].requires_grad
        )
        return made

    def _count(self, mask: Any, width: int, size: int | None, *, trains: bool) -> None:
        from quadrat.trl.micro_batches import is_by_tokens, not_exact
        from quadrat.trl.row_sizes import sizes_of

        sizes = np.stack(sizes_of(mask, width, self._trainer.pad_to_multiple_of), axis=1)
        parts = [sizes[first : first + (size or len(sizes))] for first in range(0, len(sizes), size or len(sizes))]
        found = {"passes": len(parts), "computed": mask.numel(), "tokens": int((mask != 0).sum())}
        found["trimmed"] = _computed(parts if trains else _by_length(parts, by_tokens=True))
        found["sorted"] = found["trimmed"]
        if trains and not_exact(self._trainer) is None:
            found["sorted"] = 0
            self._step += parts
            if len(self._step) == self._trainer.args.gradient_accumulation_steps:
                found["sorted"] = _computed(_by_length(self._step, by_tokens=is_by_tokens(self._trainer)))
                self._step = []
        with self._tally.lock:
            self._tally.elsewhere.update({f"online {name}": found[name] for name in _NAMES})


def _by_length(parts: list[Any], *, by_tokens: bool) -> list[Any]:
    """The rows of several parts in order of length, in as many parts, of as many rows each or by tokens."""
    from quadrat.trl.row_sizes import split_by_tokens

    rows = np.concatenate(parts)
    rows = rows[np.argsort(-rows.sum(1), kind="stable")]
    counts = [len(one) for one in parts]
    if by_tokens:
        counts = split_by_tokens(rows[:, 0], rows[:, 1], len(parts), max(counts) * int(rows.max(0).sum()))
    return np.split(rows, np.cumsum(counts)[:-1])


def _computed(parts: list[Any]) -> int:
    return sum(len(one) * int(one.max(0).sum()) for one in parts)


def online_sentences(found: dict[str, int], given: Sequence[str]) -> Iterator[str]:
    """The report on the passes of online trainers; `given`: the options of `quadrat run`."""
    passes, computed, tokens, trimmed, ordered = (found.get(f"online {name}", 0) for name in _NAMES)
    if not passes:
        return
    options = {"--trim": trimmed / computed, "--max-tokens auto": ordered / computed}
    helps = [
        f"{option} would compute {1 - share:.0%} fewer"
        for option, share in options.items()
        if 1 - share > LITTLE_PADDING and option.partition(" ")[0] not in given
    ]
    text = f"passes of online trainers: {1 - tokens / computed:.1%} of {computed:,} tokens computed were padding"
    yield "; ".join([text, ", and ".join(helps)][: 1 + bool(helps)])
