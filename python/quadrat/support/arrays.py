"""Arrays as the kernels take them: dense numbers in memory, of dtypes that they know or integers in their place."""

import functools
import math
import numbers
from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.support import kinds, memory, tensors
from quadrat.support.kinds import BFLOAT16, BOOL, FLOAT16, FLOAT32, KINDS, NUMPY_KINDS, Framework
from quadrat.support.tensors import is_tensor, recording, require_unrecorded

IntArray = NDArray[np.int64]

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar

    # `NDArray[Any]` or `torch.Tensor`; where nobody says which, anything.
    Array = TypeVar("Array", default=Any)
    SameArray = TypeVar("SameArray", NDArray[Any], torch.Tensor)  # one of them, exactly
else:
    from typing import TypeVar

    Array = TypeVar("Array")


def is_array(value: Any) -> bool:
    """True for arrays of NumPy and tensors of torch."""
    return is_tensor(value) or isinstance(value, np.ndarray)


def require_unmasked(array: Any, name: str) -> None:
    """Raises TypeError for a masked array with masked values."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise TypeError(f"{name} would lose the mask of a masked array: give array.filled(value), or both apart")


def require_plain(array: Any, name: str) -> None:
    """Raises TypeError unless an array's numbers are in its memory, ValueError on other devices; not in a recording."""
    if not is_tensor(array):
        require_unmasked(array, name)
        return
    if recording():
        return
    if not (array.is_cpu or array.is_cuda):
        raise ValueError(f"{name} must be on the CPU or a GPU, not on {array.device}")
    if (other := tensors.other_than_memory(array)) is not None:
        raise TypeError(f"{name} must be a dense tensor with its numbers in memory, not {other}")


def require_array(array: Any, name: str) -> None:
    """`require_plain`, and a TypeError unless it is an array or a tensor."""
    if not is_array(array):
        raise TypeError(f"{name} must be a NumPy array or torch tensor, not {type(array).__name__}")
    require_plain(array, name)


def dense(array: Any, name: str) -> Any:
    """The same numbers, contiguous and without a gradient; the array itself where that is so.

    Raises what `require_plain` and `require_unrecorded` do, and NotImplementedError for a tensor with a tangent.
    """
    if not is_tensor(array):
        require_plain(array, name)
        return np.ascontiguousarray(array)
    require_unrecorded(name)
    require_plain(array, name)
    if tensors.has_tangent(array):
        raise NotImplementedError(
            f"{name} have a tangent, and quadrat has no forward-mode derivatives: unpack the tensor with "
            "torch.autograd.forward_ad.unpack_dual first"
        )
    if array.is_contiguous() and not (array.requires_grad or array.is_neg() or array.is_conj()):
        return array
    return array.detach().resolve_conj().resolve_neg().contiguous()


def as_numpy(array: Any, name: str) -> NDArray[Any]:
    """An array, tensor or sequence as a NumPy array, which shares a CPU tensor's memory. Raises as `dense`."""
    if not is_tensor(array):
        require_plain(array, name)
        return np.asarray(array)
    require_unrecorded(name)
    require_plain(array, name)
    stored = array.is_cpu and not (array.requires_grad or array.is_neg())
    return array.numpy() if stored else array.numpy(force=True)  # type: ignore[no-any-return]


