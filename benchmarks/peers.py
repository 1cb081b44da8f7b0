"""quadrat and every other way of making the same tensors, over a grid of batch sizes, lengths and kinds of rows.

The ways (peer_routes.py) are timed alternately in one process, on one thread, without garbage collection, so that each
finds the caches as the others leave them ("cold"); then each runs alone ("warm"). Before, each batch is compared with
the reference's: a way that makes other tensors is listed with what differs.
"""

import argparse
import contextlib
import functools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import datasets
import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers
from matplotlib.ticker import FuncFormatter
from rich import box
from rich.progress import track
from rich.table import Table

import quadrat
from cases import token_ids
from measure import DifferenceError, alone, check_same, machine, quiet, rounded, sample, terminal
from peer_routes import COLUMNS, INPUTS, JOBS, Route
from pictures import BAR, BAR_SOFT, INK, SOFT, save, tidy
from quadrat.data.stored import original_getitems as fetched_by_datasets
from report import RESULTS, conditions, times_as

ROWS = (1, 8, 32, 128)
LENGTHS = (64, 512, 2048, 8192)
USUAL = (32, 512)
COLOURS = {"lists": BAR, "Dataset": BAR_SOFT}


@functools.cache
def lists(count: int, longest: int) -> list[dict[str, list[int]]]:
    """Rows of `longest // 8` to `longest` tokens of the corpus, each number an object of its own."""
    lengths = np.random.default_rng(0).integers(max(longest // 8, 1), longest, size=count, endpoint=True)
    lengths[-1] = longest
    stream = np.resize(np.concatenate([np.array(ids) for ids in token_ids()]), int(lengths.sum()))
    parts = np.split(stream, np.cumsum(lengths)[:-1])
    makers = (lambda ids: ids, np.zeros_like, np.ones_like)
    return [{name: make(ids).tolist() for name, make in zip(COLUMNS, makers, strict=True)} for ids in parts]


@functools.cache
def stored(count: int, longest: int) -> datasets.Dataset:
    """The same rows saved, memory-mapped and behind an indices mapping, with the types that datasets infers."""
    types = {name: datasets.Sequence(datasets.Value("int32" if name == "input_ids" else "int8")) for name in COLUMNS}
    folder = Path(tempfile.mkdtemp(prefix="quadrat-bench-"))
    rows = lists(count, longest)
    datasets.Dataset.from_list(rows, features=datasets.Features(types)).save_to_disk(folder)
    return datasets.load_from_disk(folder).select(range(count)[::-1]).select(range(count)[::-1])


def features(kind: str, count: int, longest: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows in memory, of Python lists, NumPy arrays or torch tensors."""
    make = {"lists": list, "NumPy arrays": np.array, "torch tensors": torch.tensor}[kind]
    return [{name: make(row[name]) for name in names} for row in lists(count, longest)]


def call(route: Route, kind: str, count: int, longest: int, names: tuple[str, ...]) -> Callable[[Any], Any]:
    """What makes the batch, from rows in memory or from a data set, whose rows it fetches first."""
    if kind not in INPUTS[3:]:
        rows = features(kind, count, longest, names)
        return lambda _: route.collate(rows)
    source, keys = stored(count, longest).select_columns(list(names)), list(range(count))
    if route.name == "quadrat":
        own = source if kind == "Dataset" else quadrat.ArrowDataset(source)
        return lambda _: route.collate(own.__getitems__(keys))
    formatted = source.with_format(route.form)
    if route.form == "arrow":
        return lambda _: route.collate(formatted[keys])
    return lambda _: route.collate(fetched_by_datasets(formatted, keys))


def difference(expected: Any, batch: Any) -> str:
    """What differs from the reference's tensors; nothing where they are the same."""
    try:
        check_same({**expected}, {**batch})
    except DifferenceError as error:
        return str(error)
    return ""


def measure(job: str, kind: str, count: int, longest: int, seconds: float) -> list[dict[str, Any]]:
    """The ways of one cell of the grid."""
    names = COLUMNS if job == "padding" else COLUMNS[:1]
    routes = [route for route in JOBS[job]() if kind in route.inputs or route.name == "transformers"]
    # The reference knows nothing of an ArrowDataset: there it reads the data set itself.
    own = ["Dataset" if kind not in route.inputs else kind for route in routes]
    calls = [call(route, kind, count, longest, names) for route, kind in zip(routes, own, strict=True)]
    expected = calls[0](None)
    differences = [difference(expected, one(None)) for one in calls]
    if differences[-1]:
        raise AssertionError(f"{job}, {kind}, {count} x {longest}: {differences[-1]}")
    taken: list[list[float]] = []
    with quiet():
        end = perf_counter_ns() + seconds * 1e9
        while len(taken) < 3 or perf_counter_ns() < end:
            taken.append([sample(one, []) for one in calls])
    times = np.array(taken)
    ratios = times / times[:, -1:]
    return [
        {
            "job": job,
            "input": kind,
            "rows": count,
            "longest": longest,
            "tokens": sum(len(row["input_ids"]) for row in lists(count, longest)),
            "way": route.name,
            "differs": differs,
            "ns": float(np.median(times[:, place])),
            "ratio": float(np.median(ratios[:, place])),
            "ratio_quartiles": [float(np.percentile(ratios[:, place], part)) for part in (25, 75)],
            "ns_alone": alone(calls[place], [], seconds=seconds / 10, at_least=3),
        }
        for place, (route, differs) in enumerate(zip(routes, differences, strict=True))
    ]


def table(results: list[dict[str, Any]]) -> Table:
    """Each way's time divided by quadrat's: a line for each way, a column for each kind of rows."""
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("way", no_wrap=True)
    kinds = list(dict.fromkeys(one["input"] for one in results))
    for heading in kinds:
        view.add_column(heading, justify="right")
    for way in dict.fromkeys(one["way"] for one in results):
        cells = {one["input"]: times_as(one["ratio"]) for one in results if one["way"] == way}
        view.add_row(way, *(cells.get(kind, "") for kind in kinds))
    return view


def plot(results: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """The time of a batch by each way, from lists and from a data set."""
    chosen = [one for one in results if one["job"] == "padding" and (one["rows"], one["longest"]) == USUAL]
    ways = list(dict.fromkeys(one["way"] for one in chosen))
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.55 * len(ways)), layout="constrained")
    for offset, kind in zip((-0.2, 0.2), COLOURS, strict=True):
        times = {one["way"]: one["ns"] / 1e3 for one in chosen if one["input"] == kind}
        places = [place + offset for place, way in enumerate(ways) if way in times]
        values = [times[way] for way in ways if way in times]
        label = {"lists": "rows of Python lists", "Dataset": "rows of a datasets.Dataset"}[kind]
        bars = axes.barh(places, values, height=0.38, color=COLOURS[kind], label=label)
        shown = [f"{value / 1e3:.3g} ms" if value >= 1000 else f"{value:.0f} µs" for value in values]
        axes.bar_label(bars, shown, padding=4, fontsize=9, color=INK)
    axes.set_yticks(range(len(ways)), ways)
    axes.get_yticklabels()[-1].set_fontweight("bold")
    axes.invert_yaxis()
    axes.set_xlim(right=axes.get_xlim()[1] * 1.06)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e3:g} ms"))
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.tick_params(axis="x", which="both", colors=SOFT, labelsize=9)
    figure.legend(frameon=False, loc="outside upper right", fontsize=9, ncols=2)
    tidy(axes, "Time to pad a batch of 32 rows")
    save(figure, path, conditions(facts))


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """The unchanged data sets are read by quadrat; other libraries' warnings are theirs."""
    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), quadrat.patch_datasets():
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), help="rows in a batch")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens in the longest row")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="only these jobs")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for a cell of the grid (default: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: results/)")
    arguments = parser.parse_args()
    console = terminal()
    cells = [
        (job, kind, count, longest)
        for job in arguments.jobs
        for count in arguments.rows
        for longest in arguments.lengths
        for kind in INPUTS
    ]
    results: list[dict[str, Any]] = []
    with prepared():
        for cell in track(cells, "Measuring", console=console, transient=True):
            results += measure(*cell, arguments.seconds)
    for job in arguments.jobs:
        console.print(f"{job}, {USUAL[0]} rows of up to {USUAL[1]} tokens: time divided by quadrat's")
        console.print(table([one for one in results if one["job"] == job and (one["rows"], one["longest"]) == USUAL]))
    old, facts = transformers.__version__.startswith("4."), machine()
    name = "peers_4" if old else "peers"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.json").write_text(json.dumps(rounded({"machine": facts, "cells": results})) + "\n")
    if not old:
        plot(results, facts, arguments.out / name)


if __name__ == "__main__":
    main()
