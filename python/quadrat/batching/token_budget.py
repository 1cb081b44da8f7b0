"""`TokenBudgetBatchSampler`: batches of a constant cost instead of a constant number of rows."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from quadrat.batching._epoch import GROUPS, ROWS, Resumable, random_order, settings_of
from quadrat.batching.budget import MOST_ROWS, AttentionCost, Budget, attention_of, ragged_of, require_rows
from quadrat.batching.lengths import lengths_of
from quadrat.batching.packing import require_choice
from quadrat.ops._philox import epoch_of, number_below, seed_of
from quadrat.ragged.ragged import Ragged
from quadrat.support.arrays import IntArray

if TYPE_CHECKING:
    from torch.utils.data import Sampler

    _Base = Sampler[list[int]]
else:
    try:
        from torch.utils.data import Sampler as _Base
    except ModuleNotFoundError:  # a sampler is what can be iterated over
        _Base = object

_TRIES = 16
_COUNTED = 1 << 18  # rows whose steps are counted to find a usual budget


def usual_sampler(
    lengths: Any, batch_size: int, *, batches_of_a_step: int = 1, **options: Any
) -> TokenBudgetBatchSampler:
    """A sampler with as many steps as batches of `batch_size` rows take, or up to 5 % more or fewer."""
    # Where no budget gives this number (one row is far longer than others), the rows of a batch are limited too.
    sizes = lengths_of(lengths)
    require_rows(sizes, "batch")
    multiple: int = options.get("multiple_of", 1)
    of_a_step: int = options.get("world_size", 1) * batches_of_a_step
    some = sizes if len(sizes) <= _COUNTED else sizes[random_order(len(sizes), 0, 0, ROWS)[:_COUNTED]]
    wanted = math.ceil(len(some) / batch_size / of_a_step)
    close = max(wanted // 50, int(wanted > 20))
    longest = -(-max(int(sizes.max()), 1) // multiple) * multiple
    least = max(longest, math.ceil(batch_size * float(sizes.mean())))
    most = max(least, batch_size * longest)
    at: dict[str, Any] = {"max_tokens": least, "max_batch_size": max(len(some), batch_size)}

    @functools.cache
    def steps_with(**numbers: Any) -> int:
        sampler = TokenBudgetBatchSampler(some, **numbers, **{**options, "rank": None})
        return math.ceil(len(sampler) / of_a_step)

    def nearest(name: str, low: int, high: int) -> int:
        """A number with about as many steps as wanted; otherwise the least one that does not have more."""
        guess, halve = low, False
        while low < high:
            steps = steps_with(**{**at, name: guess})
            if abs(steps - wanted) <= close:
                return guess
            low, high = (low, guess) if steps < wanted else (guess + 1, high)
            # The number of steps is about inversely proportional.
            guess = (low + high) // 2 if halve else max(low, min(guess * steps // wanted, high - 1))
            halve = not halve
        return low

    while True:
        excess, (tokens, rows) = steps_with(**at) - wanted, at.values()
        if excess > close and tokens < most:
            at["max_tokens"] = nearest("max_tokens", tokens, most)
        elif excess < -close and rows > batch_size:
            at["max_batch_size"] = nearest("max_batch_size", batch_size, rows - 1)
        else:
            at["max_batch_size"] = rows if rows < len(some) else None
            return TokenBudgetBatchSampler(sizes, **at, **options)


class _Plan(NamedTuple):
    """All that the batches of an epoch depend on besides its number."""

    lengths: IntArray
    budget: Budget  # in the unit of costs
    attention: AttentionCost | None
    window: int
    world_size: int
    all_ranks: bool
    shuffle: bool
    seed: int
    drop_last: bool


class TokenBudgetBatchSampler(Resumable, _Base):
    """Batches of row numbers, each of which costs at most `max_tokens`.

    Rows are shuffled, sorted by length within windows, and added to a batch until the budget is used up. The batches of
    an epoch depend only on the arguments and the epoch: each rank plans all of them and takes its share. Each rank has
    the same number of batches, those of one step cost about the same, and each row is in exactly one batch of an epoch,
    with two exceptions:

    - If there are too few batches to fill the last step, some are split. If no batch is left with two rows, the
      cheapest batches, at most `world_size - 1` rows, are repeated.
    - With `drop_last=True`, up to `world_size - 1` batches, the cheapest ones, may be dropped instead.

    Each epoch has the number of batches of the first one plus a few, for learning rate schedules and resumed runs. If
    it needs fewer, some are split.

    It is a `torch.utils.data.Sampler` if torch is installed: give it to `DataLoader(batch_sampler=...)`. With
    `accelerator.prepare`, use `world_size=accelerator.num_processes` and `rank=None`.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list, which is copied; or a dataset, whose
            `quadrat.lengths` are used.
        max_tokens: the maximum cost of a batch, up to `2**61`.
        padded: whether the cost is that of a padded batch (rows times the longest row) or the sum of lengths.
        max_batch_size: the maximum number of rows in a batch; None: as many as the budget allows.
        multiple_of: the longest row, or with `padded=False` the sum, is rounded up to a multiple of this.
        window: how many shuffled rows are sorted at a time. A larger window needs less padding and mixes rows less.
            None: as many as 64 batches have, but at least 2,048. 1: rows are not sorted.
        world_size: how many ranks share the batches.
        rank: the rank that gets these batches; None: the batches of all ranks, step by step.
        shuffle: False: windows take the rows in their order, and steps are in the order of their first rows.
        seed: from 0 to `2**64 - 1`, the same on all ranks.
        drop_last: see above.
        overlong: "error" raises ValueError for a row above the budget; "alone" makes it a batch of its own.
        attention: for batches that take the same time, as attention takes longer in long rows: the number of tokens c
            at which attention takes as much time as the rest of the model, or an `AttentionCost`, or a model or its
            config, of which `AttentionCost.of` computes it. A row of width w costs `w * (1 + w / c)`, and a batch as
            much as `max_tokens` tokens in rows of median length. A row that costs more is a batch of its own. With
            `padded=False` the sum is not rounded.

    Attributes:
        batch_size: None, which tells accelerate that batches are of any length.
        max_tokens: the maximum number of tokens in a batch, by which its cost is limited.
        rows: the number of rows.

    Raises:
        TypeError: when `lengths` are not a 1-D array of integers, or a number is not an int.
        ValueError: when `lengths` are empty, or one is negative or above the budget; for a number out of range, a
            `world_size` above the number of rows, or an unknown `overlong`; with `drop_last=True`, when there are fewer
            batches than ranks, as soon as they are planned.

    Examples:
        >>> import quadrat
        >>> sampler = quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], max_tokens=16, shuffle=False)
        >>> list(sampler)
        [[2, 4], [0, 1, 3]]
        >>> [list(quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], 16, world_size=2, rank=rank)) for rank in (0, 1)]
        [[[2, 4]], [[0, 1, 3]]]
    """

    batch_size: None = None
    _IS = "sampler"

    def __init__(
        self,
        lengths: Any,
        max_tokens: int,
        *,
        padded: bool = True,
        max_batch_size: int | None = None,
        multiple_of: int = 1,
        window: int | None = None,
        world_size: int = 1,
        rank: int | None = 0,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        overlong: Literal["error", "alone"] = "error",
        attention: Any = None,
    ) -> None:
        require_choice(overlong, "overlong", ("error", "alone"))
        sizes, cost = lengths_of(lengths), attention_of(attention)
        self.rows = len(sizes)
        budget = Budget.of(max_tokens, padded, max_batch_size, multiple_of)
        require_rows(sizes, "batch")
        if overlong == "error":
            budget.require(sizes, advice="overlong='alone' makes such a row a batch of its own")
        self.max_tokens = budget.tokens
        self._costs, priced = budget.priced(cost, sizes)
        self.world_size = number_below(world_size, "world_size", 1 << 32, 1)
        self.rank = None if rank is None else number_below(rank, "rank", self.world_size)
        if self.world_size > self.rows:
            raise ValueError(f"world_size={world_size} is above the number of rows, {self.rows}")
        window = priced.usual_window(self._costs) if window is None else number_below(window, "window", 1 << 62, 1)
        numbers = self.world_size, self.rank is None, bool(shuffle), seed_of(seed), bool(drop_last)
        self._plan = _Plan(sizes, priced, cost, window, *numbers)
        self.drop_last = self._plan.drop_last
        self._shared: tuple[int, Ragged] | None = None  # an epoch, and its batches for this rank
        self._steps = 0  # of an epoch; 0: not known yet
        super().__init__(settings_of(self._plan._asdict()))

    def __repr__(self) -> str:
        return (
            f"TokenBudgetBatchSampler(rows={self.rows}, max_tokens={self.max_tokens}, "
            f"world_size={self.world_size}, rank={self.rank}, epoch={self.epoch})"
        )

    @property
    def max_batch_size(self) -> int | None:
        """The maximum number of rows in a batch; None: as many as the budget allows."""
        return rows if (rows := self._plan.budget.rows) < MOST_ROWS else None

    @property
    def sampler(self) -> TokenBudgetBatchSampler:
        """The sampler itself: accelerate looks here for `set_epoch`."""
        return self

    def __len__(self) -> int:
        """The number of batches of an epoch, for this rank."""
        if not self._steps:
            self._share(self.epoch)
        return self._steps * (self.world_size if self.rank is None else 1)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the current epoch, from the first one, or from where `load_state_dict` left off."""
        at = self._begin()
        return self._batches(at, self._share(at["epoch"]))

    def _batches(self, at: dict[str, Any], batches: Ragged) -> Iterator[list[int]]:
        for first, last in itertools.pairwise(batches.offsets[at["batch"] :].tolist()):
            self._at = at = {**at, "batch": at["batch"] + 1}
            yield batches.values[first:last].tolist()

    def _start(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "batch": 0}

    def _check(self, at: dict[str, Any]) -> None:
        at["batch"] = number_below(at["batch"], "batch", len(self) + 1)

    def batches(self, epoch: int | None = None) -> Ragged:
        """All batches of an epoch, by default the current one, for this rank: row numbers, int64, one row per batch.

        Raises TypeError or ValueError unless the epoch is a whole number below `2**32`.

        Examples:
            >>> import quadrat
            >>> quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], max_tokens=16, shuffle=False).batches().to_lists()
            [[2, 4], [0, 1, 3]]
        """
        batches = self._share(self.epoch if epoch is None else epoch_of(epoch))
        return Ragged(batches.values.copy(), batches.offsets.copy())

    def _share(self, epoch: int) -> Ragged:
        """The batches of this rank in an epoch."""
        shared = self._shared
        if shared is None or shared[0] != epoch:
            rows, steps = self._planned(epoch)
            batches = steps.reshape(-1, 3) if self.rank is None else steps[:, self.rank]
            shared = self._shared = (epoch, ragged_of(rows, batches))
        return shared[1]

    def _planned(self, epoch: int) -> tuple[IntArray, IntArray]:
        """Rows, and the batches of all ranks, `[steps, world_size, 3]`: where in the rows each begins and ends."""
        plan, ranks = self._plan, self._plan.world_size
        batched = functools.lru_cache(1)(self._batched)  # the first epoch says how many steps all have
        if not self._steps:
            self._steps = self._steps_for(len(batched(0, ROWS)[1]))
        steps = self._steps
        most = steps * ranks + (ranks - 1 if plan.drop_last else 0)
        # If a shuffle needs too many batches, epoch 0's rows are used again.
        tries = [(epoch, stream) for stream in (ROWS, *range(GROUPS + 1, GROUPS + _TRIES))]
        plans = itertools.starmap(batched, (*tries, (0, ROWS)))
        rows, batches = next((rows, batches) for rows, batches in plans if len(batches) <= most)
        order = random_order(steps, plan.seed, epoch, GROUPS) if plan.shuffle else None
        return rows, plan.budget.balanced(self._costs, rows, batches, ranks=ranks, steps=steps, order=order)

    def _steps_for(self, batches: int) -> int:
        """The steps of each epoch, where the first one takes so many batches."""
        plan, ranks, rows = self._plan, self._plan.world_size, self.rows
        windows = min(-(-rows // plan.window), batches)
        # How many an epoch takes goes up and down by less than a fifth of the root of the windows.
        spare = math.ceil(math.sqrt(windows) / 3) if plan.shuffle and windows > 1 else 0
        if plan.drop_last:
            if batches < ranks:
                raise ValueError(
                    f"there are {batches} batches, and world_size={ranks}: drop_last=True would drop them all"
                )
            return min(batches + spare, rows) // ranks
        return min(-(-(batches + spare) // ranks), -(-rows // ranks))

    def _batched(self, epoch: int, stream: int) -> tuple[IntArray, IntArray]:
        """Rows in the order of a stream of random numbers, sorted by windows, and their batches, `[batches, 3]`."""
        plan = self._plan
        rows = random_order(self.rows, plan.seed, epoch, stream) if plan.shuffle else np.arange(self.rows)
        return rows, plan.budget.batched(self._costs, rows, plan.window)
