"""Batches of NumPy arrays, of which arrays of several dimensions become a `Ragged`: nothing is padded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quadrat.ops.concat import leaves_like, leaves_of, tree_map
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import bounds_of
from quadrat.support.arrays import IntArray


class _Leaf(NamedTuple):
    """What the arrays in one place have in common."""

    shape: tuple[int, ...]  # of each token, or of each number in arrays of one dimension
    dtype: Any  # of all together
    width: int | None  # of the widest; None for arrays of one dimension

    def with_array(self, array: Any) -> _Leaf | None:
        """With one more array: of a dtype promoted where it is as wide, as in the reference; None if it differs."""
        if type(array) is not np.ndarray or array.dtype.hasobject or (array.ndim < 2) != (self.width is None):
            return None
        if array.shape[2:] != self.shape:
            return None
        if self.width is not None and array.shape[1] != self.width:
            return self._replace(width=max(self.width, array.shape[1]))
        try:
            return self._replace(dtype=np.promote_types(self.dtype, array.dtype))
        except TypeError:
            return None


class _Part(NamedTuple):
    """Rows in one array, and how long they are; None for numbers, one for each row."""

    values: Any
    lengths: IntArray | None

    @classmethod
    def of(cls, array: Any, dtype: Any) -> _Part:
        """A copy of an array."""
        values = np.array(np.atleast_1d(array), dtype, order="C")
        if values.ndim < 2:
            return cls(values, None)
        return cls(values.reshape(-1, *values.shape[2:]), np.full(len(values), values.shape[1], np.int64))


class RaggedParts:
    """Batches one after the other.

    Attributes:
        model: a batch, with a number in place of each array.
        leaves: what the arrays in each place have in common.
        parts: of each batch, of each leaf.
    """

    def __init__(self, batch: Any) -> None:
        """A batch, in which a `Ragged` may stand for an array. Raises TypeError when it holds something else."""
        self.leaves: list[_Leaf] = []
        parts: list[_Part] = []
        for part in leaves_of(batch):
            if isinstance(part, Ragged):
                values = part.values[part.facts.first : part.facts.last]
                self.leaves.append(_Leaf(values.shape[1:], values.dtype, part.max_length))
                parts.append(_Part(values.copy(), part.lengths))
            elif type(part) is np.ndarray and not part.dtype.hasobject:
                self.leaves.append(_Leaf(part.shape[2:], part.dtype, part.shape[1] if part.ndim > 1 else None))
                parts.append(_Part.of(part, part.dtype))
            else:
                raise TypeError(f"a batch must consist of arrays; this is {type(part).__name__}")
        self.model: Any = tree_map(lambda _: 0, batch)
        self.parts = [parts]

    def append(self, batch: Any) -> bool:
        """Add a copy of a batch; False where dimensions, types or keys differ from those before."""
        arrays = leaves_like(self.model, batch)
        leaves = None if arrays is None else list(map(_Leaf.with_array, self.leaves, arrays))
        if arrays is None or leaves is None or None in leaves:
            return False
        known = [leaf for leaf in leaves if leaf is not None]
        self.parts.append([_Part.of(array, leaf.dtype) for array, leaf in zip(arrays, known, strict=True)])
        self.leaves = known
        return True

    def without_rows(self) -> Any:
        """These without a row."""
        shapes = [(0, *(() if leaf.width is None else (leaf.width,)), *leaf.shape) for leaf in self.leaves]
        models = iter([np.empty(shape, leaf.dtype) for shape, leaf in zip(shapes, self.leaves, strict=True)])
        return tree_map(lambda _: next(models), self.model)

    def joined(self) -> Any:
        """All batches as one: each row is as wide as its array was."""

        def joined_leaf(leaf: _Leaf, parts: tuple[_Part, ...]) -> Any:
            values = np.concatenate([part.values for part in parts], dtype=leaf.dtype, casting="unsafe")
            lengths = [part.lengths for part in parts if part.lengths is not None]
            return Ragged(values, bounds_of(np.concatenate(lengths))) if lengths else values

        found = iter(list(map(joined_leaf, self.leaves, zip(*self.parts, strict=True))))
        return tree_map(lambda _: next(found), self.model)
