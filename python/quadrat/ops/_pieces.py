"""Arrays of one kind that are to stand below one another: where their numbers are, and how they become one array."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.input.columns import explain
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import tensor_or_array
from quadrat.support.memory import address_of, is_stored, is_tensor


class Like:
    """What arrays below one another, `[rows]` or `[rows, width, ...]`, have in common: all but rows and width."""

    def __init__(self, model: Any, padding_index: Any, *, ragged: bool = False) -> None:
        """Of a model, with what stands where an array is less wide than the widest.

        ragged: for NumPy arrays that only become a `Ragged`: nothing is padded, and the dtype may change.
        """
        self.torch = is_tensor(model)
        self.model = model.new_empty(0) if self.torch else np.empty_like(model, shape=0)
        self.flat = model.ndim == 1
        self.trailing = tuple(model.shape[2:])
        self.padding = padding_index
        self.ragged = ragged

    def fits(self, piece: Any, width: int) -> bool:
        """Whether the numbers of an array, as numbers of the dtype, go below arrays of this width."""
        if type(piece) is not type(self.model) or not is_joinable(piece):
            return False
        shape = piece.shape
        if (len(shape) < 2) != self.flat or shape[2:] != self.trailing:
            return False
        if self.torch and piece.device != self.model.device:
            return False
        return self.ragged or width_of(shape) == width or self._fill is not None

    def dtype_with(self, piece: Any, width: int) -> Any:
        """The dtype of an array below others of this width, None where they have none in common."""
        # In arrays of equal width the dtypes are promoted; of others, the first one's stays.
        if piece.dtype == self.model.dtype or width_of(piece.shape) != width:
            return self.model.dtype
        try:
            return (_torch() if self.torch else np).promote_types(self.model.dtype, piece.dtype)
        except (TypeError, RuntimeError):
            return None

    def cast(self, piece: Any, width: int) -> Any:
        """An array that fits, with a dimension and of the dtype it will have. Raises what NumPy and torch do."""
        piece = at_least_1d(piece)
        if piece.dtype == self.model.dtype:
            return piece
        dtype = self.dtype_with(piece, width) if self.ragged else self.model.dtype
        return piece.to(dtype) if self.torch else piece.astype(dtype)

    def shape(self, rows: int, width: int) -> tuple[int, ...]:
        """That of so many rows."""
        return (rows,) if self.flat else (rows, width, *self.trailing)

    def shaped(self, memory: NDArray[np.uint8], shape: tuple[int, ...]) -> Any:
        """Bytes as an array of the dtype."""
        if not self.torch:
            return memory.view(self.model.dtype).reshape(shape)
        if not memory.size:
            return self.model.new_empty(shape)
        return _torch().from_numpy(memory).view(self.model.dtype).view(shape)

    def written(self, blocks: NDArray[np.int64], width: int) -> Any:
        """The rows of blocks, each `(address, rows, width)`, as one array of this width."""
        rows = int(blocks[:, 1].sum())
        memory = np.empty(rows * width * self.token_size, np.uint8)
        failure = _core.concat_padded(
            address_of(blocks), len(blocks), width, self.token_size, self.fill, address_of(memory), rows
        )
        if failure is not None:
            raise ValueError(explain(failure))
        return self.shaped(memory, self.shape(rows, width))

    @property
    def token_size(self) -> int:
        """Bytes of what stands at one position of a row."""
        return int(math.prod(self.trailing) * self.model.dtype.itemsize)

    @property
    def fill(self) -> bytes:
        """The bytes of the padding; zeros where it is not a number of the dtype, and never needed."""
        return self._fill if self._fill is not None else bytes(int(self.model.dtype.itemsize))

    @functools.cached_property
    def _fill(self) -> bytes | None:
        """The bytes of the padding; None where it is not a number of the dtype."""
        return bytes_of_padding(self.model.dtype, self.padding)


def bytes_of_padding(dtype: Any, padding: Any) -> bytes | None:
    """The bytes of the padding in arrays of a dtype of torch or NumPy; None where it is not a number of the dtype."""
    made = _bytes_of_int if type(padding) is int else _bytes_of_int.__wrapped__  # 0.0 and -0.0 are equal keys
    return made(dtype, padding)


@functools.lru_cache(maxsize=64)
def _bytes_of_int(dtype: Any, padding: Any) -> bytes | None:
    try:
        if isinstance(dtype, np.dtype):
            return np.full(1, padding, dtype).tobytes()
        torch = _torch()
        two = torch.full((2,), padding, dtype=dtype, device="cpu")  # of one number, torch lets small floats overflow
        return two[:1].view(torch.uint8).numpy().tobytes()  # type: ignore[no-any-return]
    except (RuntimeError, OverflowError, TypeError, ValueError):
        return None


class Pieces:
    """Arrays that are alike, kept as they are or as clones; rows and width may differ.

    A value: `plus` returns these and one more, and these stay what they are. Both share memory: only the last of those
    made of the same pieces may be used.
    """

    def __init__(self, like: Like, store: Any, count: int, width: int, *, clones: bool) -> None:
        """`store`: where the arrays are; the first `count` are these. `width`: of the widest.

        clones: whether what is added may be overwritten by its owner afterwards.
        """
        self.like = like
        self.width = width
        self._store = store
        self._count = count
        self._clones = clones

    @staticmethod
    def of(first: Any, padding_index: Any, *, copies: bool, ragged: bool = False) -> Pieces:
        """No array yet, but room for those like the first, an array or a `Ragged`.

        copies: whether what is added may be overwritten by its owner afterwards. ragged: see `Like`.
        """
        width = first.facts.longest[1] if isinstance(first, Ragged) else width_of(first.shape)
        model = first.values[:0, None] if isinstance(first, Ragged) else at_least_1d(first)
        like = Like(model, padding_index, ragged=ragged)
        if copies and in_host_memory(model):
            return Copied(like, _core.Gathered(like.token_size), 0, width, clones=True)
        return Pieces(like, [], 0, width, clones=copies)

    def accepts(self, piece: Any) -> bool:
        """Whether joining this array changes nothing but rows and width; with `ragged`, the dtype at most."""
        if not self.fits(piece):
            return False
        dtype = self.like.dtype_with(piece, self.width)
        return dtype == self.like.model.dtype or (self.like.ragged and dtype is not None)

    def fits(self, piece: Any) -> bool:
        """Whether its numbers, as numbers of their dtype, go below the others."""
        return self.like.fits(piece, self.width)

    def plus(self, piece: Any) -> Pieces:
        """These and an array that fits. Raises what NumPy and torch do, and MemoryError."""
        own = self.like.cast(piece, self.width)
        if self._clones and piece.dtype == own.dtype:
            own = own.clone() if self.like.torch else own.copy()
        del self._store[self._count :]
        self._store.append(own)
        return self._with(self._store, self._count + 1, max(self.width, width_of(own.shape)))

    def copied(self) -> Pieces:
        """The same, in a store of their own."""
        return self._with(self._kept(), self._count, self.width)

    def joined(self) -> Any:
        """The pieces as one array, `[rows, widest, ...]` or `[rows]`."""
        kept = self._kept()
        if not all(map(in_host_memory, kept)):
            return self._joined_by_torch(kept)
        kept = [contiguous(piece) for piece in kept]
        blocks = np.array([(address_of(piece), len(piece), width_of(piece.shape)) for piece in kept], np.int64)
        return self.like.written(blocks, self.width)

    def values(self) -> Any:
        """The numbers of all rows, `[tokens, ...]`, no padding added."""
        flat = [piece.reshape(-1, *self.like.trailing) for piece in self._kept()]
        return _torch().cat(flat) if self.like.torch else np.concatenate(flat)

    def shapes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and width of each piece."""
        shapes = np.array([(len(piece), width_of(piece.shape)) for piece in self._kept()], np.int64)
        return shapes[:, 0], shapes[:, 1]

    def ragged(self) -> Any:
        """The rows as a `Ragged`, each of its piece's width; of one dimension, an array."""
        values = self.values()
        if self.like.flat:
            return values
        rows, widths = self.shapes()
        offsets = np.zeros(int(rows.sum()) + 1, np.int64)
        np.cumsum(np.repeat(widths, rows), out=offsets[1:])
        return Ragged(values, tensor_or_array(offsets, values))

    def none(self) -> Any:
        """No rows of these: `[0, widest, ...]` or `[0]`."""
        return self.like.model.reshape(self.like.shape(0, self.width))

    def _with(self, store: Any, count: int, width: int) -> Pieces:
        return type(self)(self.like, store, count, width, clones=self._clones)

    def _kept(self) -> list[Any]:
        return self._store[: self._count]  # type: ignore[no-any-return]

    def _joined_by_torch(self, kept: list[Any]) -> Any:
        if all(width_of(piece.shape) == self.width for piece in kept):
            return _torch().cat(kept)
        result = self.like.model.new_full(self.like.shape(sum(map(len, kept)), self.width), self.like.padding)
        row = 0
        for piece in kept:
            result[row : row + len(piece), : piece.shape[1]] = piece
            row += len(piece)
        return result


