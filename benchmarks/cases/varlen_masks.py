"""FlexAttention's block mask beside torch's, on the GPU where there is one.

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

    facts = {"device": DEVICE, "tokens": tokens, "documents": documents, "window": window}
    return Case(ways, facts, check=check, stopwatch=device, rounds=50)


def cases(*, quick: bool) -> Cases:
    longest = 2048 if quick else 32768
    sizes = ((longest // 4, 8, None), (longest, 32, None), (longest, 512, None), (longest, 32, longest // 32))
    return {
        f"{tokens:,} tokens in {documents} documents" + (f", window of {window:,}" if window else ""): partial(
            masks, tokens, documents, window
        )
        for tokens, documents, window in sizes
    }
