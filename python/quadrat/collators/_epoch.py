"""An epoch in shared memory: running workers see changes, forked and spawned ones, with `persistent_workers` too."""

from __future__ import annotations

from multiprocessing import RawValue
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from quadrat.ops._philox import epoch_of


class SharedEpoch:
    """A number below 2**32 in shared memory; a copy, or a pickle on disk, has its own.

    Attributes:
        array: `[1]` uint32, that memory.
    """

    def __init__(self, epoch: int = 0, cell: Any = None) -> None:
        """cell: the memory, where there is some already."""
        self._cell = RawValue("I", epoch) if cell is None else cell
        self.array = np.frombuffer(self._cell, np.uint32)

    def set(self, epoch: Any) -> None:
        """Raises TypeError or ValueError unless it is a whole number below 2**32."""
        self.array[0] = epoch_of(epoch)

    def for_copy(self) -> SharedEpoch:
        """What a copy of the collator is given, or a process that is being spawned: its own, or this one."""
        return self if get_spawning_popen() is not None else SharedEpoch(int(self))

    def __int__(self) -> int:
        """The number."""
        return int(self.array[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """The memory itself for a process that is being spawned, which alone can be given it."""
        return SharedEpoch, (0, self._cell) if get_spawning_popen() is not None else (int(self),)
