"""`quadrat.evaluation.concat_padded`: arrays in lists, tuples and mappings, below one another."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from quadrat.support.arrays import is_array
from quadrat.support.tensors import is_tensor, recording

Batch = TypeVar("Batch")
_FEW = 3  # so many are joined one after the other
_AT_ONCE = 1 << 20  # bytes, which are let go of together
_PLAIN = {list, tuple, dict}


def concat_padded(arrays: Iterable[Batch], padding_index: Any = -100) -> Batch:
    """Join batches along their first axis, and pad the second to the widest batch.

    The result is that of applying `nested_concat` of transformers to one batch after the other.

    Args:
        arrays: the batches. Each is a NumPy array or a torch tensor, `[rows]` or `[rows, width, ...]`, or a list, tuple
            or mapping of these, nested to any depth; all batches have the structure of the first. Tensors of different
            dtypes get the dtype of the first if their widths differ, else their common dtype.
        padding_index: the padding value for batches that are narrower than the widest.

    Returns:
        Arrays `[all rows, widest, ...]` in the structure of the first batch, in their library and on their device; one
        batch as it is. If batches differ in rows and width alone, the cost is that of one copy.

    Raises:
        AssertionError: when batches are of different types.
        TypeError: when they hold anything but arrays.
        ValueError: when there is no batch, or the shapes of NumPy arrays do not match.
        RuntimeError, IndexError, KeyError: when tensors, dimensions or keys do not match.

    Examples:
        >>> import numpy, quadrat
        >>> quadrat.evaluation.concat_padded([numpy.array([[1, 2], [3, 4]]), numpy.array([[5, 6, 7]])])
        array([[   1,    2, -100],
               [   3,    4, -100],
               [   5,    6,    7]])
    """
    if is_tensor(arrays) or isinstance(arrays, (np.ndarray, Mapping, str)):
        raise TypeError(f"arrays must be a sequence of batches, not one {type(arrays).__name__}")
    batches = list(arrays)
    if not batches:
        raise ValueError("there is no batch to concatenate")
    if len(batches) > _FEW and not _types_of(batches[0]) <= _PLAIN:  # other types may not be made of their parts
        batches[:2] = [concat_two(batches[0], batches[1], padding_index)]
    if len(batches) > _FEW:
        rows: list[list[Any]] = [[] for _ in batches]
        alike = [*map(likeness, batches, rows)]
        if all(joins(alike[0], other, padding_index) for other in alike):
            return Joining(batches[0], map(list, zip(*rows, strict=True)), padding_index).finished()  # type: ignore[no-any-return]
    return functools.reduce(functools.partial(concat_two, padding=padding_index), batches)


def concat_two(first: Any, second: Any, padding: Any) -> Any:
    """Two batches as one, whatever they are made of. Raises what `concat_padded` does."""
    if not (is_tensor(first) and is_tensor(second)) and type(first) is not type(second):
        raise AssertionError(
            f"Expected `tensors` and `new_tensors` to have the same type but found {type(first)} and {type(second)}."
        )
    make: Any = type(first)
    if isinstance(first, (list, tuple)):
        return make(concat_two(*pair, padding) for pair in zip(first, second, strict=False))
    if isinstance(first, Mapping):
        return make({key: concat_two(value, second[key], padding) for key, value in first.items()})
    if not is_array(first):
        raise TypeError(f"Unsupported type for concatenation: got {type(first)}")
    first, second = (array if array.ndim else array.reshape(1) for array in (first, second))
    if first.ndim == 1 or first.shape[1] == second.shape[1]:
        return (sys.modules["torch"].cat if is_tensor(first) else np.concatenate)((first, second))
    shape, rows = (len(first) + len(second), max(first.shape[1], second.shape[1]), *first.shape[2:]), len(first)
    filled = first.new_full(shape, padding) if is_tensor(first) else np.full_like(first, padding, shape=shape)
    filled[:rows, : first.shape[1]] = first
    filled[rows:, : second.shape[1]] = second
    return filled


class Joining:
    """Batches whose likenesses can be joined, to the width of the widest. Each is let go of when it is copied.

    An interrupt may come meanwhile.
    """

    def __init__(self, model: Any, columns: Iterable[list[Any]], padding: Any) -> None:
        """model: the structure of a batch. columns: in each place of it, the arrays of all batches."""
        self._padding, self._columns = padding, list(columns)
        self._left = max(map(len, self._columns), default=0)
        results = list(map(_empty_for, self._columns))  # memory that nothing was written to takes no space yet
        values = iter(results)
        self._result = tree_map(lambda _: next(values), model)
        self._starts = [[*accumulate((array.shape[0] for array in column), initial=0)] for column in self._columns]
        alike = all(column[0].shape[1:2] == array.shape[1:2] for column in self._columns for array in column)
        size = sum(result.nbytes for result in results) // max(self._left, 1)
        self._at_once = max(_AT_ONCE // max(size, 1), 1) if alike else 1  # batches

    def finished(self) -> Any:
        """All batches as one."""
        # The last ones first: the end of the heap goes back to the system. A signal handler may do the same meanwhile.
        while (left := self._left) > 0:
            first = max(left - self._at_once, 0)
            for column, result, starts in zip(self._columns, leaves_of(self._result), self._starts, strict=True):
                place, array = result[starts[first] : starts[left]], column[first]
                if array.ndim < 2 or array.shape[1] == result.shape[1]:
                    (sys.modules["torch"].cat if is_tensor(array) else np.concatenate)(column[first:left], out=place)
                else:
                    place[:, : array.shape[1]] = array
                    _fill(place[:, array.shape[1] :], self._padding)
            self._left = first
            for column in self._columns:
                del column[first:]
        return self._result


def _fill(gaps: Any, padding: Any) -> None:
    """Fill as `Tensor.new_full` and `np.full` do, which casts floats to ints of any size; an assignment would not."""
    if is_tensor(gaps):
        gaps[...] = padding
    else:
        np.copyto(gaps, padding, casting="unsafe")


def _empty_for(arrays: Sequence[Any]) -> Any:
    first, widths = arrays[0], {array.shape[1:2] for array in arrays}
    shape = (sum(map(len, arrays)), *max(widths), *first.shape[2:])
    return first.new_empty(shape) if is_tensor(first) else np.empty(shape, first.dtype)


def tree_map(function: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """The structure of a batch, with what a function makes of each leaf, and of those of others in its place."""
    make: Any = type(batch)
    if isinstance(batch, (list, tuple)):
        return make(tree_map(function, *parts) for parts in zip(batch, *others, strict=False))
    if isinstance(batch, Mapping):
        return make({key: tree_map(function, part, *(other[key] for other in others)) for key, part in batch.items()})
    return function(batch, *others)


def leaves_of(batch: Any) -> Iterator[Any]:
    """The leaves of nested lists, tuples and mappings, in order."""
    if isinstance(batch, (list, tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves_of(part)
    else:
        yield batch


def _types_of(batch: Any) -> set[type]:
    if not isinstance(batch, (list, tuple, Mapping)):
        return set()
    return {type(batch)}.union(*map(_types_of, batch.values() if isinstance(batch, Mapping) else batch))


def likeness(batch: Any, arrays: list[Any]) -> Any:
    """A key, equal for batches that differ in their rows alone; None unless they are plain arrays in containers.

    arrays: gets the arrays, in order.
    """
    cls = type(batch)
    arrays.append(batch)
    if cls is np.ndarray:
        # The results of NumPy lie as the first array does: others than rows after rows are left to it.
        plain = not batch.dtype.hasobject and batch.dtype.isnative and batch.flags.c_contiguous
        return (cls, batch.shape[1:], batch.dtype) if plain and batch.shape else None
    torch = sys.modules.get("torch")
    if torch is not None and cls is torch.Tensor:
        plain = batch.layout is torch.strided and not (batch.requires_grad or batch.is_nested or batch.is_quantized)
        return (cls, batch.shape[1:], batch.dtype, batch.device) if plain and batch.shape else None
    if not isinstance(batch, (list, tuple, Mapping)):
        return None
    arrays.pop()
    keys, parts = (tuple(batch), batch.values()) if isinstance(batch, Mapping) else (None, batch)
    alike = tuple([likeness(part, arrays) for part in parts])
    return None if None in alike else (cls, keys, alike)


def joins(first: Any, other: Any, padding: Any) -> bool:
    """True if batches of these likenesses are joined by bytes: they are equal, or their arrays differ in width."""
    if first == other:
        return first is not None
    if first is None or other is None or first[0] is not other[0]:
        return False
    if type(first[2]) is tuple:
        same = first[1] == other[1] and len(first[2]) == len(other[2])
        return same and all(joins(*pair, padding) for pair in zip(first[2], other[2], strict=True))
    sizes, others = first[1], other[1]
    alike = bool(sizes and others) and sizes[1:] == others[1:] and first[2:] == other[2:]
    return alike and not recording() and (_fills if type(padding) is int else _fills.__wrapped__)(first[2], padding)


@functools.lru_cache(maxsize=64)
def _fills(dtype: Any, padding: Any) -> bool:
    """True if arrays of a dtype of torch or NumPy can be filled with a padding value."""
    try:
        if isinstance(dtype, np.dtype):
            np.full(1, padding, dtype)
        else:  # of one number, torch lets small floats overflow
            sys.modules["torch"].full((2,), padding, dtype=dtype, device="cpu")
    except (RuntimeError, OverflowError, TypeError, ValueError):
        return False
    return True
