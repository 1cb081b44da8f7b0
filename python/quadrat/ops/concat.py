"""`quadrat.concat_padded`: joins nested arrays of different widths along their first axis."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from quadrat.ops._nested import (
    PLAIN,
    Nested,
    Unusual,
    concatenated,
    joins,
    leaves_like,
    likeness,
    tree_flatten,
    tree_unflatten,
    types_of,
)
from quadrat.ops._pieces import Pieces, at_least_1d
from quadrat.ragged import Ragged
from quadrat.support.memory import is_tensor

Batch = TypeVar("Batch")
_FEW = 3  # so many are joined one after the other


def concat_padded(arrays: Iterable[Batch], padding_index: Any = -100) -> Batch:
    """Join batches along their first axis, and pad the second to the widest batch.

    The result is that of applying `nested_concat` of transformers to one batch after the other.

    Args:
        arrays: the batches. Each is a NumPy array or a torch tensor, `[rows]` or `[rows, width, ...]`, or a list, tuple
            or mapping of these, nested to any depth; all batches have the structure of the first. Tensors of different
            dtypes get the dtype of the first if their widths differ, else their common dtype.
        padding_index: the padding value for batches that are narrower than the widest.

    Returns:
        Arrays `[all rows, widest, ...]` in the structure of the first batch, in their library and on their device. A
        single batch is returned as it is. The cost is that of one copy.

    Raises:
        AssertionError: when batches are of different types.
        TypeError: when they hold anything but arrays.
        ValueError: when there is no batch, or the shapes of NumPy arrays do not match.
        RuntimeError, IndexError, KeyError: when tensors, dimensions or keys do not match.

    Examples:
        >>> import numpy, quadrat
        >>> quadrat.concat_padded([numpy.array([[1, 2], [3, 4]]), numpy.array([[5, 6, 7]])])
        array([[   1,    2, -100],
               [   3,    4, -100],
               [   5,    6,    7]])
    """
    if is_tensor(arrays) or isinstance(arrays, (np.ndarray, Mapping, str)):
        raise TypeError(f"arrays must be a sequence of batches, not one {type(arrays).__name__}")
    batches = list(arrays)
    if not batches:
        raise ValueError("there is no batch to concatenate")
    alike = [likeness(batch) for batch in batches] if len(batches) > _FEW else []
    if all(joins(alike[0], other, padding_index) for other in alike):
        return concat_alike(batches, padding_index)  # type: ignore[no-any-return]
    joined = Joined.of(batches[0], padding_index, copies=False)
    for batch in batches[1:]:
        joined = joined.plus(batch)
    return joined.value()  # type: ignore[no-any-return]


def concat_alike(batches: list[Any], padding_index: Any) -> Any:
    """Batches that are few, or can be joined by `concatenated`, as one."""
    if len(batches) > _FEW:
        return concatenated(batches, padding_index)
    return functools.reduce(functools.partial(concat_two, padding_index=padding_index), batches)


class Joined(NamedTuple):
    """Batches joined one after the other, in time linear in all of them.

    The first batch is kept as it is until there is a second. A value that shares memory, see `Pieces`.
    """

    first: Any  # where there are no leaves: all batches as one
    leaves: list[Pieces] | None
    structure: Nested | None
    known: frozenset[type]  # containers that are made of their parts
    padding: Any
    copies: bool
    ragged_only: bool

    @staticmethod
    def of(first: Any, padding_index: Any, *, copies: bool = True, ragged: bool = False) -> Joined:
        """The first batch.

        copies: whether batches may be overwritten by their owner once they were added. ragged: for batches of NumPy
        arrays, of which the first may have some as a `Ragged`: nothing is ever padded.
        """
        known = PLAIN | types_of(first) | {Ragged} if ragged else PLAIN
        return Joined(first, None, None, known, padding_index, copies, ragged)

    def plus(self, batch: Any) -> Joined:
        """These and one more."""
        room, firsts = self._opened()
        if room.leaves is not None:
            parts = leaves_like(room.structure, batch)
            if parts is not None and all(leaf.accepts(part) for leaf, part in zip(room.leaves, parts, strict=True)):
                for arrays in filter(None, (firsts, parts)):
                    room = room._taking(arrays)
                return room
        if self.ragged_only and room.leaves is not None:
            concat_two(tree_unflatten(room.structure, [leaf.none() for leaf in room.leaves]), batch, self.padding)
            raise ValueError("the arrays of a batch must have as many dimensions as those of the first")
        # What is unusual is joined at once, or refused. It seldom is so twice.
        first = concat_two(self.value(), batch, self.padding)
        return self._replace(first=first, leaves=None, known=self.known | types_of(first))

    def value(self) -> Any:
        """All batches so far, as one. Its arrays may share memory with what is kept here."""
        if self.leaves is None:
            return self.first
        return tree_unflatten(self.structure, [leaf.joined() for leaf in self.leaves])

    def whole(self) -> Joined:
        """The same, as one batch, which `value` returns from now on."""
        return self if self.leaves is None else self._replace(first=self.value(), leaves=None)

    def ragged(self) -> Any:
        """All batches so far, arrays of several dimensions as `Ragged`: no padding is added. Raises TypeError."""
        begun = self.begun()
        return tree_unflatten(begun.structure, [leaf.ragged() for leaf in begun.leaves or []])

    def begun(self) -> Joined:
        """The same, ready for more batches. Raises TypeError when they hold something else than arrays."""
        room, firsts = self._opened()
        if room.leaves is None:
            raise TypeError(f"a batch must consist of arrays; this is {type(self.first).__name__}")
        return room._taking(firsts) if firsts else room

    def copied(self) -> Joined:
        """The same, in memory of its own."""
        return self if self.leaves is None else self._replace(leaves=[leaf.copied() for leaf in self.leaves])

    def _opened(self) -> tuple[Joined, list[Any]]:
        """Room for batches, and the arrays of the first that are not in it yet; no leaves where it is unusual."""
        if self.leaves is not None:
            return self, []
        try:
            firsts, structure = tree_flatten(self.first, self.known)
        except Unusual:
            return self, []
        leaves = [Pieces.of(first, self.padding, copies=self.copies, ragged=self.ragged_only) for first in firsts]
        return self._replace(first=None, leaves=leaves, structure=structure), firsts

    def _taking(self, arrays: list[Any]) -> Joined:
        leaves = [leaf.plus(array) for leaf, array in zip(self.leaves or [], arrays, strict=True)]
        return self._replace(leaves=leaves)


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
    return _concat_two_arrays(at_least_1d(first), at_least_1d(second), padding_index)


def _concat_two_arrays(first: Any, second: Any, padding_index: Any) -> Any:
    if first.ndim == 1 or first.shape[1] == second.shape[1]:
        if not is_tensor(first):
            return np.concatenate((first, second))
        import torch

        return torch.cat((first, second))
    shape = (len(first) + len(second), max(first.shape[1], second.shape[1]), *first.shape[2:])
    if is_tensor(first):
        result = first.new_full(shape, padding_index)
    else:
        result = np.full_like(first, padding_index, shape=shape)
    result[: len(first), : first.shape[1]] = first
    result[len(first) :, : second.shape[1]] = second
    return result
