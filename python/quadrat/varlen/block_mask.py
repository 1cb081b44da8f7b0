"""FlexAttention's block mask of a flat batch, computed from the boundaries of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat import _core
from quadrat.ops._padding import as_int
from quadrat.ops.aligned import column_of, run_flat
from quadrat.ragged.offsets import checked_offsets, require_offsets
from quadrat.support.columns import SEQUENCES, BatchLayout
from quadrat.support.extras import needs
from quadrat.support.kinds import INT32
from quadrat.support.memory import empty
from quadrat.support.tensors import on_gpu

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

_Pair = tuple[int, int]  # of queries and of keys, or of tokens before and after
# As `BlockMask` has them, for each row: how many blocks are partial, and which; how many are full, and which.
_Blocks = tuple[Any, Any, Any, Any]
_MOST = 2**31 - 1  # what int32 holds, as the numbers of blocks


def document_block_mask(
    cu_seqlens: Any,
    *,
    causal: bool = True,
    window: int | None = None,
    block_size: int | tuple[int, int] = 128,
    total_length: int | None = None,
    device: Any = None,
) -> BlockMask:
    """Make the `BlockMask` of FlexAttention in which each token sees only its own document.

    It has the tensors that `torch.nn.attention.flex_attention.create_block_mask` makes of the same mask, with batch and
    head dimensions of 1. They are computed from the boundaries of the documents, without looking at pairs of tokens.
    `mask_mod` reads the number of each token's document from a tensor, so that `torch.compile` does not recompile for
    the next batch with the same options and total.

    Args:
        cu_seqlens: `[documents + 1]` integers, where each document begins, and where the last one ends: those of
            `quadrat.flatten`, or `cu_seq_lens_q` of a flattened batch. A tensor, an array or a list. Documents may be
            empty.
        causal: whether a token sees only itself and the tokens before it.
        window: how far a token sees: itself and the `window - 1` before it; without `causal`, the `window - 1` after it
            as well. None: the whole document.
        block_size: the size of the blocks, in tokens; or a pair of sizes, for queries and keys.
        total_length: the length of the batch, in tokens, if it is longer than the documents. The rest is one more
            document. None: the batch ends with the last document, whose end is read, which waits for a GPU.
        device: the device of the mask. None: that of `cu_seqlens`, or the CPU if it is not a tensor.

    Returns:
        A `BlockMask` of shape `[1, 1, total, total]`, for `flex_attention(query, key, value, block_mask=...)`.

    Raises:
        TypeError: when a numeric option is not a number.
        ValueError: when `cu_seqlens` is not one-dimensional, does not begin with 0 or decreases; when `total_length` is
            below its last entry; when `window` or a block size is not positive. Boundaries on a GPU are not checked.
        ImportError: without torch, or with a torch that has no FlexAttention.

    Examples:
        >>> import quadrat
        >>> mask = quadrat.varlen.document_block_mask([0, 100, 320], block_size=64)
        >>> mask.kv_num_blocks  # of the blocks of 64 keys, how many does each block of queries see in part?
        tensor([[[1, 2, 2, 2, 2]]], dtype=torch.int32)
        >>> mask.full_kv_num_blocks  # and how many without any exception?
        tensor([[[0, 0, 0, 1, 2]]], dtype=torch.int32)
    """
    with needs("quadrat.varlen.document_block_mask"):
        import torch
    from torch.nn.attention.flex_attention import BlockMask

    size = _block_size(block_size)
    if window is not None:
        window = min(as_int(window, "window"), _MOST)  # beyond it a window changes nothing
        if window < 1:
            raise ValueError(f"window must be positive, not {window}: a token sees itself at least")
    target = torch.device(getattr(cu_seqlens, "device", "cpu") if device is None else device)
    bounds, total = _bounds(cu_seqlens, total_length)
    if total > _MOST * min(size):
        raise ValueError(f"{total} tokens make more blocks of {size} than int32 can count")
    before = total if window is None else min(window - 1, total)
    reach = before, 0 if causal else before
    work = _on_device if on_gpu(bounds) and target.type != "cpu" else _on_cpu
    documents, *blocks = work(bounds, total, reach, size, target)
    own: dict[str, Any] = {"BLOCK_SIZE": size, "mask_mod": _mask_mod(documents, causal, window)}
    return BlockMask((total, total), *blocks, **own)


def _block_size(given: int | _Pair) -> _Pair:
    sizes = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
    if len(sizes) != 2 or any(as_int(size, "block_size") < 1 for size in sizes):
        raise ValueError(f"block_size must be a positive int, or two of them, not {given!r}")
    return int(sizes[0]), int(sizes[1])


def _bounds(cu_seqlens: Any, total_length: int | None) -> tuple[Any, int]:
    """Where the documents begin, int64, and the total; boundaries in host memory are a checked copy."""
    total = None if total_length is None else as_int(total_length, "total_length")
    if on_gpu(cu_seqlens):
        require_offsets(cu_seqlens)
        return cu_seqlens.detach().long(), int(cu_seqlens[-1]) if total is None else total
    bounds, facts = checked_offsets(cu_seqlens if hasattr(cu_seqlens, "ndim") else np.array(cu_seqlens), 2**62)
    if facts.first != 0:
        raise ValueError(f"cu_seqlens must begin with 0, not with {facts.first}")
    if total is not None and total < facts.last:
        raise ValueError(f"total_length={total} is below the {facts.last} tokens of the documents")
    return bounds, facts.last if total is None else total


def _on_cpu(bounds: Any, total: int, reach: _Pair, size: _Pair, target: Any) -> Iterable[Any]:
    """The documents, the blocks row by row, and the blocks column by column; worked out here, and moved to `target`."""
    if on_gpu(bounds):
        bounds = bounds.cpu().numpy()
    lengths = np.diff(bounds, append=total)
    numbers = (("seq_idx", 0, SEQUENCES, INT32),)
    layout = BatchLayout(total=total, batched=False)
    documents = run_flat(column_of(lengths), numbers, "pt", layout)["seq_idx"]
    blocks = *_blocks(bounds, total, reach, size), *_blocks(bounds, total, reach[::-1], size[::-1])
    made = documents, *blocks
    return made if target.type == "cpu" else (one.to(target, non_blocking=True) for one in made)


def _blocks(bounds: Any, total: int, reach: _Pair, size: _Pair) -> _Blocks:
    rows, columns = (-(-total // one) for one in size)
    shapes = ((1, 1, rows), (1, 1, rows, columns)) * 2
    tensors, addresses = zip(*(empty("pt", shape, INT32) for shape in shapes), strict=True)
    if (failure := _core.document_blocks(bounds, total, reach, size, addresses)) is not None:
        raise ValueError(f"cu_seqlens cannot be boundaries of documents: entry {failure[1]}")
    return tensors


def _on_device(bounds: Any, total: int, reach: _Pair, size: _Pair, target: Any) -> Iterable[Any]:
    """As `_on_cpu`, where boundaries and mask are on a GPU. Some forty small launches, and nothing waits for them."""
    import torch

    bounds = torch.as_tensor(bounds).to(target, non_blocking=True)
    bounds = torch.cat([bounds, bounds.new_full((1,), total)])
    tokens = torch.arange(total, device=target)
    documents = torch.searchsorted(bounds[1:], tokens, right=True)

    def blocks(before: int, after: int, *sizes: int) -> _Blocks:
        begin = torch.maximum(tokens - before, bounds[documents])
        end = torch.minimum(tokens + after + 1, bounds[documents + 1])
        return _blocks_on_device(begin, end, total, *sizes)

    return documents.to(torch.int32), *blocks(*reach, *size), *blocks(*reach[::-1], *size[::-1])


def _blocks_on_device(begin: Any, end: Any, total: int, row_size: int, column_size: int) -> _Blocks:
    """The blocks of rows whose tokens see what is from `begin` to before `end`, as document_blocks.cpp has them."""
    import torch

    column = torch.arange(-(-total // column_size), device=begin.device)
    last = torch.arange(row_size - 1, total + row_size - 1, row_size, device=begin.device)
    inside, last = last < total, last.clamp(max=total - 1)[:, None]
    begin, end, last_begin, last_end = begin[::row_size, None], end[::row_size, None], begin[last], end[last]
    seen = (column >= begin // column_size) & (column < (last_end + column_size - 1) // column_size)
    full = (column >= (last_begin + column_size - 1) // column_size) & (column < end // column_size) & inside[:, None]

    def listed(chosen: Any) -> tuple[Any, Any]:
        # Those that are chosen come first, in order, and then the others.
        order = torch.argsort(chosen.to(torch.uint8), dim=-1, descending=True, stable=True)
        return chosen.sum(-1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]

    return *listed(seen & ~full), *listed(full)


def _mask_mod(documents: Any, causal: bool, window: int | None) -> Callable[..., Any]:
    """The mask function that FlexAttention calls for pairs of tokens: one code for all batches."""

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        seen = documents[q_idx] == documents[kv_idx]
        if window is not None:
            seen = seen & (q_idx - kv_idx < window)
        if causal:
            return seen & (q_idx >= kv_idx)
        return seen if window is None else seen & (kv_idx - q_idx < window)

    return mask_mod
