"""Epochs that worker processes see change, and positions in them from which an iteration goes on."""

import pickle
import zlib
from collections.abc import Mapping
from multiprocessing import RawArray
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.ops._philox import epoch_of
from quadrat.support.arrays import IntArray

ROWS, GROUPS = 0, 1  # streams of `random_order`; higher ones are for rows that take another try


class SharedEpoch:
    """A number below 2**32 in shared memory, which running workers see change; a copy or a pickle has its own."""

    def __init__(self, epoch: int = 0, cell: Any = None) -> None:
        self._cell = RawArray("I", (epoch, 0)) if cell is None else cell
        # `[1]` each, that memory. was_set: 0 until `set` is called, in any process.
        self.array, self.was_set = np.split(np.frombuffer(self._cell, np.uint32), 2)

    def set(self, epoch: Any) -> None:
        """Raises TypeError or ValueError unless it is a whole number below 2**32."""
        self.array[0] = epoch_of(epoch)
        self.was_set[0] = 1

    def __int__(self) -> int:
        return int(self.array[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """The memory itself for a process that is being spawned, which alone can be given it."""
        return SharedEpoch, (0, self._cell) if get_spawning_popen() is not None else (int(self),)


class WithEpoch:
    """The base of objects that differ from epoch to epoch."""

    def __init__(self) -> None:
        self._epoch = SharedEpoch()

    @property
    def epoch(self) -> int:
        """The current epoch; see `set_epoch`."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, also in workers of a DataLoader. Raises TypeError or ValueError unless it is below `2**32`."""
        self._epoch.set(epoch)


class Resumable(WithEpoch):
    """Iterables that go on where a state was taken: at a position, a dict with "epoch", of the iterator read last."""

    _IS: str  # what an error message calls it

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._settings = settings  # what the items depend on besides the position
        # None: the start of the current epoch. A position is not edited: another thread may be reading it.
        self._at: Mapping[str, Any] | None = None
        self._resumes = False

    def _start(self) -> dict[str, Any]:
        """The position before the first item of the current epoch."""
        raise NotImplementedError

    def _check(self, at: dict[str, Any]) -> None:
        """Raises TypeError or ValueError for a position that no iterator has."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also in worker processes of a DataLoader.

        A new epoch begins with its first item, and an iterator that is being read goes on in its own. A stream calls
        the `set_epoch` of its dataset too, if there is one. A loader that accelerate has prepared sets the epoch
        whenever it begins: call the loader's `set_epoch`, also before `load_state_dict`. Raises TypeError or ValueError
        unless it is below `2**32`.
        """
        before = self.epoch
        super().set_epoch(epoch)
        if self.epoch != before:
            self._at, self._resumes = None, False

    def state_dict(self) -> dict[str, Any]:
        """The position of the iterator that was read last, and what the items depend on: a dict of names and numbers.

        It counts the items that were returned: of a sampler, "batch" of them. A DataLoader with workers reads a sampler
        ahead of training: then set "batch" to the number of batches trained on. Of a stream, each worker has its own
        state, which the `StatefulDataLoader` of torchdata collects.
        """
        at = self._at  # once: another thread may set the epoch
        return {**_copy_of(self._start() if at is None else at), **self._settings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state: the next iteration begins with the item after those of the state.

        The iteration of a stream raises ValueError if row lengths have changed, or in another worker process.

        Raises:
            KeyError: when an entry is missing.
            ValueError: when the state is from an object with other rows or options, or a number is out of range.
        """
        if differing := differences(self._settings, state, "the state"):
            raise ValueError(f"the state is from another {self._IS}: {differing}")
        at: dict[str, Any] = _copy_of({name: state[name] for name in self._start()})
        at["epoch"] = epoch_of(at["epoch"])
        self._check(at)
        self.set_epoch(at["epoch"])
        self._at, self._resumes = at, True

    def _begin(self) -> dict[str, Any]:
        """The position of a new iterator: that of the state it resumes from, or the start of the epoch."""
        at, known = self._start(), self._at
        if self._resumes and known is not None and known["epoch"] == at["epoch"]:
            at = _copy_of(known)
        self._at, self._resumes = at, False
        return at


def settings_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a plan, by name, as entries of a state: numbers and texts; of an array, what tells it apart."""
    settings: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            settings |= {f"{name}_{inner}": entry for inner, entry in settings_of(value._asdict()).items()}
        elif isinstance(value, np.ndarray):
            checksum = zlib.crc32(np.ascontiguousarray(value).data)
            settings[name] = f"{len(value)} numbers, {value.sum()} in all, checksum {checksum:08x}"
        else:
            settings[name] = value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
    return settings


def differences(settings: Mapping[str, Any], others: Mapping[str, Any], place: str) -> str:
    """The settings that are others at a place, such as "the state"; empty if there are none. Raises KeyError."""
    differing = "; ".join(
        f"{name} is {value!r} here and {others[name]!r} in {place}"
        for name, value in settings.items()
        if name in others and others[name] != value
    )
    if not differing and (missing := [name for name in settings if name not in others]):
        raise KeyError(missing[0])
    return differing  # before what is missing: a state of another class has other names, too


def _copy_of(state: Any) -> Any:
    """A copy of a state, which can be pickled; `copy.deepcopy` takes several times as long."""
    return pickle.loads(pickle.dumps(state))


def random_order(count: int, seed: int, epoch: int, stream: int) -> IntArray:
    """The numbers below `count` in a random order; `stream` tells the orders of one seed and epoch apart."""
    order = np.empty(count, np.int64)
    if not _core.philox_order(seed, epoch, stream, order):
        raise ValueError(f"{count} rows are too many to shuffle")
    return order
