"""The outputs of a worker's batch on one block of shared memory, and its pages."""

import gc
import mmap
import os
import pickle
import platform
import re
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat import _core
from quadrat.support import memory, shared

KINDS = _core.kinds
OUTPUTS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(0, len(KINDS) - 1)), max_size=6
)


@pytest.fixture(autouse=True, scope="module")
def in_shared_memory():
    """Also small batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "_BY_VALUE", -1)
        yield


def sharing(way=None, *, worker=True, may_be_worker=True):
    """An interop as in a process that is a worker; `way`: its exchange API."""
    callbacks = (memory.describe_tensor, memory._make_tensor, lambda: worker, shared.make_shared)
    interop = _core.Interop(memory.Libraries(np.ndarray, None, torch.Tensor, way, *callbacks))
    interop.may_be_worker = may_be_worker
    return interop


def block_of(tensor):
    """The shared block that a tensor is on."""
    return tensor.untyped_storage().quadrat_block


EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


@pytest.mark.parametrize("way", [EXCHANGE, None], ids=["exchange", "fallback"])
@given(outputs=OUTPUTS)
def test_outputs_stand_side_by_side(way, outputs):
    with pytest.MonkeyPatch.context() as patch:  # where no fixture is, too
        patch.setattr(shared, "_BY_VALUE", -1)
        assert_side_by_side(way, outputs)


def assert_side_by_side(way, outputs):
    tensors = _core.allocate_batch(sharing(way), True, outputs)
    assert len(tensors) == len(outputs)
    filled = [(tensor, address) for tensor, address in tensors if tensor.numel()]
    assert len({tensor.untyped_storage()._cdata for tensor, _ in tensors}) == len(tensors)
    if filled:
        (block,) = {id(block_of(tensor)): block_of(tensor) for tensor, _ in filled}.values()
        assert block.is_shared()
    for (shape, kind), (tensor, address) in zip(outputs, tensors, strict=True):
        assert type(tensor) is torch.Tensor
        assert tuple(tensor.shape) == tuple(shape)
        assert tensor.dtype == getattr(torch, KINDS[kind])
        assert tensor.is_contiguous()
        assert not tensor.numel() or tensor.data_ptr() == address
    ends = 0
    for tensor, address in filled:
        assert address % 64 == 0
        assert address >= ends
        ends = address + tensor.nbytes
    if filled:
        assert ends <= block.data_ptr() + block.nbytes()


@given(outputs=OUTPUTS)
def test_no_tensor_reaches_beyond_its_own_bytes(outputs):
    """`resize_`, which also a call with `out=` does, would have the next tensor's numbers in it."""
    tensors = _core.allocate_batch(sharing(EXCHANGE), True, outputs)
    sent = pickle.loads(ForkingPickler.dumps(tensors))
    for tensor, _ in [*tensors, *sent]:
        if not tensor.numel():  # it may grow, in memory of its own
            continue
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(tensor.numel() + 1)


def test_what_was_moved_elsewhere_is_sent_from_there():
    """A tensor whose storage has other memory since; a view; an empty one."""
    tensors = _core.allocate_batch(sharing(EXCHANGE), True, [((4,), 0), ((2, 3), 1), ((0, 5), 2)])
    first, second, third = (tensor.zero_() for tensor, _ in tensors)
    first.share_memory_()
    first.fill_(1)
    second[1] = 2
    sent = pickle.loads(ForkingPickler.dumps((first, second[1:, ::2], third)))
    assert [tensor.tolist() for tensor in sent] == [first.tolist(), [[2, 2]], []]
    sent[1].fill_(3)
    assert second[1, 0] == 3, "it was copied on the way"


@given(outputs=OUTPUTS)
def test_small_blocks_are_sent_by_value(outputs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "_BY_VALUE", 1 << 18)
        tensors = [tensor for tensor, _ in _core.allocate_batch(sharing(EXCHANGE), True, outputs)]
    for number, tensor in enumerate(tensors):
        tensor.fill_(number % 2)
        assert not tensor.is_shared()
    sent = pickle.loads(ForkingPickler.dumps([*tensors, *tensors]))
    for tensor, copy in zip([*tensors, *tensors], sent, strict=True):
        assert copy.dtype == tensor.dtype
        assert copy.stride() == tensor.stride()
        assert copy.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
        assert copy.tolist() == tensor.tolist()
        assert not tensor.numel() or copy.data_ptr() != tensor.data_ptr()
    held = {id(block_of(tensor)): block_of(tensor).nbytes() for tensor in tensors if tensor.numel()}
    assert len(held) <= 1
    assert len(ForkingPickler.dumps(tensors)) < sum(held.values()) + 2000 + 500 * len(tensors)


