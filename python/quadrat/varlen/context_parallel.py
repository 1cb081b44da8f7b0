"""Context parallelism: TransformerEngine's functions, and the slice of a batch for one rank, without loops.

`pad_thd_sequences_for_cp`, `generate_positional_ids_for_cp` and `get_batch_on_this_cp_rank` have the names, the
arguments and the results of those in `transformer_engine.pytorch.attention.dot_product_attention.context_parallel`.
Those loop over the sequences and read each length from its tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from quadrat import _core
from quadrat.ops._rows import whole
from quadrat.ragged.offsets import checked_offsets, require_offsets
from quadrat.support.arrays import carrier_of, dense, require_plain
from quadrat.support.memory import INT64, Framework, address_of, empty, is_tensor, kind_of, on_gpu
from quadrat.varlen.align import Placement, Places, align

if TYPE_CHECKING:
    import torch

__all__ = [
    "context_parallel_slice",
    "generate_positional_ids_for_cp",
    "get_batch_on_this_cp_rank",
    "pad_thd_sequences_for_cp",
]

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
            ends; each length is a multiple of `2 * cp_size`, see `quadrat.align`.
        *columns: NumPy arrays or torch tensors with the tokens along `dim`, on one device, of any dtype; they may have
            a gradient. A column that is None stays None.
        cp_size: the size of the group.
        cp_rank: the rank, from 0 to `cp_size - 1`.
        dim: the dimension of the tokens; 1 for `[1, total]`.

    Returns:
        A tuple of the slices, or for one column the slice itself. Slices are copies, chunk by chunk, sequence by
        sequence. On a GPU the call does not wait if the sequences fill the columns.

    Raises:
        TypeError: when a column is not an array, or an option is not an int.
        ValueError: when `cu_seqlens_padded` decreases or exceeds a column, a length is not a multiple, or the rank is
            not in the group. On a GPU only the total is checked.

    Examples:
        >>> import quadrat, numpy
        >>> quadrat.context_parallel_slice(numpy.array([0, 4, 12]), numpy.arange(12), cp_size=2, cp_rank=0)
        array([ 0,  3,  4,  5, 10, 11])
    """
    _check_rank(cp_size, cp_rank)
    given = [column for column in columns if column is not None]
    for number, column in enumerate(given):
        if not (is_tensor(column) or isinstance(column, np.ndarray)):
            raise TypeError(f"column {number} must be a NumPy array or torch tensor, not {type(column).__name__}")
        require_plain(column, f"column {number}")
    cut = _Slicer(cu_seqlens_padded, given, cp_size, cp_rank, dim, exact=True)
    made = tuple(None if column is None else cut(column) for column in columns)
    return made[0] if len(columns) == 1 else made


def _check_rank(cp_size: Any, cp_rank: Any) -> None:
    if whole(cp_size, "cp_size") < 1:
        raise ValueError(f"cp_size must be positive, not {cp_size}")
    if not 0 <= whole(cp_rank, "cp_rank") < cp_size:
        raise ValueError(f"cp_rank must be in [0, {cp_size}), but is {cp_rank}")


