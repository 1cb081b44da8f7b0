"""`quadrat.concat_padded`: nested arrays of different widths below one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from quadrat._memory import is_tensor
from quadrat.ops._nested import PLAIN, Nested, Unusual, made, matches, opened, types_of
from quadrat.ops._pieces import Pieces, at_least_1d
from quadrat.ragged import Ragged


def concat_padded(arrays: Iterable[Any], padding_index: Any = -100) -> Any:
    """Join batches along their first axis, and fill the second out to the widest.

    What folding `nested_concat` of transformers over them gives.

    Args:
        arrays: the batches. Each is a NumPy array or a torch tensor, `[rows]` or `[rows, width, ...]`, or a list,
            tuple or mapping of such, nested at will; all of the structure of the first. Of tensors of different dtypes
            the first one's stays where their widths differ, and the common one is taken where they do not.
        padding_index: what stands where a batch is less wide than the widest.

    Returns:
        The structure of the first batch, of arrays `[all rows, widest, ...]`, in their library and on their device. A
        single batch is returned as it is. Time and memory are those of a copy.

    Raises:
        AssertionError: when batches are of different types.
        TypeError: when they hold something else than arrays.
        ValueError: when there is no batch, or NumPy arrays have no room for each other.
        RuntimeError, IndexError, KeyError: the same of tensors, dimensions, keys.
    """
    if is_tensor(arrays) or isinstance(arrays, (np.ndarray, Mapping, str)):
        raise TypeError(f"arrays must be a sequence of batches, not one {type(arrays).__name__}")
    batches = iter(arrays)
    try:
        joined = Joined(next(batches), padding_index, copies=False)
    except StopIteration:
        raise ValueError("there is no batch to concatenate") from None
    for batch in batches:
        joined.add(batch)
    return joined.value()


class Joined:
    """Batches joined one after the other: the result of doing that at once each time, in time linear in all of them.

    The first batch is kept as it is until there is a second.
    """

    def __init__(self, first: Any, padding_index: Any, *, copies: bool = True, ragged: bool = False) -> None:
        """See the class.

        Args:
            first: the first batch.
            padding_index: what stands where a batch is less wide than the widest.
            copies: whether batches may be overwritten by their owner once they were added.
            ragged: for batches of NumPy arrays, of which the first may have some as a `Ragged`, in containers that are
                made of their parts: nothing is ever padded.
        """
        self._first = first
        self._padding = padding_index
        self._copies = copies
        self._structure: Nested | None = None
        self._leaves: list[Pieces] | None = None
        # Containers that are known to be made of their parts as these are.
        self._known = PLAIN | types_of(first) | {Ragged} if ragged else PLAIN
        self._ragged = ragged

    def add(self, batch: Any) -> None:
        """Join one more. Where it raises, nothing has changed."""
        firsts: list[Any] = []
        leaves = self._leaves if self._leaves is not None else self._begin(firsts)
        parts: list[Any] = []
        if (
            leaves is not None
            and matches(self._structure, batch, parts)
            and all(leaf.accepts(part) for leaf, part in zip(leaves, parts, strict=True))
        ):
            parts = [leaf.cast(part) for leaf, part in zip(leaves, parts, strict=True)]
            for arrays in filter(None, (firsts, parts)):
                for leaf, array in zip(leaves, arrays, strict=True):
                    leaf.append(array)
            self._first, self._leaves = None, leaves
            return
        if self._ragged and leaves is not None:
            concat_two(made(self._structure, iter([leaf.none() for leaf in leaves])), batch, self._padding)
            raise ValueError("the arrays of a batch must be of the dimensions of those before")
        # What is out of the ordinary is joined at once, or refused. It seldom is so twice.
        self._first = concat_two(self.value(), batch, self._padding)
        self._known |= types_of(self._first)

    def value(self) -> Any:
        """All batches so far, as one."""
        if self._leaves is not None:
            self._first = made(self._structure, iter([leaf.joined() for leaf in self._leaves]))
            self._leaves = None
        return self._first

    def ragged(self) -> Any:
        """All batches so far, of whose arrays those of several dimensions are `Ragged`: no padding is added.

        Raises:
            TypeError: when they hold something else than arrays.
        """
        if self._leaves is None:
            firsts: list[Any] = []
            self._leaves = self._begin(firsts)
            if self._leaves is None:
                raise TypeError(f"a batch must consist of arrays; this is {type(self._first).__name__}")
            for leaf, first in zip(self._leaves, firsts, strict=True):
                leaf.append(first)
            self._first = None
        return made(self._structure, iter([leaf.ragged() for leaf in self._leaves]))

    def _begin(self, firsts: list[Any]) -> list[Pieces] | None:
        """Room for what is like the first batch, whose arrays go to `firsts`; None where it is out of the ordinary."""
        try:
            self._structure = opened(self._first, firsts, self._known)
        except Unusual:
            return None
        return [Pieces(first, self._padding, copies=self._copies, ragged=self._ragged) for first in firsts]


def concat_two(first: Any, second: Any, padding_index: Any) -> Any:
    """Two batches as one, whatever they are made of.

    Raises:
        AssertionError, TypeError, ValueError, RuntimeError, IndexError, KeyError: see `concat_padded`.
    """
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
