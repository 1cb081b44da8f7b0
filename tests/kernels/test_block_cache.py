"""Memory: tensors on cached blocks, how long they live, and what becomes of their memory."""

import functools
import gc
import os
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat import _core
from support.isolated import told
from support.threads import together

KINDS = _core.kinds
INT8 = KINDS.index("int8")
# As in csrc/memory/block_cache.hpp: sizes in bytes of blocks that are kept, of all that is kept, and releases.
SMALLEST, LARGEST, MOST, PASSED_OVER = 1 << 12, 128 << 20, 256 << 20, 256
OWNED = 1 << 20  # smaller arrays own their memory: csrc/bindings/output/allocate.cpp
SLOTS = 64  # as in csrc/memory/block_cache.cpp


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.fixture
def interop(interops):
    if not interops["exchange"].has_exchange:
        pytest.skip("this torch allocates its tensors itself")
    gc.collect()
    _core.trim()
    assert _core.cached_bytes() == 0
    yield interops["exchange"]
    _core.trim()


def tensor(interop, size):
    """An int8 tensor of so many bytes, and its address."""
    empty, address = _core.allocate(interop, True, (size,), INT8)
    assert empty.data_ptr() == address
    return empty, address


@pytest.mark.parametrize("torch_wanted", [True, False])
@pytest.mark.parametrize("way", ["exchange", "fallback"])
@given(shape=st.lists(st.integers(0, 5), max_size=5), kind=st.integers(0, len(KINDS) - 1))
def test_makes_what_was_asked_for(interops, torch_wanted, way, shape, kind):
    array, address = _core.allocate(interops[way], torch_wanted, shape, kind)
    library = torch if torch_wanted else np
    assert type(array) is (torch.Tensor if torch_wanted else np.ndarray)
    assert array.dtype == getattr(library, KINDS[kind])
    assert tuple(array.shape) == tuple(shape)
    if torch_wanted:
        assert array.is_contiguous()
        assert array.device.type == "cpu"
        assert not array.requires_grad
        if array.numel():
            assert array.data_ptr() == address
            assert way == "fallback" or address % 64 == 0
        array = array.numpy()
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array.fill(1)
    assert bool((array == 1).all())


@given(size=st.integers(SMALLEST, 1 << 20), data=st.data())
def test_memory_is_used_again(interops, size, data):
    interop = interops["exchange"]
    _core.trim()
    first, address = tensor(interop, size)
    assert _core.cached_bytes() == 0
    del first
    assert _core.cached_bytes() == size
    wanted = data.draw(st.integers(SMALLEST, size) | st.integers(size - 16, size + 16).filter(lambda n: n >= SMALLEST))
    second, again = tensor(interop, wanted)
    # A block serves down to half its size, so that little memory is held for nothing.
    served = size // 2 <= wanted <= size
    assert (again == address) == served
    assert _core.cached_bytes() == (0 if served else size)
    del second
    assert _core.cached_bytes() == (size if served else size + wanted)
    _core.trim()
    assert _core.cached_bytes() == 0


