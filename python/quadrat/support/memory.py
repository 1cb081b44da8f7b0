"""Memory of arrays and tensors: addresses and allocation."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.support.kinds import DTYPES, Framework, torch_dtype, torch_kinds, torch_module
from quadrat.support.mappings import way_to_read
from quadrat.support.shared import make_shared
from quadrat.support.tensors import is_stored, is_tensor

if TYPE_CHECKING:
    import torch


def empty(framework: Framework, shape: Sequence[int], kind: int) -> tuple[Any, int]:
    """An uninitialised contiguous array ("np") or CPU tensor ("pt"), and the address of its first element."""
    if framework == "pt":
        torch_module()  # interop looks at the libraries loaded so far
    return _core.allocate(interop(), framework == "pt", shape, kind)


def empty_batch(framework: Framework, outputs: Sequence[tuple[Sequence[int], int]]) -> list[tuple[Any, int]]:
    """`empty` for the (shape, kind) of each output of a batch: in a DataLoader's worker, tensors in shared memory."""
    return _core.allocate_batch(interop(), framework == "pt", outputs)


def _make_tensor(shape: tuple[int, ...], kind: int) -> tuple[Any, int]:
    tensor = torch_module().empty(shape, dtype=torch_dtype(kind), device="cpu")
    return tensor, tensor.data_ptr()


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


# Those that ask, in a process that `multiprocessing` started, whether it is a worker.
_sharing: list[_core.Interop] = []


def _process_started(_: object) -> None:
    for asking in _sharing:
        asking.may_be_worker = True


multiprocessing.util.register_after_fork(_process_started, _process_started)  # called in spawned processes, too


class Libraries(NamedTuple):
    """Types and functions of the loaded libraries, which `_core.Interop` uses; None for one that is not there."""

    ndarray: type
    wrapper: type | None  # a Mapping class whose `.data` is a dict: BatchEncoding
    tensor: type | None
    exchange: object | None  # the capsule of torch's DLPack exchange API; without it the next two are called
    describe: Callable[[Any], tuple[int, tuple[int, ...], int, int] | None] | None  # see describe_tensor
    make_tensor: Callable[[tuple[int, ...], int], tuple[Any, int]] | None  # of this shape and kind, and its address
    in_worker: Callable[[], bool] | None = None  # called only where `may_be_worker` says that it could be
    # Of a size in bytes and views (kind, first element, shape): tensors of one block of shared memory, and its address.
    make_shared: Callable[[int, tuple[Any, ...]], tuple[tuple[Any, ...], int]] | None = None
    scalars: tuple[tuple[type, int], ...] = ()  # NumPy's types of single numbers, and their kinds
    way_to_read: Callable[[type], int] | None = None  # how mappings of a class are read, one of `_core.WAYS`
    count_modes: Callable[[], int] | None = None  # how many of torch's function modes are active
    without_modes: Callable[[], contextlib.AbstractContextManager[Any]] | None = None  # in which none of them is asked
    forward_ad: dict[str, Any] | None = None  # the names of torch.autograd.forward_ad
    plain: tuple[type, ...] = ()  # derived from ndarray and Tensor: their objects are read as those of the base


@functools.cache
def _interop(torch_loaded: bool, transformers_loaded: bool, shares: bool) -> _core.Interop:
    torch = sys.modules["torch"] if torch_loaded else None
    tensor_type, binding = getattr(torch, "Tensor", None), getattr(torch, "_C", None)
    exchange = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    libraries = Libraries(
        np.ndarray,
        sys.modules["transformers"].BatchEncoding if transformers_loaded else None,
        tensor_type,
        exchange,
        describe_tensor,
        _make_tensor,
        _in_worker,
        make_shared,
        tuple((dtype.type, kind) for kind, dtype in enumerate(DTYPES)),
        way_to_read,
        getattr(binding, "_len_torch_function_stack", None),
        getattr(binding, "DisableTorchFunction", None),
        vars(sys.modules["torch.autograd.forward_ad"]) if torch_loaded else None,
        # Parameter turns torch's dispatch off for itself; an operation gives plain tensors.
        (np.memmap, *(() if torch is None else (torch.nn.Parameter,))),
    )
    loaded = _core.Interop(libraries)
    if shares:
        loaded.may_be_worker = multiprocessing.parent_process() is not None
        _sharing.append(loaded)
    if exchange is not None:
        with contextlib.suppress(Exception):  # a torch that does not say, or makes other tensors now: no look ahead
            tensor = torch_module().empty(1, device="cpu")
            loaded.learn_tensor(tensor, tensor._cdata, tensor.untyped_storage()._cdata)  # where it keeps its parts
    return loaded


def interop(*, shares: bool = True) -> _core.Interop:
    """The types of the libraries loaded so far. shares: whether tensors of workers are in shared memory."""
    modules = sys.modules  # None stands there for a module that is shut out
    return _interop(modules.get("torch") is not None, modules.get("transformers") is not None, shares)


def address_of(array: Any) -> int:
    """The address of a contiguous array or tensor. Raises TypeError for a tensor that has elements and no memory."""
    if not is_tensor(array):
        return _core.address(array)
    try:
        address = int(array.data_ptr())
    except RuntimeError:
        address = 0
    if not address and array.numel():
        raise TypeError(f"a {type(array).__name__} of {array.numel()} elements has no memory of its own")
    return address


def describe_tensor(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], int, int] | None:
    """(address, shape, stride in bytes, kind) of a CPU tensor, for a torch without DLPack's exchange API, or None."""
    if not is_stored(tensor) or (tensor.dim() > 1 and not tensor.is_contiguous()):
        return None
    kind = torch_kinds().get(tensor.dtype)
    if kind is None:
        return None
    stride = tensor.stride(0) if tensor.dim() else 1
    return tensor.data_ptr(), tuple(tensor.shape), stride * tensor.element_size(), kind
