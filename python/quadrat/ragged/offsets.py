"""Offsets of ragged rows: row `i` runs from `offsets[i]` to before `offsets[i + 1]`."""

import functools
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.support.arrays import IntArray, as_numpy, is_array
from quadrat.support.kinds import KINDS, kind_of
from quadrat.support.tensors import is_tensor, on_gpu, recording

_LONGEST = 2**62  # tokens in all


class Facts(NamedTuple):
    """Facts about the offsets of a `Ragged`."""

    first: int
    last: int
    longest: tuple[int, int]  # row, and its length


def require_offsets(offsets: Any) -> None:
    """Raises TypeError unless offsets are an array or tensor, and ValueError unless they are 1-D integers, and some."""
    if not is_array(offsets):
        raise TypeError(f"offsets must be a NumPy array or torch tensor, not {type(offsets).__name__}")
    if offsets.ndim != 1 or not _is_integer(offsets.dtype) or len(offsets) == 0:
        what = f"{offsets.dtype} of shape {tuple(offsets.shape)}"
        raise ValueError(f"offsets must be integers, one more than there are rows, not {what}")


@functools.cache
def _is_integer(dtype: Any) -> bool:
    try:
        return "int" in KINDS[kind_of(dtype)]
    except TypeError:
        return False


def checked_offsets(offsets: Any, total: int) -> tuple[IntArray, Facts]:
    """A private copy of offsets on the CPU, and facts about them. Raises as `require_offsets`, and ValueError."""
    require_offsets(offsets)
    bounds = np.array(as_numpy(offsets, "offsets"), np.int64)
    failure, row, length = _core.check_offsets(bounds, total)
    first, last = int(bounds[0]), int(bounds[-1])
    if failure is not None:
        row = failure[1]
        wrong = " and ".join(f"offsets[{at}] is {bounds[at]}" for at in range(row, min(row + 2, len(bounds))))
        within = f"from 0 to {total}" if total < _LONGEST else "0 or more"
        raise ValueError(f"offsets must be {within} and must not decrease, but {wrong}")
    return bounds, Facts(first, last, (row, length))


def as_lengths(lengths: Any, called: str = "lengths") -> IntArray:
    """A private copy of lengths, int64 on the CPU, of an array, a tensor or a list. Raises TypeError, ValueError."""
    array, noun = np.array(_integers(lengths, called)), called.removesuffix("s")
    if array.size and int(array.min()) < 0:
        raise ValueError(f"row {int(array.argmin())} has the negative {noun} {int(array.min())}")
    if array.size and (most := int(array.max())) > _LONGEST // array.size:
        raise ValueError(f"row {int(array.argmax())} has the {noun} {most}: such a batch does not fit into memory")
    return array.astype(np.int64, copy=False)


def require_each(sizes: Any, rows: int, called: str = "lengths") -> None:
    """Raises ValueError unless there is one for each row."""
    if len(sizes) != rows:
        raise ValueError(f"there are {len(sizes)} {called} for {rows} rows: give one for each row")


def _integers(lengths: Any, called: str) -> NDArray[Any]:
    """`[rows]` integers on the CPU, which may be those of the caller. Raises TypeError for others."""
    array = as_numpy(lengths, called)
    if not array.size and not hasattr(lengths, "dtype"):
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        remedy = "; of a dataset, give quadrat.lengths(dataset)" if array.dtype.kind in "OUS" else ""
        raise TypeError(f"{called} must be integers, one per row, not {array.dtype} of shape {array.shape}{remedy}")
    return array


def offsets_of(lengths: Any) -> tuple[IntArray, Facts]:
    """`[rows + 1]` offsets of rows of these lengths, and facts about them. Raises TypeError and ValueError."""
    array = _integers(lengths, "lengths")
    bounds = bounds_of(array.astype(np.int64, copy=False))
    failure, row, length = _core.check_offsets(bounds, _LONGEST)
    if failure is not None:  # they decrease where a length is negative, or the sum too large for int64
        as_lengths(array)  # raises, and says which
        raise ValueError("lengths changed while they were read")
    return bounds, Facts(0, int(bounds[-1]), (row, length))


def bounds_of(lengths: IntArray) -> IntArray:
    """0, and the lengths added up."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=bounds[1:])
    return bounds


def tensor_or_array(bounds: IntArray, like: Any) -> Any:
    """Offsets in the library of an array, and on its device."""
    if not is_tensor(like):
        return bounds
    offsets = sys.modules["torch"].from_numpy(bounds)
    return offsets if like.is_cpu else offsets.to(like.device, non_blocking=True)


def offsets_like(values: Any, lengths: Any) -> tuple[Any, Facts | None]:
    """Offsets, int64, in the library of `values` and on its device, and what is known: of lengths on a GPU nothing.

    Raises TypeError and ValueError.
    """
    if on_gpu(lengths) or (is_tensor(lengths) and recording()):
        if len(shape := tuple(lengths.shape)) != 1 or lengths.dtype.is_floating_point:
            raise TypeError(f"lengths must be integers, one per row, not {lengths.dtype} of shape {shape}")
        torch = sys.modules["torch"]
        return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int64), (1, 0)).to(values.device), None
    bounds, facts = offsets_of(lengths)
    return tensor_or_array(bounds, values), facts