@pytest.mark.parametrize("size", [1, SMALLEST, OWNED - 1, OWNED, LARGEST, LARGEST + 1])
def test_large_arrays_live_on_blocks(interop, size):
    array, address = _core.allocate(interop, False, (size,), INT8)
    assert array.ctypes.data == address
    assert array.flags.carray
    owns_memory = array.flags.owndata
    part = array[size // 2 :]
    del array
    part.fill(1)
    assert _core.cached_bytes() == 0, "a view keeps the block"
    del part
    cached = OWNED <= size <= LARGEST
    assert owns_memory == (not cached)
    assert _core.cached_bytes() == (size if cached else 0)
    _, again = tensor(interop, size)
    assert again == address or not cached


def test_keeps_no_more_than_it_says(interop):
    for size in (1, SMALLEST - 1, LARGEST + 1):
        tensor(interop, size)
        assert _core.cached_bytes() == 0
    for size in (SMALLEST, LARGEST):
        tensor(interop, size)
        assert _core.cached_bytes() == size
        _core.trim()
    for size, count in ((LARGEST, MOST // LARGEST + 2), (SMALLEST, 2 * SLOTS)):
        held = [tensor(interop, size) for _ in range(count)]
        most = 0
        while held:
            del held[-1]
            most = max(most, _core.cached_bytes())
        assert most == min(MOST, SLOTS * size)
        assert _core.cached_bytes() == most
        _core.trim()


def test_gives_back_what_nobody_uses(interop):
    tensor(interop, 4 * SMALLEST)
    for release in range(PASSED_OVER):
        assert _core.cached_bytes() == 4 * SMALLEST + (SMALLEST if release else 0)
        tensor(interop, SMALLEST)
    tensor(interop, SMALLEST)
    assert _core.cached_bytes() == SMALLEST


@pytest.mark.parametrize("view", [
    lambda whole: whole[1000:1010], lambda whole: whole.view(torch.int64)[:3], lambda whole: whole.numpy()[5:9],
    lambda whole: np.asarray(whole.reshape(2, -1))[1, ::7], lambda whole: memoryview(whole.numpy()), torch.clone,
])  # fmt: skip
def test_memory_lives_as_long_as_a_view_of_it(interop, view):
    whole, address = tensor(interop, 1 << 20)
    whole.random_(-100, 100)
    shown = view(whole)
    before = bytes(memoryview(np.asarray(shown)))
    del whole
    others = [tensor(interop, 1 << 20) for _ in range(4)]
    for other, _ in others:
        other.fill_(77)
    if view is not torch.clone:
        assert address not in [place for _, place in others]
    assert bytes(memoryview(np.asarray(shown))) == before
    del others, other, shown
    gc.collect()
    assert _core.cached_bytes() >= (1 << 20)


def churn(interop, seed, rounds, errors):
    """Holds a few tensors at a time, each filled with a number of its own, and looks whether they stay so."""
    rng, held = np.random.default_rng(seed), {}
    for _ in range(rounds):
        slot = int(rng.integers(8))
        number, numbers = held.pop(slot, (0, None))
        if numbers is not None and not bool((numbers.numpy() == number).all()):
            errors.append((seed, number))
        del numbers
        number = int(rng.integers(-100, 100))
        numbers, _ = tensor(interop, int(rng.integers(SMALLEST // 2, 4 * SMALLEST)))
        numbers.numpy().fill(number)  # not fill_: torch's own threads do not survive a fork
        held[slot] = number, numbers
        del numbers


def test_threads_share_the_cache(interop):
    errors = []
    together(*(functools.partial(churn, interop, seed, 400, errors) for seed in range(8)))
    assert errors == []
    gc.collect()
    assert 0 < _core.cached_bytes() <= MOST


def test_tensors_may_die_in_another_thread(interop):
    held = [tensor(interop, SMALLEST) for _ in range(50)]
    together(held.clear)
    assert _core.cached_bytes() == 50 * SMALLEST


@forks
def test_survives_a_fork(interop):
    kept, address = tensor(interop, 1 << 16)
    kept.fill_(5)
    tensor(interop, 1 << 17)
    stop, errors = threading.Event(), []

    def busy():
        while not stop.is_set():
            churn(interop, 1, 20, errors)

    def in_child():
        churn(interop, 2, 100, errors)
        assert not errors
        assert bool((kept.numpy() == 5).all())

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert [told(in_child) for _ in range(5)] == ["gave None"] * 5
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert bool((kept == 5).all())
    assert kept.data_ptr() == address


ABSURD = [(2**62,), (2**63 - 1,), (2**62, 2**62), (2**62, 2**62, 0), (0, 2**62, 2**62), (2**33, 0, 2**33, 2**33), (-1,),
          (3, -(2**63))]  # fmt: skip


@forks  # a child, since what is tested against is a crash
@pytest.mark.parametrize("torch_wanted", [True, False])
@pytest.mark.parametrize("shape", ABSURD)
def test_absurd_shapes_are_refused(interop, torch_wanted, shape):
    def in_child():
        try:
            array, _ = _core.allocate(interop, torch_wanted, shape, INT8)
        except (ValueError, MemoryError):
            return
        assert tuple(array.shape) == shape
        assert 0 in shape

    assert told(in_child) == "gave None"


@pytest.mark.parametrize("shape", [("a",), (1.5,), (None,), 3, (2**63,)])
@pytest.mark.parametrize("kind", [INT8, -1, len(KINDS), True, 2**40])
def test_what_is_no_shape_is_refused(interops, shape, kind):
    with pytest.raises(TypeError):
        _core.allocate(interops["exchange"], True, shape, kind)
