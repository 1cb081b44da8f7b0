"""`quadrat.evaluation.concat_padded`: nested arrays below one another."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from quadrat.ops._nested import joins, leaves_of, likeness, tree_map, types_of
from quadrat.support.tensors import is_tensor

Batch = TypeVar("Batch")
_FEW = 3  # so many are joined one after the other
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
    if len(batches) > _FEW and not types_of(batches[0]) <= _PLAIN:  # other types may not be made of their parts
        batches[:2] = [concat_two(batches[0], batches[1], padding_index)]
    alike = [likeness(batch) for batch in batches] if len(batches) > _FEW else []
    if alike and all(joins(alike[0], other, padding_index) for other in alike):
        return concatenated(batches, padding_index)  # type: ignore[no-any-return]
    return functools.reduce(functools.partial(concat_two, padding_index=padding_index), batches)


def concat_two(first: Any, second: Any, padding_index: Any) -> Any:
    """Two batches as one, whatever they are made of. Raises what `concat_padded` does."""
    if type(first) is type(second) is np.ndarray and first.ndim and second.ndim:
        return _concat_two_arrays(first, second, padding_index)
    if not (is_tensor(first) and is_tensor(second)) and type(first) is not type(second):
        raise AssertionError(
            f"Expected `tensors` and `new_tensors` to have the same type but found {type(first)} and {type(second)}."
        )
    make: Any = type(first)
    if isinstance(first, (list, tuple)):
        return make(concat_two(*pair, padding_index) for pair in zip(first, second, strict=False))
    if isinstance(first, Mapping):
        return make({key: concat_two(value, second[key], padding_index) for key, value in first.items()})
    if not (is_tensor(first) or isinstance(first, np.ndarray)):
        raise TypeError(f"Unsupported type for concatenation: got {type(first)}")
    first, second = (array if array.ndim else array.reshape(1) for array in (first, second))
    return _concat_two_arrays(first, second, padding_index)


def _concat_two_arrays(first: Any, second: Any, padding_index: Any) -> Any:
    if first.ndim == 1 or first.shape[1] == second.shape[1]:
        return (sys.modules["torch"].cat if is_tensor(first) else np.concatenate)((first, second))
    return _filled((first, second), padding_index)


def _filled(arrays: Sequence[Any], padding: Any) -> Any:
    """Arrays of different widths as one, in whatever memory they are."""
    first, row = arrays[0], 0
    shape = (sum(map(len, arrays)), max(array.shape[1] for array in arrays), *first.shape[2:])
    result = first.new_full(shape, padding) if is_tensor(first) else np.full_like(first, padding, shape=shape)
    for array in arrays:
        result[row : row + len(array), : array.shape[1]] = array
        row += len(array)
    return result


def concatenated(batches: Sequence[Any], padding: Any) -> Any:
    """Batches whose likenesses can be joined, as one batch; arrays get the width of the widest."""
    return Joining(batches, padding).finished()


class Joining:
    """Batches whose likenesses can be joined. Each is let go of when it is copied, and an interrupt may come."""

    def __init__(self, batches: Iterable[Any], padding: Any) -> None:
        self._batches, self._padding = list(batches), padding
        self._left = len(self._batches)
        leaves = zip(*map(leaves_of, self._batches), strict=True)
        # Memory that nothing was written to takes no space yet.
        values = iter([_empty_for(arrays) for arrays in leaves])
        self._result = tree_map(lambda _: next(values), self._batches[0])
        self._starts = [
            np.cumsum([0, *map(len, arrays)]) for arrays in zip(*map(leaves_of, self._batches), strict=True)
        ]

    def finished(self) -> Any:
        """All batches as one."""
        # The last one first: the end of the heap goes back to the system. A signal handler may do the same meanwhile.
        while (left := self._left) > 0:
            number, batch = left - 1, self._batches[left - 1]
            parts = () if batch is None else zip(leaves_of(batch), leaves_of(self._result), self._starts, strict=True)
            for array, result, starts in parts:
                place = result[int(starts[number]) : int(starts[number + 1])]
                if array.ndim < 2 or array.shape[1] == result.shape[1]:
                    place[...] = array
                else:
                    place[:, : array.shape[1]] = array
                    place[:, array.shape[1] :] = self._padding
            self._left = number
            self._batches[number] = None
        return self._result


def _empty_for(arrays: Sequence[Any]) -> Any:
    first, widths = arrays[0], {array.shape[1:2] for array in arrays}
    shape = (sum(map(len, arrays)), *max(widths), *first.shape[2:])
    return first.new_empty(shape) if is_tensor(first) else np.empty(shape, first.dtype)
