"""Arrays of one kind that are to stand below one another: where their numbers are, and how they become one array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat._memory import address_of, is_tensor
from quadrat.ingest import explain
from quadrat.ragged import Ragged


class Pieces:
    """Arrays of one library, dtype, device and shape `[rows, width, ...]`; rows and width may differ.

    Those of one dimension are rows of one number each. Numbers in plain host memory go to memory that grows, and is
    filled out in place: in the end there is the result and nothing beside it. Others are kept.
    """

    def __init__(self, first: Any, padding_index: Any, *, copies: bool, ragged: bool = False) -> None:
        """See the class.

        Args:
            first: the first array, which is not appended.
            padding_index: what stands where an array is less wide than the widest.
            copies: whether what is appended may be overwritten by its owner afterwards.
            ragged: for NumPy arrays that only `ragged` is asked of: nothing is padded, and the dtype may change.
        """
        width = first.facts.longest[1] if isinstance(first, Ragged) else _width(first)
        first = first.values[:0, None] if isinstance(first, Ragged) else at_least_1d(first)
        self._torch = is_tensor(first)
        self.model = first.new_empty(0) if self._torch else np.empty_like(first, shape=0)
        self.flat = first.ndim == 1
        self._trailing = tuple(first.shape[2:])
        self._width = width
        self.padding = padding_index
        self._fill: bytes | None = None
        self._copies = copies
        self._ragged = ragged
        self._memory = _core.Growing() if copies and in_host_memory(first) else None
        self._kept: list[Any] = []
        self._taken: Any = None  # the values handed out as a Ragged, which the memory does not hold any more
        # Of each piece.
        self._rows: list[int] = []
        self._widths: list[int] = []

    def accepts(self, piece: Any) -> bool:
        """Whether joining this array changes nothing but rows and width; with `ragged`, the dtype at most."""
        if not self.fits(piece):
            return False
        dtype = self._dtype_with(piece)
        return dtype == self.model.dtype or (self._ragged and dtype is not None)

    def fits(self, piece: Any) -> bool:
        """Whether its numbers, as numbers of the dtype that is there, go below the others."""
        if is_tensor(piece) != self._torch or not is_joinable(piece):
            return False
        piece = at_least_1d(piece)
        if (piece.ndim == 1) != self.flat or piece.shape[2:] != self._trailing:
            return False
        if self._torch and piece.device != self.model.device:
            return False
        if self._memory is not None and not in_host_memory(piece):
            return False
        return self._ragged or _width(piece) == self._width or self._can_fill()

    def covers(self, piece: Any) -> bool:
        """Whether an array that fits is no wider than the widest."""
        return _width(at_least_1d(piece)) <= self._width

    def cast(self, piece: Any) -> Any:
        """An array that fits, of the dtype it will have here. Raises what NumPy and torch do."""
        dtype = self._dtype_with(piece) if self._ragged else self.model.dtype
        if piece.dtype == dtype:
            return piece
        return piece.to(dtype) if self._torch else piece.astype(dtype)

    def append(self, piece: Any) -> None:
        """Take in an array that is accepted, or the `Ragged` that these pieces begin with."""
        if isinstance(piece, Ragged):
            self._rows, self._widths = [1] * len(piece), piece.lengths.tolist()
            self._taken = np.ascontiguousarray(piece.values[piece.facts.first : piece.facts.last])
            return
        piece = at_least_1d(piece)
        if self._ragged:
            self._convert(self._dtype_with(piece))
        self._take_back()
        self._rows.append(len(piece))
        self._widths.append(_width(piece))
        self._width = max(self._width, self._widths[-1])
        if self._memory is None:
            own = piece.to(self.model.dtype) if self._torch else piece.astype(self.model.dtype, copy=False)
            self._kept.append(own.clone() if self._copies and own is piece and self._torch else own)
        elif piece.dtype == self.model.dtype and _contiguous(piece):
            self._memory.append(address_of(piece), piece.nbytes)
        else:
            size = math.prod(piece.shape) * self.item
            at = len(self._memory)
            self._memory.extend(size)
            self._shaped(self._memory.view(at, size), tuple(piece.shape))[...] = piece

    def joined(self) -> Any:
        """The pieces as one array, `[rows, widest, ...]` or `[rows]`. They are gone afterwards, but for those kept."""
        if self._memory is None and not all(map(in_host_memory, self._kept)):
            return self._joined_by_torch()
        self._take_back()
        self._kept = [piece.contiguous() if self._torch else np.ascontiguousarray(piece) for piece in self._kept]
        memory, rows = _core.Growing() if self._memory is None else self._memory, sum(self._rows)
        memory.extend(rows * self._row_size - len(memory))
        blocks = self.blocks()
        if self._memory is not None:  # whoever appends meanwhile must not move what is written
            self._memory = _core.Growing()
        return self._write(blocks, memory, rows)

    def arranged(self, blocks: NDArray[np.int64]) -> Any:
        """As `joined`, of these blocks, and the pieces stay."""
        memory, rows = _core.Growing(), int(blocks[:, 1].sum())
        memory.extend(rows * self._row_size)
        return self._write(blocks, memory, rows)

    def blocks(self) -> NDArray[np.int64]:
        """`[pieces, 3]`: address, rows and width of each. Addresses hold until the next piece is appended."""
        blocks = np.empty((len(self._rows), 3), np.int64)
        blocks[:, 1], blocks[:, 2] = self._rows, self._widths
        if self._memory is None:
            blocks[:, 0] = [address_of(piece) for piece in self._kept]
        else:
            sizes = blocks[:, 1] * blocks[:, 2] * self.token_size
            blocks[:, 0] = self._memory.address + np.cumsum(sizes) - sizes
        return blocks

    def _write(self, blocks: NDArray[np.int64], memory: _core.Growing, rows: int) -> Any:
        fill = self._fill if self._can_fill() and self._fill else bytes(self.item)
        failure = _core.concat_padded(
            address_of(blocks), len(blocks), self._width, self.token_size, fill, memory.address, rows
        )
        if failure is not None:
            raise ValueError(explain(failure))
        return self._shaped(memory.release(), (rows, *self._tail()))

    def ragged(self) -> Any:
        """The rows as a `Ragged`, each of its piece's width, no padding added; of one dimension, an array."""
        offsets = np.zeros(sum(self._rows) + 1, np.int64)
        np.cumsum(np.repeat(self._widths, self._rows), out=offsets[1:])
        if self._memory is None:
            flat = [piece.reshape(-1, *self._trailing) for piece in self._kept]
            values = np.concatenate(flat) if not self._torch else _torch().cat(flat)
        else:
            if self._taken is None:
                self._taken = self._shaped(self._memory.release(), (int(offsets[-1]), *self._trailing))
            values = self._taken
        if self.flat:
            return values
        return Ragged(values, _torch().from_numpy(offsets).to(values.device) if self._torch else offsets)

    def none(self) -> Any:
        """No rows of these: `[0, widest, ...]` or `[0]`."""
        return self.model.reshape((0, *self._tail()))

    def _take_back(self) -> None:
        """Have the memory hold all numbers again."""
        if self._taken is not None and self._memory is not None:
            taken, self._taken = self._taken, None
            self._memory.append(address_of(taken), taken.nbytes)

    def _convert(self, dtype: Any) -> None:
        """Make all numbers, NumPy's, those of another dtype."""
        if dtype == self.model.dtype or self._memory is None:
            return
        values = self._shaped(self._memory.release(), (-1,)) if self._taken is None else self._taken
        self._taken, self.model, self._fill = values.astype(dtype), self.model.astype(dtype), None

    @property
    def item(self) -> int:
        """Bytes of one number."""
        return int(self.model.dtype.itemsize)

    @property
    def token_size(self) -> int:
        """Bytes of what stands at one position of a row."""
        return int(math.prod(self._trailing)) * self.item

    @property
    def _row_size(self) -> int:
        return self._width * self.token_size

    def _tail(self) -> tuple[int, ...]:
        return () if self.flat else (self._width, *self._trailing)

    def _dtype_with(self, piece: Any) -> Any:
        """The dtype of the numbers there are and of these, None where they have none in common."""
        # In arrays of equal width the dtypes are promoted; of others, the first one's stays.
        if piece.dtype == self.model.dtype or _width(at_least_1d(piece)) != self._width:
            return self.model.dtype
        return self._promoted(piece.dtype)

    def _promoted(self, dtype: Any) -> Any:
        try:
            return (_torch() if self._torch else np).promote_types(self.model.dtype, dtype)
        except (TypeError, RuntimeError):
            return None

    def _can_fill(self) -> bool:
        """Whether the padding is a number of the dtype; its bytes are kept."""
        if self._fill is None:
            try:
                if self._torch:
                    one = self.model.new_full((1,), self.padding).cpu()
                    self._fill = one.view(_torch().uint8).numpy().tobytes()
                else:
                    self._fill = np.full_like(self.model, self.padding, shape=(1,)).tobytes()
            except (RuntimeError, OverflowError, TypeError, ValueError):
                return False
        return True

    def _shaped(self, memory: Any, shape: tuple[int, ...]) -> Any:
        """Bytes as an array of the dtype."""
        if not self._torch:
            return memory.view(self.model.dtype).reshape(shape)
        if not memory.size:
            return self.model.new_empty(shape)
        return _torch().from_numpy(memory).view(self.model.dtype).view(shape)

    def _joined_by_torch(self) -> Any:
        if all(width == self._width for width in self._widths):
            return _torch().cat(self._kept)
        result = self.model.new_full((sum(self._rows), *self._tail()), self.padding)
        row = 0
        for piece in self._kept:
            result[row : row + len(piece), : piece.shape[1]] = piece
            row += len(piece)
        return result


def is_joinable(array: Any) -> bool:
    """Whether numbers of this array are to be had by their bytes, or by what torch does with every tensor."""
    if is_tensor(array):
        return type(array) is _torch().Tensor and array.layout == _torch().strided and not array.is_quantized
    return type(array) is np.ndarray and not array.dtype.hasobject and array.dtype.isnative


def in_host_memory(array: Any) -> bool:
    """Whether what the array holds are the bytes of its memory."""
    return not is_tensor(array) or not (
        array.device.type != "cpu" or array.requires_grad or array.is_conj() or array.is_neg()
    )


def at_least_1d(array: Any) -> Any:
    """The array; `[1]` where it has no dimension."""
    return array if array.ndim else array.reshape(1)


def _width(array: Any) -> int:
    return int(array.shape[1]) if array.ndim > 1 else 1


def _contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if is_tensor(array) else array.flags.c_contiguous)


def _torch() -> Any:
    import torch

    return torch
