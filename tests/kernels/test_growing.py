"""Memory that grows at its end, and becomes an array."""

import gc
import mmap
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from quadrat import _core

# Up to and past the size from which memory is mapped: csrc/memory/growing.cpp.
SIZES = st.lists(st.integers(0, 5000) | st.sampled_from([4096, 1 << 17, (1 << 18) - 1, 1 << 18, 300_001]), max_size=12)
STATM = Path("/proc/self/statm")


def appended(memory, part):
    memory.append(part.ctypes.data, part.nbytes)


@given(SIZES, st.integers(0, 255))
def test_holds_what_was_appended(sizes, seed):
    memory = _core.Growing()
    parts = [np.random.default_rng(seed + i).integers(0, 256, size, np.uint8) for i, size in enumerate(sizes)]
    for i, part in enumerate(parts):
        if i % 2:
            at = len(memory)
            assert memory.extend(part.nbytes) == memory.address + at
            memory.view(at, part.nbytes)[:] = part
        else:
            appended(memory, part)
    expected = np.concatenate([np.empty(0, np.uint8), *parts])
    assert len(memory) == expected.nbytes
    array = memory.release()
    assert len(memory) == 0
    del memory
    gc.collect()
    assert array.dtype == np.uint8
    assert np.array_equal(array, expected)
    array[:] = 1
    assert array.flags.writeable


def test_goes_on_after_a_release():
    memory = _core.Growing()
    appended(memory, np.arange(300_000))
    first = memory.release()
    appended(memory, np.arange(7))
    second = memory.release()
    assert np.array_equal(first.view(np.int64), np.arange(300_000))
    assert np.array_equal(second.view(np.int64), np.arange(7))
    assert memory.release().nbytes == 0


def test_refuses_more_than_there_is():
    memory = _core.Growing()
    appended(memory, np.arange(9))
    for much in (2**62, 2**63 - 1):
        with pytest.raises(MemoryError):
            memory.extend(much)
    with pytest.raises(IndexError, match="not as large"):
        memory.view(70, 3)
    with pytest.raises(IndexError, match="not as large"):
        memory.view(2**64 - 1, 2)
    assert np.array_equal(memory.release().view(np.int64), np.arange(9))


def test_a_view_keeps_the_memory():
    memory = _core.Growing()
    appended(memory, np.arange(300_000))
    view = memory.view(8, 16)
    del memory
    gc.collect()
    assert view.view(np.int64).tolist() == [1, 2]


def resident():
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not STATM.exists(), reason="only Linux says what is resident")
def test_takes_up_what_was_written():
    """Neither growing nor room to spare is paid for in memory; two huge pages may be mapped for their first byte."""
    size, steps = 1 << 20, 64
    part = np.ones(size, np.uint8)
    memory = _core.Growing()
    appended(memory, part)
    before = resident()
    most = 0
    for _ in range(steps):
        appended(memory, part)
        most = max(most, resident())
    assert most - before < size * steps + (8 << 20)
    array = memory.release()
    assert resident() - before < size * steps + (8 << 20)
    del array
    gc.collect()
    assert resident() - before < size * steps // 2
