"""The CUDA kernels compiled as C++, and the memory that their tests lend them."""

import contextlib
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

MOST_BLOCKS = 65535
# Few blocks: threads take several rows and elements each, and rows several pieces, as they would of huge inputs.
BLOCKS = st.sampled_from([1, 2, 3, 7, MOST_BLOCKS])


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def shifted(array: np.ndarray, by: int) -> np.ndarray:
    """A copy that begins `by` elements after a word of 16 bytes."""
    item = array.dtype.itemsize
    raw = np.zeros(array.nbytes + 64 + by * item, np.uint8)
    first = -raw.ctypes.data % 16 + by * item
    copy = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@contextlib.contextmanager
def sparse_bytes(size: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Zeros of which only the pages written to take memory."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        pytest.skip("needs anonymous mappings")
    reserve_nothing = getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve_nothing)
    # Views of it die with the test: closing is left to the collector.
    yield np.frombuffer(memory, np.uint8)