@given(outputs=OUTPUTS)
def test_others_get_memory_of_their_own(outputs):
    for interop in (sharing(EXCHANGE, worker=False), sharing(EXCHANGE, may_be_worker=False)):
        tensors = _core.allocate_batch(interop, True, outputs)
        assert not any(tensor.is_shared() for tensor, _ in tensors)
        assert len({address for tensor, address in tensors if tensor.numel()}) == sum(
            bool(t.numel()) for t, _ in tensors
        )
    arrays = _core.allocate_batch(sharing(EXCHANGE), False, outputs)
    assert all(type(array) is np.ndarray for array, _ in arrays)


def test_nobody_is_asked_who_cannot_be_a_worker():
    def asked():
        raise AssertionError

    callbacks = None, memory._make_tensor, asked, asked
    interop = _core.Interop(memory.Libraries(np.ndarray, None, torch.Tensor, EXCHANGE, *callbacks))
    assert len(_core.allocate_batch(interop, True, [((2,), 0)])) == 1
    interop.may_be_worker = True
    with pytest.raises(AssertionError):
        _core.allocate_batch(interop, True, [((2,), 0)])


@pytest.mark.parametrize("outputs", [
    [((1 << 62,), KINDS.index("int64"))],
    [((1 << 62,), KINDS.index("int8"))] * 2,
    [((-1,), KINDS.index("int8"))],
    [((1 << 40, 0, 1 << 40), KINDS.index("int8"))],
])  # fmt: skip
def test_shapes_that_no_memory_holds(outputs):
    with pytest.raises(ValueError, match="no memory holds"):
        _core.allocate_batch(sharing(EXCHANGE), True, outputs)


@pytest.fixture(params=["file_descriptor", "file_system"])
def strategy(request):
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(request.param)
    yield request.param
    torch.multiprocessing.set_sharing_strategy(before)


def blocks_left():
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]


@pytest.mark.parametrize("forecast", [True, False], ids=["said", "found out"])
@pytest.mark.usefixtures("strategy")
def test_no_room_is_said_and_nothing_left(forecast, monkeypatch):
    """Also where the room was there when the system was asked, and is taken since."""
    state = os.statvfs("/dev/shm")
    size = state.f_blocks * state.f_frsize + (1 << 30)  # more than the file system has in all
    message = (
        r"^a batch of [\d,]+ bytes does not fit into shared memory: [\d,]+ are left" if forecast else "No space left"
    )
    if not forecast:
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((4096, 4096, *[0] * 8)))
    with pytest.raises(RuntimeError, match=message):
        _core.allocate_batch(sharing(EXCHANGE), True, [((size,), KINDS.index("int8"))])
    assert not blocks_left()


@pytest.mark.parametrize("system", [
    lambda path: (_ for _ in ()).throw(FileNotFoundError),
    lambda path: os.statvfs_result((4096, 4096, *[0] * 8)),  # without a limit
])  # fmt: skip
def test_where_the_system_does_not_say_torch_decides(system, monkeypatch):
    def refuse(size):
        raise RuntimeError("too many open files")

    monkeypatch.setattr(os, "statvfs", system)
    ((tensor, _),) = _core.allocate_batch(sharing(EXCHANGE), True, [((3,), KINDS.index("int8"))])
    assert block_of(tensor).is_shared()
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", refuse)
    with pytest.raises(RuntimeError, match=r"^too many open files$"):
        _core.allocate_batch(sharing(EXCHANGE), True, [((3,), KINDS.index("int8"))])


@pytest.mark.usefixtures("strategy")
def test_a_block_without_memory_behind_it_is_an_error_and_no_signal(monkeypatch):
    monkeypatch.setattr(_core, "populate", lambda address, size: False)
    with pytest.raises(RuntimeError, match=r"^a batch of 64 bytes does not fit into shared memory"):
        _core.allocate_batch(sharing(EXCHANGE), True, [((3,), KINDS.index("int8"))])
    gc.collect()
    assert not blocks_left()


def test_populate_maps_pages(tmp_path):
    size = 4 * mmap.PAGESIZE
    with open(tmp_path / "pages", "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as pages:
            address = np.frombuffer(pages, np.uint8).ctypes.data
            assert _core.populate(address, size)
            file.truncate(0)
            # Linux says so since 5.14; before, nothing can be known without the signal.
            known = tuple(map(int, re.match(r"(\d+)\.(\d+)", platform.release()).groups())) >= (5, 14)
            assert _core.populate(address, size) is not known
