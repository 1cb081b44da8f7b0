"""`unpad` of rows of random lengths, beside a memcpy of the tokens."""

from functools import partial

import numpy as np
import torch

import quadrat
from benchmarks.measure import Case, Cases

# tokens, mean length, numbers a token
SIZES = ((20_000, 128, 1), (1_000_000, 128, 1), (1_000_000, 512, 1), (300_000, 128, 16), (3_000_000, 128, 16))


def unpadded(tokens: int, mean: int, inner: int) -> Case:
    lengths = np.random.default_rng(0).integers(1, 2 * mean, tokens // mean)
    shape = (len(lengths), int(lengths.max()), *([inner] if inner > 1 else []))
    padded = torch.from_numpy(np.random.default_rng(1).random(shape, np.float32))
    kept = torch.arange(shape[1]) < torch.from_numpy(lengths)[:, None]
    ways = {
        "memcpy": padded[kept].clone,
        "lengths": lambda: quadrat.unpad(padded, lengths=lengths).values,
        "mask": lambda: quadrat.unpad(padded, mask=kept).values,
        "indexing": lambda: padded[kept],
    }
    facts = {"tokens": int(lengths.sum()), "rows": len(lengths), "inner": inner}
    return Case(ways, facts, base="memcpy", rounds=50)


def cases(*, quick: bool) -> Cases:
    return {
        f"unpad, {tokens:,} tokens of {inner}, {mean} a row": partial(unpadded, tokens, mean, inner)
        for tokens, mean, inner in SIZES[: 1 if quick else None]
    }
