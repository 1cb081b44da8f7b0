"""Batches a second that a `DataLoader` delivers, with the reference's collators and with quadrat's.

Both loaders exist at the same time, their workers persistent, and are read through in turn; the ratio is the median of
the ratios pass by pass. Nothing is done with the batches. First, all of them are compared.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
import transformers
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.utils.data import DataLoader

import quadrat
from arrow_cases import shuffled
from cases import MIN_LENGTH, ROWS, Collate, Feature, encode, token_ids, tokenizer
from measure import check_same, machine, quiet, rounded, seed, terminal
from report import RESULTS, conditions, times_as

BATCHES = 40
WORKERS = (0, 2)


@dataclass(frozen=True)
class Workload:
    """The rows each side reads, the same numbers in whatever form, and what collates them."""

    name: str
    description: str
    reference_rows: Sequence[Feature]
    quadrat_rows: Sequence[Feature]
    reference: Collate
    quadrat: Collate


def features(**options: Any) -> list[Feature]:
    """The rows of `BATCHES` batches in the order of the corpus, whose lengths are mixed."""
    long_enough = [index for index, ids in enumerate(token_ids()) if len(ids) >= MIN_LENGTH]
    spread = np.linspace(0, len(long_enough) - 1, ROWS * BATCHES).astype(int)
    shuffled = np.random.default_rng(0).permutation(spread)
    return [encode(long_enough[index], **options) for index in shuffled]


def workload(name: str, description: str, collator: str, rows: list[Feature]) -> Workload:
    return Workload(
        name,
        description,
        rows,
        rows,
        getattr(transformers, collator)(tokenizer()),
        getattr(quadrat, collator)(tokenizer()),
    )


def padding() -> Workload:
    return workload("padding", "padding, a list of features", "DataCollatorWithPadding", features())


def masked() -> Workload:
    rows = features(return_special_tokens_mask=True)
    return workload("mlm", "masked language modelling, a list of features", "DataCollatorForLanguageModeling", rows)


def from_arrow(name: str, description: str, collator: str, *, special: bool = False) -> Workload:
    """A datasets.Dataset in random order against an ArrowDataset over it."""
    rows, _ = shuffled(special=special)
    plain = rows.select(range(ROWS * BATCHES))
    reference, ours = getattr(transformers, collator)(tokenizer()), getattr(quadrat, collator)(tokenizer())
    return Workload(name, description, plain, quadrat.ArrowDataset(plain), reference, ours)


def padding_arrow() -> Workload:
    return from_arrow("padding_arrow", "padding, datasets.Dataset and ArrowDataset", "DataCollatorWithPadding")


def masked_arrow() -> Workload:
    description = "masked language modelling, datasets.Dataset and ArrowDataset"
    return from_arrow("mlm_arrow", description, "DataCollatorForLanguageModeling", special=True)


# To add a workload, write a function that returns a `Workload`, and list it here.
BUILDERS: dict[str, Callable[[], Workload]] = {
    build.__name__: build for build in (padding, masked, padding_arrow, masked_arrow)
}


def loader(rows: Any, collate: Collate, workers: int) -> Any:
    return DataLoader(rows, batch_size=ROWS, collate_fn=collate, num_workers=workers, persistent_workers=workers > 0)


def check(reference: Any, other: Any) -> None:
    """Raise AssertionError unless both deliver the same batches from the same seeds, worker by worker."""
    passes = []
    for each in (reference, other):
        seed()
        # Copies, for a batch in shared memory holds a file descriptor.
        passes.append([type(batch)({key: value.clone() for key, value in batch.items()}) for batch in each])
    expected, actual = passes
    if len(expected) != len(actual):
        raise AssertionError(f"{len(expected)} batches expected, {len(actual)} found")
    for one, two in zip(expected, actual, strict=True):
        check_same(one, two)


def rate(batches: Any) -> float:
    """Batches a second over a whole pass."""
    start, count = perf_counter_ns(), 0
    for _ in batches:
        count += 1
    return count / (perf_counter_ns() - start) * 1e9


def measure(case: Workload, workers: int, seconds: float, at_least: int = 7) -> dict[str, Any]:
    reference = loader(case.reference_rows, case.reference, workers)
    other = loader(case.quadrat_rows, case.quadrat, workers)
    check(reference, other)
    taken: list[tuple[float, float]] = []
    with quiet():
        end = perf_counter_ns() + seconds * 1e9
        while len(taken) < at_least or perf_counter_ns() < end:
            taken.append((rate(reference), rate(other)))
    rates = np.array(taken)
    ratios = rates[:, 1] / rates[:, 0]
    medians, quartiles = np.median(rates, axis=0), np.percentile(rates, [25, 75], axis=0)
    return {
        "case": case.name,
        "description": case.description,
        "workers": workers,
        "rows": ROWS,
        "batches": math.ceil(len(case.reference_rows) / ROWS),
        "passes": len(taken),
        "reference_batches_per_second": float(medians[0]),
        "quadrat_batches_per_second": float(medians[1]),
        "reference_quartiles": quartiles[:, 0].tolist(),
        "quadrat_quartiles": quartiles[:, 1].tolist(),
        "median_of_ratios": float(np.median(ratios)),
        "ratio_quartiles": np.percentile(ratios, [25, 75]).tolist(),
    }


def table(results: list[dict[str, Any]], style: box.Box) -> Table:
    view = Table(box=style)
    view.add_column("case", no_wrap=True)
    for heading in ("workers", "rows", "transformers, batches/s", "quadrat, batches/s", "ratio"):
        view.add_column(heading, justify="right")
    for result in results:
        view.add_row(
            result["case"],
            str(result["workers"]),
            str(result["rows"]),
            f"{result['reference_batches_per_second']:,.0f}",
            f"{result['quadrat_batches_per_second']:,.0f}",
            times_as(result["median_of_ratios"]),
        )
    return view


def write(results: list[dict[str, Any]], out: Path) -> None:
    """Write the results into `out`: as JSON and as a Markdown table."""
    facts = machine()
    out.mkdir(parents=True, exist_ok=True)
    (out / "dataloader.json").write_text(json.dumps(rounded({"machine": facts, "cases": results}), indent=2) + "\n")
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(results, box.MARKDOWN))
    markdown = "\n".join(filter(None, (line.strip() for line in capture.get().splitlines())))
    (out / "dataloader.md").write_text(f"{markdown}\n\nMedians; {facts['cores']} cores; {conditions(facts)}.\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=BUILDERS, metavar="NAME", help="only these workloads")
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS), help="numbers of workers")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for the passes of each (default: 10)")
    parser.add_argument("--out", type=Path, help="folder of the results (default with all workloads: results/)")
    arguments = parser.parse_args()
    console = terminal()
    # A selection must not replace the results of all workloads unless asked to.
    whole = arguments.case is None and arguments.workers == list(WORKERS)
    out = arguments.out or (RESULTS if whole else None)
    torch.set_num_threads(1)
    results = []
    for name in track(arguments.case or BUILDERS, "Measuring", console=console, transient=True):
        case = BUILDERS[name]()
        results += [measure(case, workers, arguments.seconds) for workers in arguments.workers]
    console.print(table(results, box.SIMPLE_HEAD))
    if out is not None:
        write(results, out)


if __name__ == "__main__":
    main()
