"""`quadrat.evaluation.concat_padded`: nested arrays below one another; and memory that grows with them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops._nested import bytes_of_padding, joins, leaves_like, leaves_of, likeness, tree_map, types_of
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import bounds_of, tensor_or_array
from quadrat.support.arrays import bytes_per_token
from quadrat.support.columns import explain
from quadrat.support.memory import address_of
from quadrat.support.tensors import is_stored, is_tensor, recording

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

    def join(*arrays: Any) -> Any:
        first = arrays[0]
        if len({array.shape[1:] for array in arrays}) == 1:
            return sys.modules["torch"].cat(arrays) if is_tensor(first) else np.concatenate(arrays)
        if not all(map(in_host_memory, arrays)):
            return _filled(arrays, padding)
        rows, widest = sum(map(len, arrays)), max(array.shape[1] for array in arrays)
        arrays, shape = tuple(map(_contiguous, arrays)), (rows, widest, *first.shape[2:])
        blocks = np.array([(address_of(array), *array.shape[:2]) for array in arrays], np.int64)
        result = first.new_empty(shape) if is_tensor(first) else np.empty(shape, first.dtype)
        fill, token = bytes_of_padding(first.dtype, padding), bytes_per_token(first, 2)
        place = address_of(blocks), len(blocks), widest, token, fill or b"", address_of(result), rows
        if (failure := _core.concat_padded(*place)) is not None:
            raise ValueError(explain(failure))
        return result

    return tree_map(join, *batches)


def in_host_memory(array: Any) -> bool:
    """True if what the array holds are the bytes of its memory."""
    return not is_tensor(array) or is_stored(array)


def _no_array(_: Any) -> int:
    return 0  # outputs of transformers' models drop None


def _contiguous(array: Any) -> Any:
    return array.contiguous() if is_tensor(array) else np.ascontiguousarray(array)


class _Leaf(NamedTuple):
    """Arrays that are alike, copied to memory that grows. `plus` returns these and one more, in the same memory."""

    model: Any  # `[0]` or `[0, 0, ...]`
    store: _core.Gathered
    number: int = 0  # of arrays
    width: int = 0  # of the widest

    @classmethod
    def of(cls, array: Any) -> _Leaf:
        shape = (0, 0, *array.shape[2:]) if array.ndim > 1 else (0,)
        model = array.new_empty(shape) if is_tensor(array) else np.empty(shape, array.dtype)
        return cls(model, _core.Gathered(bytes_per_token(model, 2)))

    def plus(self, array: Any) -> _Leaf:
        array = _contiguous(array)
        width = array.shape[1] if array.ndim > 1 else 1
        self.store.append(self.number, address_of(array), len(array), width)
        return self._replace(number=self.number + 1, width=max(self.width, width))

    def value(self, padding: Any) -> Any:
        """The arrays as one, `[rows, widest, ...]` or `[rows]`, in the memory of the store."""
        fill = bytes_of_padding(self.model.dtype, padding)
        self.store.pad(self.number, fill or bytes(int(self.model.dtype.itemsize)))  # of one width, nothing is filled
        rows = int(self.shapes()[0].sum())
        return self._shaped((rows, self.width, *self.model.shape[2:])[: None if self.model.ndim > 1 else 1])

    def shapes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        blocks = self.store.blocks(self.number)
        return blocks[:, 1], blocks[:, 2]

    def tokens(self) -> Any:
        rows, widths = self.shapes()
        return self._shaped((int((rows * widths).sum()), *self.model.shape[2:]))

    def _shaped(self, shape: tuple[int, ...]) -> Any:
        memory = self.store.values(self.number)
        if not is_tensor(self.model):
            return memory.view(self.model.dtype).reshape(shape)
        if not memory.size:
            return self.model.new_empty(shape)
        return sys.modules["torch"].from_numpy(memory).view(self.model.dtype).view(shape)

    def copied(self) -> _Leaf:
        return self._replace(store=self.store.copy(self.number))

    def fits(self, part: Any) -> bool:
        if type(part) is not np.ndarray or part.dtype.hasobject or (part.ndim < 2) != (self.model.ndim < 2):
            return False
        return part.shape[2:] == self.model.shape[2:] and self.promoted(part) is not None

    def promoted(self, array: Any) -> Any:
        """The dtype of an array below these: promoted where it is as wide, else that of the first; None for none."""
        if array.dtype == self.model.dtype or (array.ndim > 1 and array.shape[1] != self.width):
            return self.model.dtype
        try:
            return np.promote_types(self.model.dtype, array.dtype)
        except TypeError:
            return None

    def plus_promoted(self, array: Any) -> _Leaf:
        dtype, leaf = self.promoted(array), self
        if dtype != self.model.dtype:
            values, model = self.tokens().astype(dtype), self.model.astype(dtype)
            store = self.store.retyped(self.number, address_of(values), bytes_per_token(model, 2))
            leaf = self._replace(model=model, store=store)
        return leaf.plus(array.astype(dtype, copy=False))

    def ragged_or_array(self) -> Any:
        values = self.tokens()
        if self.model.ndim < 2:
            return values
        rows, widths = self.shapes()
        return Ragged(values, tensor_or_array(bounds_of(np.repeat(widths, rows)), values))


class Grown(NamedTuple):
    """Batches whose likenesses can be joined, in host memory."""

    likeness: Any
    model: Any  # a batch, with a number in place of each array
    leaves: list[_Leaf]
    padding: Any

    @classmethod
    def of(cls, batches: Sequence[Any], padding: Any) -> Grown | None:
        """These batches; None unless they are in host memory."""
        first = batches[0]
        leaves, model = list(map(_Leaf.of, leaves_of(first))), tree_map(_no_array, first)
        made: Grown | None = cls(likeness(first), model, leaves, padding)
        for batch in batches:
            made = made and made.plus(batch)
        return made

    def plus(self, batch: Any) -> Grown | None:
        """These and one more; None if that is not like them, or not in host memory."""
        if not joins(self.likeness, likeness(batch), self.padding) or recording():
            return None
        arrays = list(leaves_of(batch))
        if not all(map(in_host_memory, arrays)):
            return None
        return self._replace(leaves=[leaf.plus(array) for leaf, array in zip(self.leaves, arrays, strict=True)])

    def whole(self) -> Any:
        """All batches as one, in memory that is used for nothing else."""
        values = iter([leaf.value(self.padding) for leaf in self.leaves])
        return tree_map(lambda _: next(values), self.model)


class GrownRagged(NamedTuple):
    """Batches of NumPy arrays, of which arrays of several dimensions become a `Ragged`: nothing is padded."""

    model: Any  # a batch, with a number in place of each array
    leaves: list[_Leaf]

    @classmethod
    def of(cls, batch: Any) -> GrownRagged:
        """A batch, in which a `Ragged` may stand for an array. Raises TypeError when it holds something else."""
        leaves = []
        for part in leaves_of(batch):
            if isinstance(part, Ragged):
                values = np.ascontiguousarray(part.values[part.facts.first : part.facts.last])
                leaf, widths = _Leaf.of(values[:0, None]), part.lengths
                leaf.store.append_rows(0, address_of(values), address_of(widths), len(widths))
                leaves.append(leaf._replace(number=len(widths), width=part.max_length))
            elif type(part) is np.ndarray and not part.dtype.hasobject:
                leaves.append(_Leaf.of(part).plus(np.atleast_1d(part)))
            else:
                raise TypeError(f"a batch must consist of arrays; this is {type(part).__name__}")
        return cls(tree_map(_no_array, batch), leaves)

    def plus(self, batch: Any) -> GrownRagged | None:
        """These and one more; None where dimensions, types or keys differ from those before."""
        parts = leaves_like(self.model, batch)
        if parts is None or not all(map(_Leaf.fits, self.leaves, parts)):
            return None
        both = zip(self.leaves, parts, strict=True)
        return self._replace(leaves=[leaf.plus_promoted(np.atleast_1d(part)) for leaf, part in both])

    def none(self) -> Any:
        """These without a row."""
        shapes = [(0, leaf.width, *leaf.model.shape[2:])[: leaf.model.ndim] for leaf in self.leaves]
        models = iter([leaf.model.reshape(shape) for leaf, shape in zip(self.leaves, shapes, strict=True)])
        return tree_map(lambda _: next(models), self.model)

    def whole(self) -> Any:
        """All batches as one: each row is as wide as its array was."""
        values = map(_Leaf.ragged_or_array, self.leaves)
        return tree_map(lambda _: next(values), self.model)
