"""FlexAttention's block mask, and context parallelism, beside torch and plain PyTorch, on the GPU where there is one.

`document_block_mask` stands beside `torch.nn.attention.flex_attention.create_block_mask`, eager and compiled, with the
mask function that quadrat's mask has; all tensors of the two must be equal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

import quadrat
from benchmarks.measure import GPU as HAS_GPU
from benchmarks.measure import Case, Cases, Way, device, same

GPU = "used"
DEVICE = "cuda" if HAS_GPU else "cpu"
TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
TENSORS += ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")
CP_SIZE, CP_RANK = 4, 1


def masks(tokens: int, documents: int, window: int | None) -> Case:
    """Documents of random lengths."""
    cuts = np.sort(np.random.default_rng(0).choice(np.arange(1, tokens), documents - 1, replace=False))
    bounds = torch.tensor([0, *cuts.tolist(), tokens], dtype=torch.int32, device=DEVICE)
    ours = partial(quadrat.varlen.document_block_mask, bounds, window=window, total_length=tokens)
    mask_mod = ours().mask_mod

    def by_torch(create: Callable[..., BlockMask]) -> BlockMask:
        return create(mask_mod, None, None, tokens, tokens, device=DEVICE)

    ways: dict[str, Any] = {
        "quadrat": ours,
        "compiled": Way(partial(by_torch, torch.compile(create_block_mask)), every=10),
        "eager": Way(partial(by_torch, create_block_mask), every=10 if HAS_GPU else 50),
    }

    def check() -> None:
        made = ours()
        for name in ("compiled", "eager"):
            other = ways[name].call()
            for tensor in TENSORS:
                same(getattr(made, tensor), getattr(other, tensor), f"{tensor} of {name}")

    facts = {"part": "masks", "device": DEVICE, "tokens": tokens, "documents": documents, "window": window}
    return Case(ways, facts, check=check, stopwatch=device, rounds=50)


def plain_slice(bounds: torch.Tensor, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = (bounds[1:] - bounds[:-1]) // (2 * CP_SIZE)
    made = []
    for column in columns:
        chosen = []
        for size, start in zip(sizes, bounds[:-1], strict=True):
            for number in (CP_RANK, 2 * CP_SIZE - CP_RANK - 1):
                chosen.append(torch.arange(start + number * size, start + (number + 1) * size, device=column.device))
        made.append(column.index_select(1, torch.cat(chosen)))
    return tuple(made)


def sliced(sequences: int) -> Case:
    lengths = np.random.default_rng(0).integers(1, 256, sequences)
    bounds = torch.tensor(np.cumsum([0, *lengths]), device=DEVICE)
    ids = torch.arange(int(bounds[-1]), device=DEVICE)
    aligned = quadrat.varlen.align(bounds, ids, ids, pad_to_multiple_of=2 * CP_SIZE)
    padded = aligned.cu_seqlens_padded
    batch = [one[None] for one in (*aligned.values, aligned.position_ids)]
    own = quadrat.varlen.context_parallel_slice
    ways = {
        "plain PyTorch": lambda: plain_slice(padded, *batch),
        "quadrat": lambda: tuple(own(padded, *batch, dim=1, cp_size=CP_SIZE, cp_rank=CP_RANK)),
    }
    facts = {"part": "context_parallel", "function": own.__name__, "device": DEVICE, "sequences": sequences}
    return Case(ways, {**facts, "tokens": len(ids)}, stopwatch=device, rounds=20)


def cases(*, quick: bool) -> Cases:
    longest = 2048 if quick else 32768
    sizes = ((longest // 4, 8, None), (longest, 32, None), (longest, 512, None), (longest, 32, longest // 32))
    return {
        f"{tokens:,} tokens in {documents} documents" + (f", window of {window:,}" if window else ""): partial(
            masks, tokens, documents, window
        )
        for tokens, documents, window in sizes
    } | {f"context_parallel_slice, {count} sequences": partial(sliced, count) for count in (64, 512)}
