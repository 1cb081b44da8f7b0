"""Memory with guards around it, which show what is written where it must not be."""

from typing import Any

import numpy as np

MARGIN = 256
CANARY = 0xA5


class Guarded:
    """An array inside a larger block of canaries; every byte of the array is one too until something is written."""

    def __init__(self, dtype: Any, shape: int | tuple[int, ...]) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raw = np.full(size + 2 * MARGIN + 64, CANARY, np.uint8)
        first = -raw.ctypes.data % 64
        self.block = raw[first : first + size + 2 * MARGIN]
        self.bytes = self.block[MARGIN : MARGIN + size]
        self.array = self.bytes.view(dtype).reshape(shape)
        self.address = self.block.ctypes.data + MARGIN

    def holds(self, expected: Any) -> bool:
        """Whether the array has these numbers, to the bit, and nothing was written beside it."""
        numbers = np.asarray(expected).astype(self.array.dtype, copy=False).reshape(self.array.shape)
        return self.bytes.tobytes() == numbers.tobytes() and self.intact()

    def intact(self) -> bool:
        margins = self.block[:MARGIN], self.block[MARGIN + len(self.bytes) :]
        return all(bool((margin == CANARY).all()) for margin in margins)

    def untouched(self) -> bool:
        return self.intact() and bool((self.bytes == CANARY).all())
