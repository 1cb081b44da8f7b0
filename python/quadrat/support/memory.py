"""Raw addresses, element kinds and allocation: the only module that knows where an array's memory is.

A *kind* is the number of an element type in ``_core.kinds``; it is what the kernels are told in place of a dtype.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quadrat import _core
from quadrat.support.extras import needs
from quadrat.support.mappings import way_to_read
from quadrat.support.shared import make_shared

if TYPE_CHECKING:
    import torch

Framework = Literal["np", "pt"]

KINDS: tuple[str, ...] = _core.kinds
BOOL = KINDS.index("bool")
INT32 = KINDS.index("int32")
INT64 = KINDS.index("int64")
FLOAT32 = KINDS.index("float32")
FLOAT64 = KINDS.index("float64")
FLOAT16 = KINDS.index("float16")
WIDEST = 2**48  # tokens of a row; more than any address space holds

_DTYPES = tuple(np.dtype(name) for name in KINDS)
_KIND_OF_DTYPE = {dtype: kind for kind, dtype in enumerate(_DTYPES)}


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class NotOnCpu(RuntimeError):  # noqa: N818 - a reason to fall back, not raised to users
    """An allocation landed on a device the CPU kernels cannot write to."""


@functools.cache
def _torch() -> Any:
    with needs("return_tensors='pt'"):
        import torch

    return torch


@functools.cache
def _torch_kinds() -> dict[torch.dtype, int]:
    return {getattr(_torch(), name): kind for kind, name in enumerate(KINDS) if hasattr(_torch(), name)}


def framework_of(return_tensors: str | None, default: Framework) -> Framework:
    """The library that `return_tensors` names. Raises ValueError for an unknown one."""
    if return_tensors is None:
        return default
    if return_tensors not in ("np", "pt"):
        raise ValueError(f"return_tensors must be 'np' or 'pt', not {return_tensors!r}")
    return "np" if return_tensors == "np" else "pt"


def kind_of(dtype: Any) -> int:
    """The kind of a NumPy or torch dtype, or of anything `numpy.dtype` takes. Raises TypeError for other dtypes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        kind = _torch_kinds().get(dtype)
    else:
        kind = _KIND_OF_DTYPE.get(np.dtype(dtype))
    if kind is None:
        raise TypeError(f"dtype {dtype} is not supported: use one of {', '.join(KINDS)}")
    return kind


def default_float_kind(framework: Framework) -> int | None:
    """The kind a Python float becomes: float64 in NumPy, the default dtype in torch; None where no kernel knows it."""
    if framework == "np":
        return FLOAT64
    return _torch_kinds().get(_torch().get_default_dtype())


def empty(framework: Framework, shape: Sequence[int], kind: int) -> tuple[Any, int]:
    """An uninitialised contiguous array ("np") or CPU tensor ("pt"), and the address of its first element."""
    if framework == "pt":
        _torch()  # interop looks at the libraries loaded so far
    return _core.allocate(interop(), framework == "pt", shape, kind)


def empty_batch(framework: Framework, outputs: Sequence[tuple[Sequence[int], int]]) -> list[tuple[Any, int]]:
    """`empty` for the (shape, kind) of each output of a batch: in a DataLoader's worker, tensors in shared memory."""
    return _core.allocate_batch(interop(), framework == "pt", outputs)


def _make_tensor(shape: tuple[int, ...], kind: int) -> tuple[Any, int]:
    tensor = _torch().empty(shape, dtype=torch_dtype(kind), device="cpu")
    return tensor, tensor.data_ptr()


@functools.cache
def torch_has(kind: int, *, of_numbers: bool = False) -> bool:
    """Whether torch makes tensors of a kind from arrays, or from lists of NumPy numbers: 2.13 refuses some of those."""
    zero = np.zeros(1, _DTYPES[kind])
    try:
        made = _torch().tensor([zero[0]]) if of_numbers else _torch().from_numpy(zero)
        return bool(made.dtype == torch_dtype(kind))
    except TypeError:
        return False


def torch_facts_of_plain_tensors() -> tuple[tuple[Callable[[], Any], Any], ...] | None:
    """Functions, and what they return as long as torch makes plain CPU tensors of today's default dtype; else None."""
    binding = _torch()._C
    try:
        facts = (
            (binding._len_torch_function_stack, 0),
            (binding._len_torch_dispatch_stack, 0),
            (binding._get_tracing_state, None),
            (binding._get_default_device, "cpu"),
        )
    except AttributeError:  # a torch that names them otherwise
        return None
    if any(function() != result for function, result in facts):
        return None
    default_dtype = _torch().get_default_dtype
    return *facts, (default_dtype, default_dtype())


def require_plain_tensors() -> None:
    """Raises NotOnCpu under `torch.set_default_device`, a mode that records, and the like."""
    if torch_facts_of_plain_tensors() is not None:  # no need to make a tensor
        return
    if recording():
        raise NotOnCpu("torch records what is done to tensors")
    probe = _torch().empty(0)
    if type(probe) is not _torch().Tensor or not probe.is_cpu:
        raise NotOnCpu(f"torch makes {type(probe).__name__}s on {probe.device} by default")


