"""Which rows go together: lengths, grouped indices, batches of a token budget and packs, beside the references.

Rows have lengths from a lognormal distribution (mean 240 tokens, cut at 2,048; the seed is fixed). Each result is
compared with the reference's. Where the reference takes long, it is timed once, or on a part and scaled: the table says
so. Prints two tables, and writes them as JSON and Markdown.

- `lengths` reads an in-memory `datasets.Dataset` of int8 tokens, with an indices mapping (shuffled) and without. The
  reference is what the samplers of transformers do, `[len(row["input_ids"]) for row in dataset]`.
- Grouped indices are those of `LengthGroupedSampler` for batches of 32, from the same generator.
- `plan_packs` stands beside TRL's `_pack_bfd` on one table of lists of nulls, which has no tokens to move.
- `pack_dataset` stands beside TRL's. Both join rows of `input_ids` (int32) and `attention_mask` (int8) into a new file,
  in turn. "map alone" writes the same rows into a file as they are.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
import trl
from rich import box
from rich.console import Console
from rich.table import Table
from transformers import trainer_pt_utils
from trl.data_utils import _pack_bfd

import quadrat
from measure import machine, quiet, rounded, terminal
from quadrat.batching.samplers import get_length_grouped_indices
from quadrat.cli.measure import TIMES
from quadrat.support.extras import version
from report import RESULTS, conditions

LONGEST, BUDGET, BATCH = 2048, 16_384, 32
MILLION = 1_000_000
PART = 20_000  # rows that the reference measures
STRATEGIES = ("best_fit", "first_fit", "in_order")


def row_lengths(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(0).lognormal(5.0, 1.0, rows)
    return np.clip(drawn, 1, LONGEST).astype(np.int64)


def lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.append(0, lengths.cumsum()), pa.int32()), values)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter_ns()
    result = call()
    return float(perf_counter_ns() - start), result


def median(call: Callable[[], Any], rounds: int) -> float:
    with quiet():
        return statistics.median(timed(call)[0] for _ in range(rounds))


def case(
    job: str, rows: int, quadrat_ns: float, reference_ns: float | None = None, reference: str = ""
) -> dict[str, Any]:
    ratio = None if reference_ns is None else reference_ns / quadrat_ns
    return {
        "job": job,
        "rows": rows,
        "quadrat_ns": quadrat_ns,
        "reference_ns": reference_ns,
        "ratio": ratio,
        "reference": reference,
    }


def measure_lengths(lengths: np.ndarray, rounds: int) -> list[dict[str, Any]]:
    values = pa.array(np.zeros(lengths.sum(), np.int8))
    dataset = datasets.Dataset(pa.table({"input_ids": lists(lengths, values)}))
    found = []
    for job, source in (("lengths", dataset), ("lengths, shuffled", dataset.shuffle(seed=0))):
        part = source.select(range(PART))
        with quiet():
            taken, expected = timed(lambda part=part: [len(row["input_ids"]) for row in part])
        assert quadrat.lengths(source)[:PART].tolist() == expected
        assert int(quadrat.lengths(source).sum()) == int(lengths.sum())
        ours = median(lambda source=source: quadrat.lengths(source), rounds)
        scaled = taken * len(lengths) / PART
        found.append(case(job, len(lengths), ours, scaled, f"transformers, {PART:,} rows, scaled"))
    return found


def measure_groups(lengths: np.ndarray, rounds: int) -> dict[str, Any]:
    def ours() -> list[int]:
        return get_length_grouped_indices(lengths, BATCH, generator=torch.Generator().manual_seed(0))

    given = lengths.tolist()
    with quiet():
        taken, expected = timed(
            lambda: trainer_pt_utils.get_length_grouped_indices(
                given, BATCH, generator=torch.Generator().manual_seed(0)
            )
        )
    assert ours() == expected
    return case("grouped indices", len(lengths), median(ours, rounds), taken, "transformers, once")


def plan_of(name: str, lengths: np.ndarray, batches: int, room: int, fewest: int | None = None) -> dict[str, Any]:
    tokens = int(lengths.sum())
    return {
        "plan": name,
        "rows": len(lengths),
        "batches": batches,
        "fewest": fewest,
        "fill": tokens / room,
        "padding": 1 - tokens / room,
    }


def padded_room(lengths: np.ndarray, batches: list[Any]) -> int:
    return sum(len(batch) * int(lengths[batch].max()) for batch in batches)


def measure_budget(lengths: np.ndarray, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    def plan() -> quadrat.TokenBudgetBatchSampler:
        sampler = quadrat.TokenBudgetBatchSampler(lengths, BUDGET)
        len(sampler)  # plans
        return sampler

    batches = list(plan())
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    room = padded_room(lengths, batches)
    assert all(len(batch) * lengths[batch].max() <= BUDGET for batch in batches)
    random = np.array_split(np.random.default_rng(1).permutation(len(lengths)), len(lengths) // BATCH)
    times = [
        case("token budget, plan", len(lengths), median(plan, rounds)),
        case("token budget, plan and lists of rows", len(lengths), median(lambda: list(plan()), rounds)),
    ]
    plans = [
        plan_of(f"random batches of {BATCH}, padded", lengths, len(random), padded_room(lengths, random)),
        plan_of(f"token budget of {BUDGET:,}, padded", lengths, len(batches), room),
    ]
    return times, plans


def measure_packs(lengths: np.ndarray, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    times, plans = [], []
    for strategy in STRATEGIES:

        def ours(strategy: Any = strategy) -> quadrat.Ragged:
            return quadrat.plan_packs(lengths, LONGEST, strategy)

        packs, taken, reference = ours(), None, ""
        if strategy == "best_fit":
            table = pa.table({"input_ids": lists(lengths, pa.nulls(int(lengths.sum())))})
            with quiet():
                taken, expected = timed(lambda table=table: _pack_bfd(table, LONGEST))
            reference = "TRL, once"
            joined = expected["seq_lengths"].chunk(0)
            assert np.array_equal(joined.offsets, packs.offsets)
            assert np.array_equal(joined.values, lengths[packs.values])
        times.append(case(f"pack, {strategy}", len(lengths), median(ours, rounds), taken, reference))
        fewest = -(-int(lengths.sum()) // LONGEST)
        plans.append(plan_of(f"pack, {strategy}", lengths, len(packs), len(packs) * LONGEST, fewest))
    return times, plans


def measure_datasets(lengths: np.ndarray, rounds: int) -> list[dict[str, Any]]:
    tokens = np.random.default_rng(2).integers(0, 30_000, lengths.sum()).astype(np.int32)
    columns = {"input_ids": lists(lengths, pa.array(tokens))}
    columns["attention_mask"] = lists(lengths, pa.array(np.ones(len(tokens), np.int8)))
    dataset = datasets.Dataset(pa.table(columns))
    ways: dict[str, Callable[..., Any]] = {"reference": trl.pack_dataset, "quadrat": quadrat.batching.pack_dataset}

    def packed(pack: Callable[..., Any], strategy: str, folder: str) -> tuple[float, Any]:
        new = tempfile.mkdtemp(dir=folder)
        return timed(lambda: pack(dataset, LONGEST, strategy, map_kwargs={"cache_file_name": f"{new}/rows.arrow"}))

    found = []
    for strategy in ("bfd", "bfd_split", "wrapped"):
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder, quiet():
                # Whoever comes second writes while the disk is busy with the first file.
                order = list(ways) if number % 2 else list(ways)[::-1]
                results = {name: packed(ways[name], strategy, folder) for name in order}
                if number == 0:  # warms up, too
                    expected, ours = (results[name][1] for name in ways)
                    assert ours.features == expected.features
                    assert ours.data.table.equals(expected.data.table)
                    continue
                for name, (taken, _) in results.items():
                    times[name].append(taken)
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        row = case(f"pack_dataset, {strategy}", len(lengths), medians["quadrat"], medians["reference"], "TRL")
        row["ratio"] = statistics.median(a / b for a, b in zip(times["reference"], times["quadrat"], strict=True))
        found.append(row)

    def unchanged() -> float:
        with tempfile.TemporaryDirectory() as folder:
            copied = dataset.with_format("arrow")
            return timed(lambda: copied.map(lambda table: table, batched=True, cache_file_name=f"{folder}/rows.arrow"))[
                0
            ]

    with quiet():
        alone = statistics.median(unchanged() for _ in range(rounds))
    return [*found, case("map alone", len(lengths), alone)]


def milliseconds(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return ""
    return f"{nanoseconds / 1e9:,.3g} s" if nanoseconds >= 1e9 else f"{nanoseconds / 1e6:,.3g} ms"


def times_table(times: list[dict[str, Any]], style: box.Box) -> Table:
    view = Table(box=style)
    view.add_column("job", no_wrap=True)
    for heading in ("rows", "quadrat", "reference", "ratio"):
        view.add_column(heading, justify="right", no_wrap=True)
    view.add_column("the reference")
    for row in times:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:,.{0 if row['ratio'] >= 10 else 1}f}{TIMES}"
        taken = milliseconds(row["quadrat_ns"]), milliseconds(row["reference_ns"])
        view.add_row(row["job"], f"{row['rows']:,}", *taken, ratio, row["reference"])
    return view


def plans_table(plans: list[dict[str, Any]], style: box.Box) -> Table:
    view = Table(box=style)
    view.add_column("plan", no_wrap=True)
    for heading in ("rows", "batches or packs", "fewest possible", "fill", "padding"):
        view.add_column(heading, justify="right", no_wrap=True)
    for row in plans:
        counts = f"{row['rows']:,}", f"{row['batches']:,}", "" if row["fewest"] is None else f"{row['fewest']:,}"
        view.add_row(row["plan"], *counts, f"{row['fill']:.4f}", f"{row['padding']:.2%}")
    return view


def write(document: dict[str, Any], said: str, out: Path) -> None:
    """Write the results into `out`: as JSON and as Markdown tables."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "batching.json").write_text(json.dumps(rounded(document), indent=2) + "\n")
    console = Console(width=200)
    texts = []
    for table in (times_table(document["times"], box.MARKDOWN), plans_table(document["plans"], box.MARKDOWN)):
        with console.capture() as capture:
            console.print(table)
        texts.append("\n".join(filter(None, (line.strip() for line in capture.get().splitlines()))))
    (out / "batching.md").write_text("\n\n".join([*texts, said]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5 * MILLION, help="to measure and group (default: %(default)s)")
    parser.add_argument("--plan", type=int, default=MILLION, help="to plan and pack (default: %(default)s)")
    parser.add_argument("--join", type=int, default=MILLION // 10, help="to join as a dataset (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="of each job (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the results (default with all rows: results/)")
    arguments = parser.parse_args()
    whole = (arguments.rows, arguments.plan, arguments.join) == (5 * MILLION, MILLION, MILLION // 10)
    out = arguments.out or (RESULTS if whole else None)
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    console = terminal()
    lengths = row_lengths(max(arguments.rows, arguments.plan, arguments.join))
    rounds, few = arguments.rounds, lengths[: arguments.plan]
    with console.status("lengths"):
        times = measure_lengths(lengths[: arguments.rows], rounds)
    with console.status("grouped indices"):
        times.append(measure_groups(lengths[: arguments.rows], rounds))
    with console.status("batches and packs"):
        more, plans = measure_budget(few, rounds)
        packing, packs = measure_packs(few, rounds)
    with console.status("datasets"):
        times += [*more, *packing, *measure_datasets(lengths[: arguments.join], rounds)]
    plans += packs
    facts = {**machine(), "datasets": version("datasets"), "trl": version("trl")}
    said = (
        f"Lengths: lognormal, mean {lengths.mean():.0f} tokens, cut at {LONGEST:,}. Medians of {rounds} rounds; "
        f"{conditions(facts)}, datasets {facts['datasets']}, TRL {facts['trl']}."
    )
    console.print(times_table(times, box.SIMPLE_HEAD))
    console.print(plans_table(plans, box.SIMPLE_HEAD))
    console.print(said)
    if out is not None:
        write({"machine": facts, "mean_length": float(lengths.mean()), "times": times, "plans": plans}, said, out)


if __name__ == "__main__":
    main()