class _Slicer:
    """Cuts columns of the same sequences alike. `exact`: chunks are to make up their sequence."""

    def __init__(
        self, cu_seqlens: Any, columns: list[Any], cp_size: int, cp_rank: int, dim: int = 0, *, exact: bool
    ) -> None:
        self._dim, chunks = dim, 2 * cp_size
        total = min((column.shape[dim] for column in columns), default=2**62)
        self._index: torch.Tensor | None = None  # of the tokens, once it is needed
        if on_gpu(cu_seqlens):
            require_offsets(cu_seqlens)
            self._on_gpu(cu_seqlens.detach().long(), total, chunks, cp_rank, exact)
            return
        bounds, _ = checked_offsets(np.asarray(cu_seqlens) if isinstance(cu_seqlens, list) else cu_seqlens, total)
        lengths = np.diff(bounds)
        chunk = lengths // chunks
        if exact and (odd := np.flatnonzero(lengths != chunk * chunks)).size:
            raise ValueError(
                f"sequence {odd[0]} has {lengths[odd[0]]} tokens, which is not a multiple of 2 * cp_size = {chunks}: "
                "pad the sequences with quadrat.align"
            )
        # Of each sequence the ends of four runs, the first and the third of which are the rank's.
        ends = chunk[:, None] * np.array([cp_rank, cp_rank + 1, chunks - 1 - cp_rank, chunks - cp_rank])
        self._runs = (ends + bounds[:-1, None]).reshape(-1)
        self._chosen = np.arange(0, len(self._runs), 2)
        self._tokens = 2 * int(chunk.sum())

    def _on_gpu(self, bounds: Any, total: int, chunks: int, rank: int, exact: bool) -> None:
        """The index, by some fifteen operations of torch."""
        import torch

        chunk = bounds.diff() // chunks
        starts = torch.cat([chunk.new_zeros(1), (2 * chunk).cumsum(0)])
        # Exact places that fill the columns: their number is known without waiting.
        tokens = total // chunks * 2 if exact else int(starts[-1])
        if exact and total % chunks:
            raise ValueError(f"{total} tokens are not a multiple of 2 * cp_size = {chunks}: pad with quadrat.align")
        places = torch.arange(tokens, device=bounds.device)
        sequence = torch.searchsorted(starts[1:], places, right=True).clamp(max=max(0, len(chunk) - 1))
        within, size = places - starts[sequence], chunk[sequence]
        skipped = torch.where(within < size, rank * size, (chunks - 2 - rank) * size)
        self._index = (bounds[sequence] + within + skipped).clamp(max=max(0, total - 1))

    def __call__(self, column: Any) -> Any:
        if is_tensor(column) and (self._index is not None or column.requires_grad):
            return column.index_select(self._dim, self._tokens_of(column))
        return self._copied(column)

    def _tokens_of(self, like: torch.Tensor) -> torch.Tensor:
        """The numbers of the tokens; gradients go through torch's own operations."""
        import torch

        if self._index is None:
            self._index = self._copied(torch.arange(like.shape[self._dim]), 0)
        return self._index

    def _copied(self, column: Any, dim: int | None = None) -> Any:
        dim = self._dim if dim is None else dim
        moved = column.movedim(dim, 0) if is_tensor(column) else np.moveaxis(column, dim, 0)
        carrier = carrier_of(column)
        source = dense(moved, "columns")
        source = source if carrier is None else source.view(carrier)
        framework: Framework = "pt" if is_tensor(column) else "np"
        kind, inner = kind_of(source.dtype), int(np.prod(source.shape[1:], dtype=np.int64))
        out, address = empty(framework, (self._tokens, *source.shape[1:]), kind)
        runs = self._runs if inner == 1 else self._runs * inner
        where = address_of(source), len(source) * inner, kind, address_of(runs), len(runs)
        failure = _core.copy_rows(*where, address_of(self._chosen), len(self._chosen), address, self._tokens * inner)
        assert failure is None, failure
        out = out if carrier is None else out.view(column.dtype)
        if dim == 0:
            return out
        return out.movedim(0, dim).contiguous() if is_tensor(out) else np.ascontiguousarray(np.moveaxis(out, 0, dim))


