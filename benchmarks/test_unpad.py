"""`unpad` of rows of random lengths, beside a memcpy of the tokens."""

from functools import partial

import numpy as np
import torch

import quadrat
from benchmarks.jobs import Job, timed

# tokens, mean length, numbers a token
SIZES = ((20_000, 128, 1), (1_000_000, 128, 1), (1_000_000, 512, 1), (300_000, 128, 16), (3_000_000, 128, 16))


def unpadded(tokens: int, mean: int, inner: int) -> Job:
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
    return Job(ways, facts, base="memcpy")


CASES = {f"unpad, {size[0]:,} tokens of {size[2]}, {size[1]} a row": partial(unpadded, *size) for size in SIZES}
test_unpad = timed(CASES, ("memcpy", "lengths", "mask", "indexing"), small=1)
