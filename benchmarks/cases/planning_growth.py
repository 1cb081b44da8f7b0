"""How time and memory of planning grow: lengths, token budget and packs of up to ten million rows.

Each case runs in a process of its own. Memory is what the process has at its peak above what it had before the call.
The rows have lognormal lengths, 150 tokens on average, and no more than 2,048.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import quadrat
from benchmarks.measure import Case, Cases, own
from benchmarks.processes import apart, grown

LIMIT, BUDGET = 2048, 16_384
JOBS: dict[str, Callable[[Any], Any]] = {
    "lengths": quadrat.lengths,
    "token budget": lambda given: len(quadrat.TokenBudgetBatchSampler(given, BUDGET)),
    "pack": lambda given: quadrat.plan_packs(given, LIMIT),
}


def in_this_process(job: str, rows: int) -> dict[str, float]:
    found = np.minimum(np.random.default_rng(0).lognormal(4.6, 0.8, rows).astype(np.int64) + 1, LIMIT)
    given: Any = found
    if job == "lengths":  # the values take no memory: nothing looks at them
        bounds = np.concatenate(([0], found.cumsum())).astype(np.int32)
        given = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(bounds), pa.nulls(int(bounds[-1])))})
    JOBS[job]([{"input_ids": [1]}] if job == "lengths" else [1])  # loads what it needs
    start = time.perf_counter_ns()
    peak, _ = grown(lambda: JOBS[job](given))
    return {"ns": time.perf_counter_ns() - start, "peak_bytes": peak}


def planned(job: str, rows: int) -> Case:
    ways = {"quadrat": partial(apart, in_this_process, job, rows)}
    return Case(ways, {"job": job, "rows": rows}, stopwatch=own, rounds=1)


def cases(*, quick: bool) -> Cases:
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000)
    return {f"{job}, {rows:,} rows": partial(planned, job, rows) for job in JOBS for rows in sizes}
