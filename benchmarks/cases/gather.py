"""Gathering predictions: Trainer's container and quadrat's, step by step; and the way back from padding.

Batches of 8 rows of 100 to 160 tokens of 16 floats are added and taken out at the end. The reference makes all it holds
anew at each step: its time grows with the square of the steps. What a container needs in memory is the growth of a
process of its own while it gathers batches that are made as they are added. `unpad` is compared with a memcpy of the
tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers.trainer_pt_utils import EvalLoopContainer

import quadrat
from benchmarks.measure import Case, Cases, own
from benchmarks.processes import apart, grown

STEPS = (100, 200, 400)
MORE_STEPS = (800, 1500, 3000)
ROWS, CLASSES = 8, 16
# tokens, mean length, numbers a token
UNPADDED = ((20_000, 128, 1), (1_000_000, 128, 1), (1_000_000, 512, 1), (300_000, 128, 16), (3_000_000, 128, 16))
CONTAINERS = {"transformers": EvalLoopContainer, "quadrat": quadrat.evaluation.EvalLoopContainer}


def batches(steps: int) -> Iterator[torch.Tensor]:
    generator = np.random.default_rng(0)
    for _ in range(steps):
        yield torch.from_numpy(generator.random((ROWS, int(generator.integers(100, 161)), CLASSES), np.float32))


def gathered(make: Callable[[], Any], given: Iterable[torch.Tensor], every: int | None) -> np.ndarray:
    """The steps of an evaluation, with `eval_accumulation_steps` or without."""
    container = make()
    for step, batch in enumerate(given, start=1):
        container.add(batch)
        if every is not None and step % every == 0:
            container.to_cpu_and_numpy()
    return container.get_arrays()


def containers(steps: int, every: int | None) -> Case:
    """Trainer's and quadrat's; with many steps, quadrat's alone."""
    given = list(batches(steps))
    names = list(CONTAINERS) if steps in STEPS else ["quadrat"]
    ways = {name: partial(gathered, CONTAINERS[name], given, every) for name in names}
    return Case(ways, {"part": "containers", "steps": steps, "every": every})


def memory_of(name: str, steps: int) -> dict[str, int]:
    gathered(CONTAINERS[name], batches(2), None)
    peak, result = grown(lambda: gathered(CONTAINERS[name], batches(steps), None))
    return {"peak_bytes": peak, "result_bytes": result.nbytes}


def memory(steps: int) -> Case:
    ways = {name: partial(apart, memory_of, name, steps) for name in CONTAINERS}
    return Case(ways, {"part": "memory", "steps": steps}, stopwatch=own, rounds=1)


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
    facts = {"part": "unpad", "tokens": int(lengths.sum()), "rows": len(lengths), "inner": inner}
    return Case(ways, facts, base="memcpy", rounds=50)


def cases(*, quick: bool) -> Cases:
    found: Cases = {}
    for every in (None, 20):
        for steps in STEPS[:1] if quick else STEPS + MORE_STEPS:
            found[f"{steps} steps" + (f", every {every}" if every else "")] = partial(containers, steps, every)
    found[f"memory of {max(STEPS)} steps"] = partial(memory, max(STEPS))
    for tokens, mean, inner in UNPADDED[: 1 if quick else None]:
        found[f"unpad, {tokens:,} tokens of {inner}, {mean} a row"] = partial(unpadded, tokens, mean, inner)
    return found