class Copied(Pieces):
    """Numbers in host memory that grows with them, and is filled out in place: in the end there is the result alone."""

    _store: _core.Gathered

    def fits(self, piece: Any) -> bool:
        return super().fits(piece) and in_host_memory(piece)

    def plus(self, piece: Any) -> Pieces:
        """As that of `Pieces`. Also takes the `Ragged` that the first array was."""
        if isinstance(piece, Ragged):
            values, widths = np.ascontiguousarray(piece.values[piece.facts.first : piece.facts.last]), piece.lengths
            self._store.append_rows(self._count, address_of(values), address_of(widths), len(widths))
            return self._with(self._store, self._count + len(widths), self.width)
        piece = contiguous(self.like.cast(piece, self.width))
        whole = self if piece.dtype == self.like.model.dtype else self._converted(piece.dtype)
        rows, width = piece.shape[0], width_of(piece.shape)
        whole._store.append(whole._count, address_of(piece), rows, width)
        return whole._with(whole._store, whole._count + 1, max(whole.width, width))

    def copied(self) -> Pieces:
        return self._with(self._store.copy(self._count), self._count, self.width)

    def joined(self) -> Any:
        self._store.pad(self._count, self.like.fill)
        rows, _ = self.shapes()
        return self.like.shaped(self._store.values(self._count), self.like.shape(int(rows.sum()), self.width))

    def values(self) -> Any:
        rows, widths = self.shapes()
        shape = (int((rows * widths).sum()), *self.like.trailing)
        return self.like.shaped(self._store.values(self._count), shape)

    def shapes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        blocks = self.blocks()
        return blocks[:, 1], blocks[:, 2]

    def blocks(self) -> NDArray[np.int64]:
        """`[pieces, 3]`: address, rows and width of each. Addresses hold until something is added or joined."""
        return self._store.blocks(self._count)

    def _converted(self, dtype: Any) -> Copied:
        """The same numbers, NumPy's, of another dtype."""
        values = self.values().astype(dtype)
        like = Like(values[:0, None] if not self.like.flat else values[:0], self.like.padding, ragged=self.like.ragged)
        store = self._store.retyped(self._count, address_of(values), like.token_size)
        return Copied(like, store, self._count, self.width, clones=True)


def is_joinable(array: Any) -> bool:
    """Whether numbers of this array are to be had by their bytes, or by what torch does with every tensor."""
    if is_tensor(array):
        plain = array.layout == _torch().strided and not (array.is_quantized or array.is_nested)
        return type(array) is _torch().Tensor and plain
    return type(array) is np.ndarray and not array.dtype.hasobject and array.dtype.isnative


def in_host_memory(array: Any) -> bool:
    """Whether what the array holds are the bytes of its memory."""
    return not is_tensor(array) or is_stored(array)


def at_least_1d(array: Any) -> Any:
    """The array; `[1]` where it has no dimension."""
    return array if array.ndim else array.reshape(1)


def contiguous(array: Any) -> Any:
    """The same numbers, side by side in memory."""
    return array.contiguous() if is_tensor(array) else np.ascontiguousarray(array)


def width_of(shape: Sequence[int]) -> int:
    """That of an array of this shape; rows of a single number are one wide."""
    return int(shape[1]) if len(shape) > 1 else 1


def _torch() -> Any:
    import torch

    return torch
