"""How time and memory of planning grow: lengths, token budget, packs and histogram of up to ten million rows.

Each case runs in a process of its own. Memory is what the process has at its peak above what it had before the call.
The rows have lognormal lengths, 150 tokens on average, and no more than 2,048.
"""

import argparse
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

import quadrat
from measure import machine, terminal

SIZES = [10_000, 100_000, 1_000_000, 10_000_000]
LIMIT, BUDGET = 2048, 16_384


def lengths_of(rows: int) -> np.ndarray:
    """Lengths of rows."""
    return np.minimum(np.random.default_rng(0).lognormal(4.6, 0.8, rows).astype(np.int64) + 1, LIMIT)


def memory(name: str) -> float:
    """MiB of this process, as the system counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def measure(case: str, rows: int) -> tuple[float, float]:
    """Seconds, and MiB at the peak."""
    found = lengths_of(rows)
    given: Any = found
    if case == "lengths":  # the values take no memory: nothing looks at them
        bounds = np.concatenate(([0], found.cumsum())).astype(np.int32)
        given = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(bounds), pa.nulls(int(bounds[-1])))})
    calls = {
        "lengths": lambda: quadrat.lengths(given),
        "token budget": lambda: len(quadrat.TokenBudgetBatchSampler(given, BUDGET)),
        "pack": lambda: quadrat.plan_packs(given, LIMIT),
    }
    quadrat.plan_packs([1], 8), quadrat.lengths([{"input_ids": [1]}]), len(quadrat.TokenBudgetBatchSampler([1], 8))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    start = time.perf_counter()
    calls[case]()
    seconds = time.perf_counter() - start
    return seconds, memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    sizes = parser.parse_args().rows
    table = Table("", *(f"{rows:,} rows" for rows in sizes), title=str(machine()))
    for case in ("lengths", "token budget", "pack"):
        cells = []
        for rows in sizes:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, peak = pool.apply(measure, (case, rows))
            cells.append(f"{seconds * 1e3:,.1f} ms, {peak:,.0f} MiB")
        table.add_row(case, *cells)
    terminal().print(table)


if __name__ == "__main__":
    main()
