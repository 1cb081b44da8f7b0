"""The slice of a batch for one rank of a context-parallel group, without loops."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np

from quadrat.ops._padding import whole
from quadrat.ragged.offsets import checked_offsets, require_offsets
from quadrat.ragged.take import copy_rows
from quadrat.support.arrays import require_array
from quadrat.support.tensors import is_tensor, on_gpu

Column = TypeVar("Column")


@overload
def context_parallel_slice(
    cu_seqlens_padded: Any, column: Column, /, *, cp_size: int, cp_rank: int, dim: int = 0
) -> Column: ...
@overload
def context_parallel_slice(
    cu_seqlens_padded: Any, *columns: Any, cp_size: int, cp_rank: int, dim: int = 0
) -> tuple[Any, ...]: ...
def context_parallel_slice(cu_seqlens_padded: Any, *columns: Any, cp_size: int, cp_rank: int, dim: int = 0) -> Any:
    """Return the part of a batch for one rank of a context-parallel group: two chunks of each sequence.

    Each sequence is cut into `2 * cp_size` chunks of one length. Rank r gets number r and number `2 * cp_size - 1 - r`,
    so that causal attention costs each rank the same.

    Args:
        cu_seqlens_padded: `[sequences + 1]` integers, where each sequence begins in the columns, and where the last one
            ends; each length is a multiple of `2 * cp_size`, see `quadrat.varlen.align`.
        *columns: NumPy arrays or torch tensors of any dtype with tokens along `dim`, on one device. None stays None.
        cp_size: the size of the group.
        cp_rank: the rank, from 0 to `cp_size - 1`.
        dim: the dimension of the tokens; 1 for `[1, total]`.

    Returns:
        A tuple of the slices, or for one column the slice itself. Slices are copies, chunk by chunk, sequence by
        sequence, with a gradient if the column has one. On a GPU nothing waits if the sequences fill the columns.

    Raises:
        TypeError: when a column is not an array, or an option is not an int.
        ValueError: when `cu_seqlens_padded` decreases or exceeds a column, a length is not a multiple, the rank is not
            in the group, or a column has no dimension `dim`. On a GPU only the total of the lengths is checked.

    Examples:
        >>> import quadrat, numpy
        >>> quadrat.varlen.context_parallel_slice(numpy.array([0, 4, 12]), numpy.arange(12), cp_size=2, cp_rank=0)
        array([ 0,  3,  4,  5, 10, 11])
    """
    if whole(cp_size, "cp_size") < 1:
        raise ValueError(f"cp_size must be positive, not {cp_size}")
    if not 0 <= whole(cp_rank, "cp_rank") < cp_size:
        raise ValueError(f"cp_rank must be in [0, {cp_size}), but is {cp_rank}")
    given = [column for column in columns if column is not None]
    for number, column in enumerate(given):
        require_array(column, f"column {number}")
        if not -column.ndim <= whole(dim, "dim") < column.ndim:
            raise ValueError(f"dim={dim}, and column {number} has {column.ndim} dimensions")
    cut = _Slicer(cu_seqlens_padded, given, cp_size, cp_rank, dim)
    made = tuple(None if column is None else cut(column) for column in columns)
    return made[0] if len(columns) == 1 else made


class _Slicer:
    def __init__(self, cu_seqlens: Any, columns: list[Any], cp_size: int, cp_rank: int, dim: int) -> None:
        self._dim, chunks = dim, 2 * cp_size
        total = min((column.shape[dim] for column in columns), default=2**62)
        self._index: Any = None  # of the tokens, once it is needed
        if on_gpu(cu_seqlens):
            require_offsets(cu_seqlens)
            self._on_gpu(cu_seqlens.detach().long(), total, chunks, cp_rank)
            return
        bounds, _ = checked_offsets(np.asarray(cu_seqlens) if isinstance(cu_seqlens, list) else cu_seqlens, total)
        lengths = np.diff(bounds)
        chunk = lengths // chunks
        if (odd := np.flatnonzero(lengths != chunk * chunks)).size:
            raise ValueError(
                f"sequence {odd[0]} has {lengths[odd[0]]} tokens, which is not a multiple of 2 * cp_size = {chunks}: "
                "pad the sequences with quadrat.varlen.align"
            )
        # Of each sequence the ends of four runs, the first and the third of which are the rank's.
        ends = chunk[:, None] * np.array([cp_rank, cp_rank + 1, chunks - 1 - cp_rank, chunks - cp_rank])
        self._runs = (ends + bounds[:-1, None]).reshape(-1)
        self._chosen = np.arange(0, len(self._runs), 2)
        self._tokens = 2 * int(chunk.sum())

    def _on_gpu(self, bounds: Any, total: int, chunks: int, rank: int) -> None:
        import torch

        if total % chunks:
            raise ValueError(f"{total} tokens are not a multiple of 2 * cp_size = {chunks}: use quadrat.varlen.align")
        chunk = bounds.diff() // chunks
        starts = torch.cat([chunk.new_zeros(1), (2 * chunk).cumsum(0)])
        # Sequences fill the columns: the number of their tokens is known without waiting.
        places = torch.arange(total // chunks * 2, device=bounds.device)
        sequence = torch.searchsorted(starts[1:], places, right=True).clamp(max=max(0, len(chunk) - 1))
        within, size = places - starts[sequence], chunk[sequence]
        skipped = torch.where(within < size, rank * size, (chunks - 2 - rank) * size)
        self._index = (bounds[sequence] + within + skipped).clamp(max=max(0, total - 1))

    def __call__(self, column: Any) -> Any:
        if is_tensor(column) and (self._index is not None or column.requires_grad):
            if self._index is None:  # gradients go through torch's own operations
                import torch

                self._index = self._copied(torch.arange(column.shape[self._dim]), 0)
            return column.index_select(self._dim, self._index)
        return self._copied(column, self._dim)

    def _copied(self, column: Any, dim: int) -> Any:
        moved = column.movedim(dim, 0) if is_tensor(column) else np.moveaxis(column, dim, 0)
        out = copy_rows(moved, self._runs, self._chosen, self._tokens, "columns")
        if dim == 0:
            return out
        return out.movedim(0, dim).contiguous() if is_tensor(out) else np.ascontiguousarray(np.moveaxis(out, 0, dim))
