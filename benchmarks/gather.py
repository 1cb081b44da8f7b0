"""Gathering predictions: Trainer's container and quadrat's, step by step; and the way back from padding.

Batches of 8 rows of 100 to 160 tokens of 16 floats are added and taken out at the end, the same to both containers,
whose results must be equal to the last bit. The reference makes all it holds anew at each step: its time grows with the
square of the steps. What quadrat's needs in memory is the growth of a process of its own while it gathers batches that
are made as they are added. `unpad` is compared with a memcpy of the tokens. Prints tables and writes them as JSON.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from rich import box
from rich.progress import track
from rich.table import Table
from transformers.trainer_pt_utils import EvalLoopContainer

import quadrat
from measure import machine, quiet, rounded, terminal

RESULTS = Path(__file__).parent / "results"
STEPS = (100, 200, 400)
MORE_STEPS = (800, 1500, 3000)
ROWS, CLASSES = 8, 16
# tokens, mean length, numbers a token
UNPADDED = ((20_000, 128, 1), (1_000_000, 128, 1), (1_000_000, 512, 1), (300_000, 128, 16), (3_000_000, 128, 16))


def batches(steps: int) -> Iterator[torch.Tensor]:
    generator = np.random.default_rng(0)
    for _ in range(steps):
        yield torch.from_numpy(generator.random((ROWS, int(generator.integers(100, 161)), CLASSES), np.float32))


def gathered(make: Callable[[], Any], given: list[torch.Tensor], every: int | None) -> np.ndarray:
    """What an evaluation does, with `eval_accumulation_steps` or without."""
    container = make()
    for step, batch in enumerate(given, start=1):
        container.add(batch)
        if every is not None and step % every == 0:
            container.to_cpu_and_numpy()
    return container.get_arrays()


def timed(make: Callable[[], Any], given: list[torch.Tensor], every: int | None) -> float:
    start = perf_counter_ns()
    result = gathered(make, given, every)
    taken = perf_counter_ns() - start
    del result
    return float(taken)


def compare(steps: int, every: int | None, rounds: int) -> dict[str, Any]:
    given = list(batches(steps))
    expected, result = gathered(EvalLoopContainer, given, every), gathered(quadrat.EvalLoopContainer, given, every)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()
    del expected
    pairs = []
    with quiet():
        for _ in range(rounds):
            pairs.append((timed(EvalLoopContainer, given, every), timed(quadrat.EvalLoopContainer, given, every)))
    return {
        "steps": steps,
        "every": every,
        "result_bytes": result.nbytes,
        "reference_ns": statistics.median(reference for reference, _ in pairs),
        "quadrat_ns": statistics.median(ours for _, ours in pairs),
        "ratio": statistics.median(reference / ours for reference, ours in pairs),
    }


def growth(steps: int, every: int | None, rounds: int) -> dict[str, Any]:
    given = list(batches(steps))
    with quiet():
        taken = [timed(quadrat.EvalLoopContainer, given, every) for _ in range(rounds)]
    return {"steps": steps, "every": every, "quadrat_ns": statistics.median(taken)}


def peak(name: str, steps: int) -> None:
    """Print the bytes that this process grew by at most, and those of the result, as JSON."""
    make = {"transformers": EvalLoopContainer, "quadrat": quadrat.EvalLoopContainer}[name]
    gathered(make, list(batches(2)), None)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    container = make()
    for batch in batches(steps):
        container.add(batch)
    result = container.get_arrays()
    print(json.dumps({"grown": status("VmHWM") - before, "result": result.nbytes}))


def status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def memory(name: str, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--peak", name, str(steps)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"container": name, "steps": steps, **said, "of_result": said["grown"] / said["result"]}


def unpadded(tokens: int, mean: int, inner: int, rounds: int) -> dict[str, Any]:
    lengths = np.random.default_rng(0).integers(1, 2 * mean, tokens // mean)
    shape = (len(lengths), int(lengths.max()), *([inner] if inner > 1 else []))
    padded = torch.from_numpy(np.random.default_rng(1).random(shape, np.float32))
    kept = torch.arange(shape[1]) < torch.from_numpy(lengths)[:, None]
    expected = padded[kept]
    ways: dict[str, Callable[[], Any]] = {
        "memcpy": expected.clone,
        "lengths": lambda: quadrat.unpad(padded, lengths=lengths).values,
        "mask": lambda: quadrat.unpad(padded, mask=kept).values,
        "indexing": lambda: padded[kept],
    }
    assert all(torch.equal(way(), expected) for way in ways.values())
    times: dict[str, list[float]] = {name: [] for name in ways}
    with quiet():
        for _ in range(rounds):
            for name, way in ways.items():
                start = perf_counter_ns()
                result = way()
                times[name].append(perf_counter_ns() - start)
                del result
    medians = {f"{name}_ns": statistics.median(taken) for name, taken in times.items()}
    ratios = {
        f"{name}_to_memcpy": statistics.median(a / b for a, b in zip(taken, times["memcpy"], strict=True))
        for name, taken in times.items()
    }
    del ratios["memcpy_to_memcpy"]
    return {"tokens": int(lengths.sum()), "rows": len(lengths), "inner": inner, **medians, **ratios}


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    view = Table(title=title, box=box.SIMPLE_HEAD)
    for name in rows[0]:
        heading = name.removesuffix("_ns").replace("_to_memcpy", " / memcpy").replace("_", " ")
        view.add_column(heading, justify="right")
    for row in rows:
        view.add_row(*(shown(name, value) for name, value in row.items()))
    return view


def shown(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return f"{value / 1e6:,.3g} ms"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value or "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each comparison (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--peak", nargs=2, metavar=("CONTAINER", "STEPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        peak(arguments.peak[0], int(arguments.peak[1]))
        return
    rounds = arguments.rounds
    compared = [
        compare(steps, every, rounds) for every in (None, 20) for steps in track(STEPS, "containers", transient=True)
    ]
    grown = [growth(steps, every, rounds) for every in (None, 20) for steps in MORE_STEPS]
    needed = [memory(name, max(STEPS)) for name in ("transformers", "quadrat")]
    taken_out = [unpadded(*size, rounds=max(10 * rounds, 30)) for size in track(UNPADDED, "unpad", transient=True)]
    console = terminal()
    console.print(table("Trainer's container and quadrat's", compared))
    console.print(table("more steps, quadrat's alone", grown))
    console.print(table("growth of a process that gathers", needed))
    console.print(table("unpad, float32", taken_out))
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "containers": compared, "steps": grown, "memory": needed, "unpad": taken_out}
    (arguments.out / "gather.json").write_text(json.dumps(rounded(document), indent=2) + "\n")


if __name__ == "__main__":
    main()
