"""`TokenBudgetBatchSampler`: batches of a constant cost in place of a constant number of rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops._philox import epoch_of, number_below, seed_of
from quadrat.ragged.offsets import as_lengths
from quadrat.support.memory import address_of

if TYPE_CHECKING:
    from torch.utils.data import Sampler

    _Base = Sampler[list[int]]
else:
    try:
        from torch.utils.data import Sampler as _Base
    except ModuleNotFoundError:  # a sampler is what can be iterated over
        _Base = object

_BATCHES_OF_A_WINDOW, _FEWEST_OF_A_WINDOW = 64, 2048
_ROWS, _STEPS = 0, 1  # the streams of random orders
_OVERLONG = ("error", "alone")


class Budget(NamedTuple):
    """What a batch may cost, as the kernels take it.

    Attributes:
        tokens: at most.
        rows: at most.
        multiple_of: the width of a padded batch is one of these, or the length of a flat one.
        padded: whether the tokens are rows times the longest, or the sum of lengths.
    """

    tokens: int
    rows: int
    multiple_of: int
    padded: bool


class TokenBudgetBatchSampler(_Base):
    """Batches of row numbers, each of which costs at most `max_tokens`.

    Rows are shuffled, sorted by length within windows, and taken into a batch as long as the budget lasts. Short rows
    make batches of many rows, long ones of few, and all batches fill the device alike. The batches of an epoch depend
    on the arguments, `seed` and the epoch alone. Each rank plans all of them and takes its share: no rank waits for
    another.

    Each rank has the same number of batches, and the batches of one step have costs as near as they come. Each row is
    in exactly one batch of an epoch, with two exceptions:

    - If the batches do not fill the last step, some are split until they do, so that nothing is repeated or dropped. If
      no batch has two rows any more, the cheapest batches, at most `world_size - 1` rows, are repeated.
    - With `drop_last=True`, the cheapest batches, at most `world_size - 1`, are dropped instead.

    The number of batches may differ a little from epoch to epoch; `len` is that of the current one.

    It is a `torch.utils.data.Sampler` if torch is installed: give it to `DataLoader(batch_sampler=...)`. With
    `accelerator.prepare`, which hands out batches to processes in turn, use `world_size=accelerator.num_processes` and
    `rank=None`.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list. They are copied.
        max_tokens: what a batch may cost, at most `2**61`.
        padded: whether the cost is that of a padded batch, rows times the longest row, or of one without padding, the
            sum of lengths.
        max_batch_size: how many rows a batch may have; None: as many as the budget allows.
        multiple_of: the longest row counts as a multiple of this, as `pad_to_multiple_of` pads it; with `padded=False`,
            the sum of lengths does.
        window: how many shuffled rows are sorted at a time. More waste less padding and leave less to chance. None:
            as many as 64 batches have, but at least 2,048. 1: rows are not sorted.
        world_size: how many ranks share the batches.
        rank: whose batches these are; None: those of all ranks, step by step.
        shuffle: False: windows are of the rows in their order, and steps come in the order of their first rows.
        seed: from 0 to `2**64 - 1`, the same on all ranks.
        drop_last: see above.
        overlong: "error" raises ValueError for a row above the budget; "alone" makes it a batch of its own.

    Attributes:
        batch_size: None, which tells accelerate that batches are of any length.
        drop_last: as given.
        epoch: the current epoch; see `set_epoch`.

    Raises:
        TypeError: when `lengths` are not integers of one dimension, or a number is no int.
        ValueError: when `lengths` are empty, or one is negative or above the budget; for a number out of range, a
            `world_size` above the number of rows, or an unknown `overlong`; with `drop_last=True`, when there are fewer
            batches than ranks, as soon as they are planned.

    Example:
        >>> import quadrat
        >>> sampler = quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], max_tokens=16, shuffle=False)
        >>> list(sampler)
        [[2, 4], [0, 1, 3]]
        >>> [list(quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], 16, world_size=2, rank=rank)) for rank in (0, 1)]
        [[[2, 4]], [[0, 1, 3]]]
    """

    batch_size: None = None

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
    ) -> None:
        """See the class."""
        if overlong not in _OVERLONG:
            raise ValueError(f"overlong must be one of {', '.join(map(repr, _OVERLONG))}, not {overlong!r}")
        self._lengths = np.array(as_lengths(lengths))
        count = len(self._lengths)
        if not count:
            raise ValueError("lengths are empty: there are no rows to batch")
        tokens = number_below(max_tokens, "max_tokens", _core.MOST_BUDGET + 1, 1)
        most_rows = count if max_batch_size is None else number_below(max_batch_size, "max_batch_size", 1 << 62, 1)
        multiple = number_below(multiple_of, "multiple_of", 1 << 61, 1)
        self._world_size = number_below(world_size, "world_size", 1 << 32, 1)
        self._rank = None if rank is None else number_below(rank, "rank", self._world_size)
        self._seed = seed_of(seed)
        if multiple > tokens:
            raise ValueError(f"multiple_of={multiple} is above max_tokens={tokens}: no batch could be that narrow")
        if self._world_size > count:
            raise ValueError(f"world_size={world_size} is above the number of rows, {count}")
        self._budget = Budget(tokens, most_rows, multiple, bool(padded))
        longest = int(self._lengths.max())
        if overlong == "error" and -(-longest // multiple) * multiple > tokens:
            raise ValueError(
                f"row {int(self._lengths.argmax())} has {longest} tokens, more than max_tokens={tokens} allow"
                f"{f' with multiple_of={multiple}' if longest <= tokens else ''}; "
                "overlong='alone' makes such a row a batch of its own"
            )
        self._total, self._checksum = int(self._lengths.sum()), zlib.crc32(self._lengths.data)
        self._window = self._usual_window() if window is None else number_below(window, "window", 1 << 62, 1)
        self._shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.epoch = 0
        self._taken = 0  # batches of this epoch
        self._resumes = False
        self._plan: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    @property
    def sampler(self) -> TokenBudgetBatchSampler:
        """The sampler itself: accelerate looks here for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches come next; another one begins with its first batch.

        Raises:
            TypeError, ValueError: unless it is a whole number below `2**32`.
        """
        epoch = epoch_of(epoch)
        if epoch != self.epoch:
            self.epoch, self._taken, self._resumes = epoch, 0, False

    def __len__(self) -> int:
        """The number of batches of the current epoch, for this rank."""
        return len(self._share()[1])

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the current epoch, from the first one, or from where `load_state_dict` left off."""
        rows, batches = self._share()
        if not self._resumes:
            self._taken = 0
        self._resumes = False
        return self._batches(rows, batches[self._taken :])

    def _batches(self, rows: NDArray[np.int64], batches: NDArray[np.int64]) -> Iterator[list[int]]:
        for begin, end, _ in batches.tolist():
            self._taken += 1
            yield rows[begin:end].tolist()

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is: a dict of numbers, the same on all ranks that have taken as many batches.

        "batch" counts the batches of "epoch" that the sampler has handed out. A DataLoader with workers asks for
        batches ahead of training: then put the number of batches trained on in its place. The other entries are what
        the batches depend on.
        """
        settings = {
            "rows": len(self._lengths),
            "tokens": self._total,
            "lengths": self._checksum,
            **{f"budget_{name}": value for name, value in self._budget._asdict().items()},
            "window": self._window,
            "world_size": self._world_size,
            "all_ranks": self._rank is None,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "drop_last": self.drop_last,
        }
        return {"epoch": self.epoch, "batch": self._taken, **settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the batches of a state: the next iteration begins with the batch after them.

        Raises:
            KeyError: when an entry is missing.
            ValueError: when the state is of a sampler of other rows or options, whose batches are others.
        """
        differing = [
            f"{name} is {value!r} here, {state[name]!r} there"
            for name, value in self.state_dict().items()
            if name not in ("epoch", "batch") and state[name] != value
        ]
        if differing:
            raise ValueError(f"the state is of another sampler: {'; '.join(differing)}")
        epoch, taken = epoch_of(state["epoch"]), number_below(state["batch"], "batch", 1 << 62)
        self.epoch, self._taken, self._resumes = epoch, taken, True

    def _share(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows, and the batches of this rank: `[batches, 3]`, where in the rows each begins and ends, and its cost."""
        if self._plan is None or self._plan[0] != self.epoch:
            self._plan = (self.epoch, *self._planned())
        _, rows, steps = self._plan
        return rows, steps.reshape(-1, 3) if self._rank is None else steps[:, self._rank]

    def _planned(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows, and the batches of all ranks, `[steps, world_size, 3]`."""
        lengths, count, ranks = self._lengths, len(self._lengths), self._world_size
        rows = self._order(count, _ROWS) if self._shuffle else np.arange(count)
        batches = np.empty((count + ranks, 3), np.int64)  # some may be split
        failure, made = _core.plan_batches(
            address_of(lengths), count, self._budget, self._window, address_of(rows), address_of(batches)
        )
        if failure is not None:
            raise ValueError(f"row {failure[1]} has the length {lengths[failure[1]]}, above {_core.MOST_BUDGET}")
        steps = made // ranks if self.drop_last else -(-made // ranks)
        if not steps:
            raise ValueError(f"there are {made} batches, and world_size={ranks}: drop_last=True would drop them all")
        step_order = self._order(steps, _STEPS) if self._shuffle else None
        balanced = np.empty((made + ranks, 3), np.int64)
        done = _core.balance_batches(
            address_of(lengths),
            count,
            self._budget,
            address_of(rows),
            address_of(batches),
            made,
            ranks,
            self.drop_last,
            0 if step_order is None else address_of(step_order),
            address_of(balanced),
        )
        assert done, "there are batches and ranks"
        return rows, balanced[: steps * ranks].copy().reshape(steps, ranks, 3)

    def _order(self, count: int, stream: int) -> NDArray[np.int64]:
        """The numbers below count in the random order of this epoch."""
        order = np.empty(count, np.int64)
        if not _core.philox_order(self._seed, self.epoch, stream, address_of(order), count):
            raise ValueError(f"{count} rows are too many to shuffle")
        return order

    def _usual_window(self) -> int:
        """The rows of some batches: the last rows of a window are then few of its rows."""
        rows = min(self._budget.rows, self._budget.tokens * len(self._lengths) // max(self._total, 1))
        return max(_FEWEST_OF_A_WINDOW, min(len(self._lengths), _BATCHES_OF_A_WINDOW * rows))
