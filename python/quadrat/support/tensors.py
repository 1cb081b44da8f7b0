"""Tensors of torch: whether their memory holds their numbers, and whether torch records what is done to them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quadrat.support.kinds import torch_module

if TYPE_CHECKING:
    import torch


def is_tensor(value: object) -> bool:
    """True if `value` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class NotOnCpu(RuntimeError):  # noqa: N818 - a reason to fall back, not raised to users
    """An allocation landed on a device the CPU kernels cannot write to."""


def torch_facts_of_plain_tensors() -> tuple[tuple[Callable[[], Any], Any], ...] | None:
    """Functions, and what they return as long as torch makes plain CPU tensors of today's default dtype; else None."""
    binding = torch_module()._C
    try:
        facts = (
            (binding._len_torch_function_stack, 0),
            (binding._len_torch_dispatch_stack, 0),
            (binding._get_tracing_state, None),
            (binding._get_default_device, "cpu"),
        )
    except AttributeError:  # a torch that names them otherwise
        return None
    if [function() for function, _ in facts] != [result for _, result in facts]:
        return None
    default_dtype = torch_module().get_default_dtype
    return *facts, (default_dtype, default_dtype())


def require_plain_tensors() -> None:
    """Raises NotOnCpu under `torch.set_default_device`, a mode that records, and the like."""
    if torch_facts_of_plain_tensors() is not None:  # no need to make a tensor
        return
    if recording():
        raise NotOnCpu("torch records what is done to tensors")
    probe = torch_module().empty(0)
    if type(probe) is not torch_module().Tensor or not probe.is_cpu:
        raise NotOnCpu(f"torch makes {type(probe).__name__}s on {probe.device} by default")


def is_stored(tensor: torch.Tensor) -> bool:
    """True if copying a tensor's memory, on the CPU, copies all there is: no gradient, tangent or bit changes that."""
    return tensor.is_cpu and not tensor.requires_grad and is_readable(tensor)


def is_readable(tensor: torch.Tensor) -> bool:
    """True if the memory of a tensor, on the CPU or a GPU, has its numbers, and no tangent goes with them."""
    if not (tensor.is_cpu or tensor.is_cuda) or other_than_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return False
    return not has_tangent(tensor)


def other_than_memory(tensor: Any) -> str | None:
    """The name of a kind of tensor whose memory does not hold its numbers, on the CPU or a GPU; None for all others."""
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
    """True if forward-mode differentiation follows a tensor, as only torch's own operations do."""
    forward_ad = sys.modules["torch.autograd.forward_ad"]
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def moved(values: dict[str, Any], device: Any, non_blocking: bool = True) -> dict[str, Any]:
    """Values, the tensors among them on a device."""
    tensors = {name: value.to(device, non_blocking=non_blocking) for name, value in values.items() if is_tensor(value)}
    return values | tensors


def on_gpu(value: object) -> bool:
    """True if `value` is a tensor in the memory of a CUDA device."""
    return is_tensor(value) and value.device.type == "cuda"  # type: ignore[attr-defined]


def compiling() -> bool:
    """True if torch is tracing this call, for `torch.compile`: then nothing may depend on what tensors hold."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    # torch 2.2, which traces this line but no hasattr, has it in the other place.
    return bool((torch.compiler if "is_compiling" in torch.compiler.__all__ else torch._utils).is_compiling())


def recording() -> bool:
    """True if torch records tensor operations, for example `torch.compile`."""
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
            "would make the result a constant of the recording: call quadrat before it"
        )


def tracked(array: Any) -> bool:
    """True if torch keeps track of what is done to an array, for its gradient or to do it again."""
    return is_tensor(array) and (recording() or (array.requires_grad and sys.modules["torch"].is_grad_enabled()))
