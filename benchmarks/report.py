"""Time every workload; print the table, and write it as JSON, Markdown and a picture.

"Cold" has times and ratio of both collators called in turn, which leaves the caches cold; "warm" has the ratio of each
called again and again.
"""

import argparse
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import transformers
from matplotlib.ticker import FuncFormatter
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import language_cases
import padder_cases
from cases import BUILDERS, Case
from measure import compare, machine, rounded, terminal
from pictures import BAR, BAR_SOFT, INK, SOFT, save, tidy
from quadrat.cli.measure import TIMES, microseconds, times_as


def arrow_builders() -> dict[str, Any]:
    """None where there is nothing to fetch from."""
    if importlib.util.find_spec("datasets") is None:
        return {}
    import arrow_cases

    return {build.__name__: build for build in arrow_cases.builders()}


# The results of a suite are files of its name.
SUITES: dict[str, dict[str, Any]] = (
    {"whole_words_4": {build.__name__: build for build in language_cases.builders()}}
    if transformers.__version__.startswith("4.")
    else {
        "pad": BUILDERS,
        "language": {build.__name__: build for build in language_cases.builders()},
        "arrow": arrow_builders(),
        "padders": {build.__name__: build for build in padder_cases.builders()},
    }
)
RESULTS = Path(__file__).parent / "results"


def measure(case: Case, seconds: float) -> dict[str, Any]:
    times = compare(case.reference, case.quadrat, case.features, seconds=seconds)
    return {
        "case": case.name,
        "description": case.description,
        "rows": len(case.features),
        "tokens": sum(len(one[case.main] if isinstance(one, Mapping) else one) for one in case.features),
        "padded_tokens": int(np.prod(case.reference(case.features)["input_ids"].shape)),
        **times,
    }


def table(results: list[dict[str, Any]], style: box.Box) -> Table:
    view = Table(box=style)
    view.add_column("case", no_wrap=True)
    for heading in ("rows", "tokens", "padded", "transformers", "quadrat", "cold", "warm"):
        view.add_column(heading, justify="right")
    for result in results:
        view.add_row(
            result["case"],
            str(result["rows"]),
            f"{result['tokens']:,}",
            f"{result['padded_tokens']:,}",
            microseconds(result["reference_median_ns"]),
            microseconds(result["quadrat_median_ns"]),
            times_as(result["median_of_ratios"]),
            times_as(result["ratio_alone"]),
        )
    return view


def conditions(facts: dict[str, Any]) -> str:
    return (
        f"{facts['cpu']} (family {facts['cpu_family']}, model {facts['cpu_model']}), one thread, "
        f"Python {facts['python']}, torch {facts['torch']}, NumPy {facts['numpy']}, "
        f"transformers {facts['transformers']}, quadrat {facts['quadrat']}"
    )


def plot(results: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """Horizontal bars of the ratios of every case, on a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.62 * len(results)), layout="constrained")
    bars = {
        "median_of_ratios": (-0.19, BAR, "cold caches"),
        "ratio_alone": (0.19, BAR_SOFT, "warm caches"),
    }
    for name, (offset, colour, label) in bars.items():
        for position, result in enumerate(results):
            ratio = result[name]
            axes.barh(position + offset, ratio - 1, left=1, height=0.36, color=colour, label="" if position else label)
            axes.annotate(
                times_as(ratio),
                (1, position + offset),
                xytext=(5, -0.5),
                textcoords="offset points",
                va="center",
                weight="bold",
                color="white" if colour == BAR and ratio > 3 else INK,
                fontsize=9.5,
            )
    axes.set_yticks(range(len(results)), [result["description"] for result in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(1, 1.3 * max(max(result[name] for name in bars) for result in results))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{TIMES}"))
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.tick_params(axis="x", which="both", colors=SOFT, labelsize=9)
    figure.legend(frameon=False, loc="outside upper right", fontsize=9, ncols=2)
    axes.set_xlabel("logarithmic scale", color=SOFT, fontsize=9)
    tidy(axes, "Speed-up over transformers")
    save(figure, path, conditions(facts))


def write(results: list[dict[str, Any]], out: Path, suite: str) -> None:
    """Write the suite's results into `out`: as JSON, as a Markdown table and as a picture."""
    facts = machine()
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{suite}.json").write_text(json.dumps(rounded({"machine": facts, "cases": results}), indent=2) + "\n")
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(results, box.MARKDOWN))
    lines = [line.strip() for line in capture.get().splitlines()]
    markdown = "\n".join(line for line in lines if line)
    (out / f"{suite}.md").write_text(f"{markdown}\n\nMedians; {conditions(facts)}.\n")
    plot(results, facts, out / suite)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = {name: build for suite in SUITES.values() for name, build in suite.items()}
    parser.add_argument("--case", nargs="+", choices=every, metavar="NAME", help="only these workloads")
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES), help="only these suites")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for the pairs of a workload (default: 2)")
    parser.add_argument("--out", type=Path, help="folder of the results (default with whole suites: results/)")
    arguments = parser.parse_args()
    console = terminal()
    # A selection must not replace the results of all workloads unless asked to.
    out = arguments.out or (None if arguments.case else RESULTS)
    suites = {"selection": arguments.case} if arguments.case else {name: list(SUITES[name]) for name in arguments.suite}
    for suite, names in suites.items():
        building = track(names, "Measuring", console=console, transient=True)
        results = [measure(every[name](), arguments.seconds) for name in building]
        console.print(table(results, box.SIMPLE_HEAD))
        if out is not None:
            write(results, out, suite)


if __name__ == "__main__":
    main()