# Numbers no kernel computes with are moved as integers of their size.
_CARRIED = ("bfloat16", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


@functools.cache
def carrier_of(dtype: Any) -> Any:
    """The integer dtype that stands in for one without a kind, else None. Raises TypeError where no kernel moves it."""
    name = str(dtype).removeprefix("torch.")
    if name in (NUMPY_KINDS if isinstance(dtype, np.dtype) else KINDS):
        return None
    if name not in _CARRIED:
        raise TypeError(f"dtype {dtype} is not supported: use one of {', '.join(KINDS)}")
    integer = f"int{8 * int(dtype.itemsize)}"
    return np.dtype(integer) if isinstance(dtype, np.dtype) else kinds.torch_dtype(KINDS.index(integer))


def require_own_dtype(values: Any, dtype: Any, return_tensors: Framework | None) -> None:
    """Checks that nothing is to be converted. Raises TypeError and ValueError."""
    if dtype is not None and dtype != values.dtype:
        place = getattr(values, "device", "the CPU")
        raise TypeError(f"{values.dtype} on {place} is not converted to {dtype}: convert the values first")
    framework: Framework = "pt" if is_tensor(values) else "np"
    if kinds.framework_of(return_tensors, framework) != framework:
        what = f"a {type(values).__name__} of {values.dtype}"
        raise ValueError(f"return_tensors must be {framework!r} for {what}, not {return_tensors!r}")


def room_like(array: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """An uninitialised array of another shape, of the library and dtype of one on the CPU; its address."""
    carrier = carrier_of(array.dtype)
    kind = kinds.kind_of(array.dtype if carrier is None else carrier)
    room, address = memory.empty("pt" if is_tensor(array) else "np", shape, kind)
    return room if carrier is None else room.view(array.dtype), address


def bytes_per_token(array: Any, lead: int) -> int:
    """The bytes of what the dimensions after the first `lead` hold."""
    return int(math.prod(array.shape[lead:]) * array.dtype.itemsize)


def fast_form(row: Any) -> str | None:
    """Code that makes of `row` one that the kernels read; None where it is one, or nothing does."""
    cls = type(row)
    if _is_read(row) or (isinstance(row, (np.ndarray, np.generic)) and not _is_read(np.asarray(row))):
        return None
    if is_tensor(row):
        is_plain = cls.__name__ in ("Tensor", "Parameter") and cls.__module__.partition(".")[0] == "torch"
        return "row.detach()" if is_plain and row.requires_grad else None
    if hasattr(cls, "__array__") or cls in (array, bytearray, memoryview):
        return "np.asarray(row)"
    sequence = isinstance(row, (Sequence, deque)) and not isinstance(row, (str, bytes))
    return "list(row)" if sequence and cls not in (list, tuple) else None


def _is_read(row: Any) -> bool:
    columns = _core.Columns()
    columns.add_values([row], memory.interop())
    return not columns.describe(0)[0] & _core.FORMS.OTHER


def is_kept(number: Any, stored: Any) -> bool:
    """True if what a dtype stores of a number stands for it: a whole number is equal, any other one may be rounded."""
    if stored == number or (np.isnan(stored) and np.isnan(number)):
        return True
    return bool(number % 1 != 0 and np.isfinite(number) and np.isfinite(stored))


# From here on numbers round to infinity.
_BEYOND = {FLOAT16: 65520.0, FLOAT32: 2.0**128 - 2.0**103, BFLOAT16: 2.0**128 - 2.0**119}
_DIGITS = {FLOAT16: 11, BFLOAT16: 8}  # binary ones; an int with more of them is rounded


def fill_value(value: Any, kind: int | None) -> Any:
    """The padding value as a plain Python number; 0 and 1 serve as bools too. Raises TypeError and OverflowError."""
    if isinstance(value, (bool, np.bool_)) or (kind == BOOL and value in (0, 1)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        whole = abs(int(value))
        if kind in _DIGITS and whole.bit_length() - (whole & -whole).bit_length() >= _DIGITS[kind]:
            hint = f"; give {float(value)} to round it" if whole < _BEYOND[kind] else ""
            raise OverflowError(f"padding_value={value!r} does not fit the dtype {KINDS[kind]}{hint}")
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if kind is not None and math.isfinite(number) and abs(number) >= _BEYOND.get(kind, math.inf):
            raise OverflowError(f"padding_value={value!r} does not fit the dtype {KINDS[kind]}")
        return number
    raise TypeError(f"padding_value must be a number, not {value!r}")


def carried(value: Any, values: Any) -> int:
    """The bits of a number in the dtype of `values`, as a signed integer. Raises OverflowError if it has none."""
    element: Any
    try:
        number = float(fill_value(value, None))
        if is_tensor(values):
            element = values.new_tensor(number, device="cpu")
            stored = (element if element.is_complex() else element.double()).item()
        else:
            with np.errstate(over="ignore"):
                element = np.array(number, values.dtype)
            stored = complex(element)
        bits = element.view(carrier_of(values.dtype)).item()
        fits = is_kept(number, stored)
    except OverflowError:  # an int beyond all floats
        fits = False
    if not fits:
        raise OverflowError(f"padding_value={value!r} does not fit the dtype {values.dtype}")
    return int(bits)
