"""Out of padding and back: `quadrat.bert_padding` beside plain PyTorch, on the GPU where there is one.

Plain PyTorch is what flash-attn and transformers do: sums, `nonzero`, `cumsum`, and indexing. On a GPU, the share of a
copy's bandwidth too.
"""

from functools import partial
from itertools import product
from typing import Any

import torch
from torch.nn import functional

from benchmarks import gpu
from benchmarks.measure import GPU as HAS_GPU
from benchmarks.measure import Case, Cases, device
from quadrat import bert_padding

GPU = "used"
DEVICE = "cuda" if HAS_GPU else "cpu"
SIZES = {
    "32 x 512 x 768, float32": ((32, 512, 768), torch.float32),
    "32 x 512 x 768, bfloat16": ((32, 512, 768), torch.bfloat16),
    "32 x 512, int64": ((32, 512), torch.int64),
    "256 x 2048, int64": ((256, 2048), torch.int64),
}
LARGE = {
    "bfloat16 [768]": ((1024, 512, 768), torch.bfloat16),
    "float32 [16, 64]": ((512, 512, 16, 64), torch.float32),
    "int64": ((131072, 512), torch.int64),
}
SIDES = ("right", "left", "holes")


def plain_unpad(hidden: Any, mask: Any) -> tuple[Any, ...]:
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = lengths.max().item()
    bounds = functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return hidden.reshape(-1, *hidden.shape[2:])[indices], indices, bounds, longest, lengths


def plain_pad(tokens: Any, indices: Any, batch: int, seqlen: int) -> Any:
    out = torch.zeros(batch * seqlen, *tokens.shape[1:], device=tokens.device, dtype=tokens.dtype)
    out[indices] = tokens
    return out.view(batch, seqlen, *tokens.shape[1:])


def mask_of(rows: int, width: int, side: str) -> Any:
    """A quarter of the width is padding on average."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 2, width + 1, (rows,), generator=generator)
    places = torch.arange(width)
    mask = places < lengths[:, None] if side == "right" else places >= width - lengths[:, None]
    mask = torch.rand(rows, width, generator=generator) < 0.75 if side == "holes" else mask
    return mask.long().to(DEVICE)


def hidden_of(shape: tuple[int, ...], dtype: Any) -> Any:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 1000).to(dtype).to(DEVICE)


def compared(what: str, size: str, plain: Any, ours: Any, rounds: int) -> Case:
    facts = {"part": "bert_padding", "what": what, "size": size}
    ways = {"plain PyTorch": plain, "quadrat": ours}
    return Case(ways, facts, containers=False, stopwatch=device, rounds=rounds)


def there_and_back(what: str, size: str, side: str) -> Case:
    """`unpad_input`, `pad_input`, or both."""
    shape, dtype = SIZES[size]
    mask, hidden = mask_of(*shape[:2], side), hidden_of(shape, dtype)
    tokens, indices, *_ = plain_unpad(hidden, mask)

    def way(unpad: Any, pad: Any) -> Any:
        if what == "unpad_input":
            return lambda: unpad(hidden, mask)
        if what == "pad_input":
            return lambda: pad(tokens, indices, *mask.shape)
        return lambda: pad(*unpad(hidden, mask)[:2], *mask.shape)

    plain, ours = way(plain_unpad, plain_pad), way(bert_padding.unpad_input, bert_padding.pad_input)
    return compared(what, f"{size}, {side}", plain, ours, 15 if len(shape) > 2 else 300)


def beside_a_copy(what: str, size: str, side: str) -> Case:
    """Indices are read where tokens do not lie side by side, and are no part of what must be moved."""
    shape, dtype = LARGE[size]
    mask, hidden = mask_of(*shape[:2], side), hidden_of(shape, dtype)
    tokens, indices, *_ = plain_unpad(hidden, mask)
    if what == "unpad_input":
        unpad = lambda: bert_padding.unpad_input(hidden, mask)[0]  # noqa: E731
        return gpu.bandwidth(unpad, 2 * tokens.nbytes, lambda found: torch.equal(found, tokens))
    padded = plain_pad(tokens, indices, *mask.shape)
    pad = lambda: bert_padding.pad_input(tokens, indices, *mask.shape)  # noqa: E731
    return gpu.bandwidth(pad, tokens.nbytes + padded.nbytes, lambda found: torch.equal(found, padded))


def cases(*, quick: bool) -> Cases:
    jobs = ("unpad_input + pad_input", "unpad_input", "pad_input")
    found: Cases = {}
    for size, side, what in product(SIZES, SIDES, jobs):
        found[f"{what}, {size}, {side}"] = partial(there_and_back, what, size, side)
    for size, side, what in product(LARGE if HAS_GPU else (), SIDES, jobs[1:]):
        found[f"{what}, {size}, {side}"] = partial(beside_a_copy, what, size, side)
    return found