def _in_worker() -> bool:
    """Whether this process is a worker of a `torch.utils.data.DataLoader`."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


# Those that ask, in a process that `multiprocessing` started, whether it is a worker.
_sharing: list[_core.Interop] = []


def _process_started(_: object) -> None:
    for made in _sharing:
        made.may_be_worker = True


multiprocessing.util.register_after_fork(_process_started, _process_started)  # called in spawned processes, too


@functools.cache
def _interop(torch_loaded: bool, transformers_loaded: bool, shares: bool) -> _core.Interop:
    torch = sys.modules["torch"] if torch_loaded else None
    tensor, binding = getattr(torch, "Tensor", None), getattr(torch, "_C", None)
    exchange = getattr(tensor, "__dlpack_c_exchange_api__", None)
    made = _core.Interop(
        np.ndarray,
        sys.modules["transformers"].BatchEncoding if transformers_loaded else None,
        tensor,
        exchange,
        describe_tensor,
        _make_tensor,
        _in_worker,
        make_shared,
        tuple((dtype.type, kind) for kind, dtype in enumerate(_DTYPES)),
        way_to_read,
        # What counts the function modes that are active, and what keeps them out of a stretch of code.
        getattr(binding, "_len_torch_function_stack", None),
        getattr(binding, "DisableTorchFunction", None),
        vars(_forward_ad()) if torch_loaded else None,
        # Parameter turns torch's dispatch off for itself; an operation gives plain tensors.
        (np.memmap, *(() if torch is None else (torch.nn.Parameter,))),
    )
    if shares:
        made.may_be_worker = multiprocessing.parent_process() is not None
        _sharing.append(made)
    if exchange is not None:
        with contextlib.suppress(Exception):  # a torch that does not say, or makes other tensors now: no look ahead
            shown = _torch().empty(1, device="cpu")
            made.learn_tensor(shown, shown._cdata, shown.untyped_storage()._cdata)  # where tensors keep their parts
    return made


def interop(*, shares: bool = True) -> _core.Interop:
    """The types of the libraries loaded so far. shares: whether tensors of workers are in shared memory."""
    modules = sys.modules  # None stands there for a module that is shut out
    return _interop(modules.get("torch") is not None, modules.get("transformers") is not None, shares)


def is_stored(tensor: torch.Tensor) -> bool:
    """Whether copying a tensor's memory, on the CPU, copies all there is: no gradient, tangent or bit changes that."""
    if not tensor.is_cpu or other_than_memory(tensor) or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        return False
    return not has_tangent(tensor)


def other_than_memory(tensor: Any) -> str | None:
    """What a tensor is whose numbers are not what its memory holds, on the CPU or a GPU; None for all others."""
    torch, cls = sys.modules["torch"], type(tensor)
    if cls is not torch.Tensor and cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {cls.__name__}"  # fake, distributed, a wrapper: it stands for something else
    if tensor.is_nested or tensor.is_quantized:
        return "a nested tensor" if tensor.is_nested else "a quantized tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    try:
        return None if tensor.data_ptr() or not tensor.numel() else "a tensor without memory of its own"
    except RuntimeError:
        return "a tensor inside of a torch.func transform"


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether forward-mode differentiation follows a tensor, as only torch's own operations do."""
    forward_ad = _forward_ad()
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _forward_ad() -> Any:
    return sys.modules["torch.autograd.forward_ad"]


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


@functools.lru_cache(maxsize=256, typed=True)
def bits_of(value: Any, kind: int) -> int:
    """The bits of a number as one element of `kind`, as an unsigned integer."""
    return int.from_bytes(np.array(value, _DTYPES[kind]).tobytes(), sys.byteorder)


def on_gpu(value: object) -> bool:
    """Whether `value` is a tensor in the memory of a CUDA device."""
    return is_tensor(value) and value.device.type == "cuda"  # type: ignore[attr-defined]


def compiling() -> bool:
    """Whether torch is tracing this call, for `torch.compile`: then nothing may depend on what tensors hold."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    # torch 2.2, which traces this line but no hasattr, has it in the other place.
    return bool((torch.compiler if "is_compiling" in torch.compiler.__all__ else torch._utils).is_compiling())


def recording() -> bool:
    """Whether torch records tensor operations, for example `torch.compile`: then tensors need quadrat's operators."""
    if compiling():
        return True
    torch = sys.modules.get("torch")
    binding = getattr(torch, "_C", None)
    return binding is not None and (binding._len_torch_dispatch_stack() > 0 or binding._get_tracing_state() is not None)


def require_unrecorded(name: str) -> None:
    """Raises RuntimeError where a tensor's numbers would become constants of what torch records."""
    if recording() and not compiling():
        raise RuntimeError(
            f"torch records what is done to tensors (make_fx, torch.jit.trace or a dispatch mode), and reading {name} "
            "would make the result a constant of the recording: call quadrat before it, or an operator of "
            "torch.ops.quadrat"
        )


def item_size(kind: int) -> int:
    """The bytes of one element."""
    return _DTYPES[kind].itemsize


def torch_dtype(kind: int) -> torch.dtype:
    """The torch dtype of a kind. Raises TypeError where this torch has none."""
    if (dtype := getattr(_torch(), KINDS[kind], None)) is None:
        raise TypeError(f"this torch has no dtype {KINDS[kind]}")
    return dtype  # type: ignore[no-any-return]


def describe_tensor(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], int, int] | None:
    """(address, shape, stride in bytes, kind) of a CPU tensor, for a torch without DLPack's exchange API, or None."""
    if not is_stored(tensor) or (tensor.dim() > 1 and not tensor.is_contiguous()):
        return None
    kind = _torch_kinds().get(tensor.dtype)
    if kind is None:
        return None
    stride = tensor.stride(0) if tensor.dim() else 1
    return tensor.data_ptr(), tuple(tensor.shape), stride * tensor.element_size(), kind