def pad_thd_sequences_for_cp(  # noqa: PLR0917 - the order is TransformerEngine's
    input_ids: torch.Tensor,
    labels: torch.Tensor,
    cu_seqlens: torch.Tensor,
    divisibility_factor: int,
    padding_token_id: int = 0,
    padding_label_id: int = -100,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad each sequence to a multiple of `divisibility_factor`.

    Args:
        input_ids: `[1, tokens]` or `[tokens]`, on the CPU or a GPU.
        labels: the label of each token, in the same shape; the dtype may differ.
        cu_seqlens: `[sequences + 1]`, where each sequence begins, and where the last one ends.
        divisibility_factor: each length is padded to a multiple of this: 2 x the context-parallel size.
        padding_token_id: the padding value of the ids.
        padding_label_id: the padding value of the labels.

    Returns:
        The ids, `[total]`, the labels, `[total]`, and the new `cu_seqlens`, `[sequences + 1]` int64.

    Raises:
        TypeError, ValueError, OverflowError: as `quadrat.align`.

    Examples:
        >>> import torch
        >>> from quadrat.varlen.context_parallel import pad_thd_sequences_for_cp
        >>> ids, labels = torch.tensor([[1, 2, 3, 7]]), torch.tensor([[2, 3, -100, 8]])
        >>> pad_thd_sequences_for_cp(ids, labels, torch.tensor([0, 3, 4]), 2)
        (tensor([1, 2, 3, 0, 7, 0]), tensor([   2,    3, -100, -100,    8, -100]), tensor([0, 4, 6]))
    """
    flat = [one.squeeze(0) if one.dim() == 2 else one for one in (input_ids, labels)]
    made = align(cu_seqlens, *flat, multiple_of=divisibility_factor, padding_value=(padding_token_id, padding_label_id))
    return *made.values, made.cu_seqlens_padded.long()


def generate_positional_ids_for_cp(
    cu_seqlens: torch.Tensor, divisibility_factor: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The positions in the sequences that `pad_thd_sequences_for_cp` makes; they continue through the padding.

    Args:
        cu_seqlens: `[sequences + 1]`, where each sequence begins, and where the last one ends, before padding.
        divisibility_factor: each length is padded to a multiple of this.
        dtype: the dtype of the result, by default int64.

    Returns:
        `[total]`, from 0 on in each sequence.

    Raises:
        TypeError, ValueError, OverflowError: as `quadrat.align`.

    Examples:
        >>> import torch
        >>> from quadrat.varlen.context_parallel import generate_positional_ids_for_cp
        >>> generate_positional_ids_for_cp(torch.tensor([0, 3, 4]), 2)
        tensor([0, 1, 2, 3, 0, 1])
    """
    if on_gpu(cu_seqlens):
        positions = align(cu_seqlens, multiple_of=divisibility_factor).position_ids
    else:
        if whole(divisibility_factor, "divisibility_factor") <= 0:
            raise ValueError(f"divisibility_factor must be positive, not {divisibility_factor}")
        lengths = np.diff(checked_offsets(cu_seqlens, 2**62)[0])
        places = Places.of(lengths, Placement(divisibility_factor, None, 0, True))
        padded = np.diff(places.starts)
        positions, address = empty("pt", (places.total,), INT64)
        failure = _core.position_ids(address_of(padded), len(padded), 0, address, places.total)
        assert failure is None, failure
    made: torch.Tensor = positions if dtype is None else positions.to(dtype)
    return made


def get_batch_on_this_cp_rank(  # noqa: PLR0917 - the order is TransformerEngine's
    cu_seqlens_padded: torch.Tensor,
    input_ids_padded: torch.Tensor | None,
    labels_padded: torch.Tensor | None,
    position_ids_padded: torch.Tensor | None,
    cp_group: Any = None,
    qvk_format: str = "thd",
    *,
    cp_size: int | None = None,
    cp_rank: int | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The chunks of this rank of a batch in THD format, see `quadrat.context_parallel_slice`.

    Args:
        cu_seqlens_padded: `[sequences + 1]`, where each sequence begins, and where the last one ends, padding included.
        input_ids_padded: `[1, total]`, `[total, ...]` or None.
        labels_padded: the same.
        position_ids_padded: the same.
        cp_group: the process group whose size and rank are used.
        qvk_format: "thd".
        cp_size: with `cp_rank`, instead of a process group.
        cp_rank: with `cp_size`.

    Returns:
        The slices of the three. Tokens of a sequence beyond a multiple of `2 * cp_size` are left out.

    Raises:
        ValueError: for another format; when a tensor has no dimension of the total; when the rank is not in the group.

    Examples:
        >>> import torch
        >>> from quadrat.varlen.context_parallel import get_batch_on_this_cp_rank
        >>> batch = torch.arange(8)[None], None, None
        >>> get_batch_on_this_cp_rank(torch.tensor([0, 8]), *batch, cp_size=2, cp_rank=1)
        (tensor([[2, 3, 4, 5]]), None, None)
    """
    if qvk_format not in ("thd", "bshd", "sbhd"):
        raise ValueError(f"Unsupported qvk_format: {qvk_format}!")
    if qvk_format != "thd":
        raise ValueError(f"Support not implemented yet for qvk_format: {qvk_format}!")
    given = input_ids_padded, labels_padded, position_ids_padded
    if (cp_size is None) != (cp_rank is None):
        raise ValueError("give both cp_size and cp_rank, or a process group")
    if cp_size is None or cp_rank is None:
        import torch.distributed as dist

        cp_size, cp_rank = dist.get_world_size(group=cp_group), dist.get_rank(group=cp_group)
    _check_rank(cp_size, cp_rank)
    if cp_size == 1:
        return given
    total = int(cu_seqlens_padded[-1])
    cuts: dict[int, _Slicer] = {}

    def cut(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None:
            return None
        dim = _dimension_of(tensor, total)
        if dim not in cuts:
            cuts[dim] = _Slicer(cu_seqlens_padded, [tensor], cp_size, cp_rank, dim, exact=False)
        return cuts[dim](tensor)  # type: ignore[no-any-return]

    return cut(input_ids_padded), cut(labels_padded), cut(position_ids_padded)


def _dimension_of(tensor: torch.Tensor, total: int) -> int:
    """The dimension of the tokens. Raises ValueError where there is none."""
    for dim in (1, 0):
        if tensor.dim() > dim and tensor.shape[dim] == total:
            return dim
    raise ValueError(
        f"no dimension of a tensor of shape {tuple(tensor.shape)} has the {total} tokens of cu_seqlens_padded: make "
        "sure the inputs are in THD format and padded correctly"
    )
