"""Element kinds: the number of an element type in ``_core.kinds``, which kernels are told in place of a dtype."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quadrat import _core
from quadrat.support.extras import needs

if TYPE_CHECKING:
    import torch

Framework = Literal["np", "pt"]
NUMPY_KINDS: tuple[str, ...] = _core.kinds
KINDS = *NUMPY_KINDS, "bfloat16"
BOOL, INT32, INT64 = map(KINDS.index, ("bool", "int32", "int64"))
FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = map(KINDS.index, ("float16", "float32", "float64", "bfloat16"))
WIDEST = 2**48  # tokens of a row; more than any address space holds
DTYPES = tuple(np.dtype(name) for name in NUMPY_KINDS)
ITEM_SIZES = *(dtype.itemsize for dtype in DTYPES), 2
_KIND_OF_DTYPE = {dtype: kind for kind, dtype in enumerate(DTYPES)}


@functools.cache
def torch_module() -> Any:
    """torch. Raises ModuleNotFoundError with the command that installs it."""
    with needs("return_tensors='pt'"):
        import torch

    return torch


@functools.cache
def torch_kinds() -> dict[torch.dtype, int]:
    """The kinds of the dtypes that this torch has."""
    return {getattr(torch_module(), name): kind for kind, name in enumerate(KINDS) if hasattr(torch_module(), name)}


def framework_of(return_tensors: str | None, default: Framework, kind: int | None = None) -> Framework:
    """The library that `return_tensors` names; by default torch for numbers that NumPy lacks. Raises ValueError."""
    if return_tensors is None:
        return "pt" if kind == BFLOAT16 else default
    if return_tensors not in ("np", "pt"):
        raise ValueError(f"return_tensors must be 'np' or 'pt', not {return_tensors!r}")
    return "np" if return_tensors == "np" else "pt"


def kind_of(dtype: Any) -> int:
    """The kind of a NumPy or torch dtype, "bfloat16", or anything `numpy.dtype` takes. Raises TypeError for others."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        kind = torch_kinds().get(dtype)
    elif dtype == "bfloat16":
        kind = BFLOAT16
    else:
        kind = _KIND_OF_DTYPE.get(np.dtype(dtype))
    if kind is None:
        raise TypeError(f"dtype {dtype} is not supported: use one of {', '.join(KINDS)}")
    return kind


def default_float_kind(framework: Framework) -> int | None:
    """The kind a Python float becomes: float64 in NumPy, the default dtype in torch; None where no kernel knows it."""
    if framework == "np":
        return FLOAT64
    return torch_kinds().get(torch_module().get_default_dtype())


@functools.cache
def torch_has(kind: int, *, of_numbers: bool = False) -> bool:
    """True if torch makes tensors of a kind from arrays, or from lists of NumPy numbers: 2.13 refuses some of those."""
    if kind == BFLOAT16:
        return not of_numbers
    zero = np.zeros(1, DTYPES[kind])
    try:
        tensor = torch_module().tensor([zero[0]]) if of_numbers else torch_module().from_numpy(zero)
        return bool(tensor.dtype == torch_dtype(kind))
    except TypeError:
        return False


@functools.lru_cache(maxsize=256, typed=True)
def bits_of(value: Any, kind: int) -> int:
    """The bits of a number as one element of `kind`, as an unsigned integer."""
    if kind == BFLOAT16:
        return int(torch_module().tensor(value, dtype=torch_dtype(kind)).view(torch_module().int16).item()) % 2**16
    return int.from_bytes(np.array(value, DTYPES[kind]).tobytes(), sys.byteorder)


def torch_dtype(kind: int) -> torch.dtype:
    """The torch dtype of a kind. Raises TypeError where this torch has none."""
    if (dtype := getattr(torch_module(), KINDS[kind], None)) is None:
        raise TypeError(f"this torch has no dtype {KINDS[kind]}")
    return dtype  # type: ignore[no-any-return]
