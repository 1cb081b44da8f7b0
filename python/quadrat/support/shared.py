"""Memory that processes share: the tensors of a worker's batch on one block of memory, and how they travel."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from quadrat import _core
from quadrat.support.kinds import KINDS

if TYPE_CHECKING:
    import torch

# Up to this size, in bytes, a pipe is faster than shared memory, which costs a descriptor and a mapping.
_BY_VALUE = 1 << 18


def make_shared(size: int, views: Sequence[tuple[int, int, tuple[int, ...]]]) -> tuple[tuple[torch.Tensor, ...], int]:
    """Tensors on one new block of `size` bytes, and its address; each of (kind, first element, shape).

    The block is sent to another process once for all of them: by value if it is small, otherwise in shared memory. The
    storage of each ends where the tensor does. Raises RuntimeError where there is no room, and what else torch raises.
    """
    import torch

    empty: Any = torch.empty
    storage: Any = torch.UntypedStorage
    _send_parts_of_blocks()
    if size <= _BY_VALUE:
        block = storage(size)
        block.quadrat_by_value = True
    else:
        _require_room(size)
        block = _new_block(size)
    address = block.data_ptr()
    if size > _BY_VALUE and not _core.populate(address, size):  # a torch that has the system set no memory aside
        raise RuntimeError(_no_room(size, ""))
    tensors = []
    for kind, first, shape in views:
        tensor = empty(0, dtype=getattr(torch, KINDS[kind]), device="cpu")
        start = first * tensor.element_size()
        part: Any = block[start : start + math.prod(shape) * tensor.element_size()]
        part.quadrat_block, part.quadrat_start = block, start
        tensors.append(tensor.set_(part, 0, shape))
    return tuple(tensors), address


def part_of(block: Any, start: int, stop: int) -> Any:
    """The storage of some bytes of a block. What a received tensor is made of: pickles name this function."""
    return block[start:stop]


def block_of(values: Any) -> Any:
    """The storage of bytes that came by value. What a received tensor is made of: pickles name this function."""
    import torch

    return torch.from_numpy(values).untyped_storage()


@functools.cache
def _send_parts_of_blocks() -> None:
    """Has `multiprocessing` send a part of a block as such, where torch would copy it, and a small block by value."""
    import torch
    from torch.multiprocessing import reductions

    reduce_storage: Any = reductions.reduce_storage

    def reduce(storage: Any) -> Any:
        block = vars(storage).get("quadrat_block")
        if block is not None:
            start, size = storage.quadrat_start, storage.nbytes()
            if size and storage.data_ptr() == block.data_ptr() + start:  # else it has other memory since
                return part_of, (block, start, start + size)
        if "quadrat_by_value" in vars(storage):
            return block_of, (torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy(),)
        return reduce_storage(storage)

    ForkingPickler.register(torch.UntypedStorage, reduce)


def _new_block(size: int) -> Any:
    """A block by the sharing strategy in force, as torch's own collation makes it."""
    import torch

    make: Any = torch.UntypedStorage._new_shared
    try:
        return make(size)
    except RuntimeError as error:
        # torch leaves the file behind where there is no memory for it, and its message has the name.
        name = re.search(rf"\btorch_{os.getpid()}_\w+", str(error))
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/{name[0]}")
        raise


def _require_room(size: int) -> None:
    """Raises RuntimeError where the system says that shared memory has less left."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:  # it is elsewhere
        return
    room = state.f_bavail * state.f_frsize
    if room < size and state.f_blocks:  # no blocks at all: no limit
        raise RuntimeError(_no_room(size, f": {room:,} are left in /dev/shm"))


def _no_room(size: int, left: str) -> str:
    return (
        f"a batch of {size:,} bytes does not fit into shared memory{left}. Give the machine or container more (docker "
        "run --shm-size=...), or use smaller batches, fewer workers or a smaller prefetch_factor"
    )
