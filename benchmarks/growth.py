"""Cost per token of batches of ten thousand to ten million tokens, and of one to sixteen columns.

Tokens: padding of ragged rows of about 450 tokens; the rows hold `input_ids` only, and the collator makes the attention
mask. Columns: stacking of 32 rows of 128 numbers a column, by `default_data_collator`.
"""

import argparse
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import transformers
from matplotlib.ticker import FuncFormatter, NullFormatter
from rich import box
from rich.progress import track
from rich.table import Table

import quadrat
from cases import Case, Feature, padding, token_rows
from measure import alone, check_same, machine, rounded, terminal
from pictures import INK, SOFT, save, tidy
from report import RESULTS, conditions

SIZES = [10_000, 100_000, 1_000_000, 10_000_000]
REFERENCE_SIZES = 2
COLUMNS, ROWS, WIDTH = [1, 4, 16], 32, 128
KINDS: dict[str, Callable[[np.ndarray], Any]] = {"lists": np.ndarray.tolist, "numpy": np.ndarray.copy}
LINES = {
    ("reference", "lists"): ("transformers, lists", "#c2410c", "-"),
    ("reference", "numpy"): ("transformers, NumPy", "#c2410c", "--"),
    ("quadrat", "lists"): ("quadrat, lists", "#3f74b5", "-"),
    ("quadrat", "numpy"): ("quadrat, NumPy", "#3f74b5", "--"),
}


def check_batch(batch: Any, features: list[Feature]) -> None:
    """Raise AssertionError unless the mask picks the tokens of the rows out of the batch, and as many of each row."""
    mask = batch["attention_mask"].numpy().astype(bool)
    lengths = [len(feature["input_ids"]) for feature in features]
    tokens = np.concatenate([feature["input_ids"] for feature in features])
    if not np.array_equal(mask.sum(axis=1), lengths) or not np.array_equal(batch["input_ids"].numpy()[mask], tokens):
        raise AssertionError("the batch does not hold the rows")


def measure(case: Case, kind: str, tokens: int, *, with_reference: bool, seconds: float) -> list[dict[str, Any]]:
    """Nanoseconds per token of quadrat, and of the reference if asked for."""
    collators = {"quadrat": case.quadrat}
    if with_reference:
        check_same(case.reference(case.features), case.quadrat(case.features))
        collators["reference"] = case.reference
    else:
        check_batch(case.quadrat(case.features), case.features)
    results = []
    for collator, collate in collators.items():
        # Not in turn: next to the reference, quadrat would find colder caches, in the small batches only.
        median = alone(collate, case.features, seconds=seconds)
        results.append(
            {
                "collator": collator,
                "kind": kind,
                "tokens": tokens,
                "rows": len(case.features),
                "median_ns": median,
                "ns_per_token": median / tokens,
            }
        )
    return results


def by_columns(count: int, seconds: float) -> list[dict[str, Any]]:
    """The time of a batch of so many columns, by collator."""
    numbers = np.random.default_rng(0).integers(0, 30_000, (ROWS, count, WIDTH))
    features = [{f"column_{place}": one.tolist() for place, one in enumerate(row)} for row in numbers]
    collators = {"quadrat": quadrat.default_data_collator, "reference": transformers.default_data_collator}
    check_same(*(collate(features) for collate in collators.values()))
    return [
        {"collator": name, "columns": count, "median_ns": alone(collate, features, seconds=seconds)}
        for name, collate in collators.items()
    ]


def table(results: list[dict[str, Any]]) -> Table:
    view = Table(title="Nanoseconds per token", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("tokens", "rows", *(name for name, _, _ in LINES.values())):
        view.add_column(heading, justify="right")
    sizes = {result["tokens"]: result["rows"] for result in results}
    cells = {(r["collator"], r["kind"], r["tokens"]): f"{r['ns_per_token']:,.2f}" for r in results}
    for tokens, rows in sizes.items():
        view.add_row(f"{tokens:,}", f"{rows:,}", *(cells.get((*line, tokens), "") for line in LINES))
    return view


def plot(results: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """Nanoseconds per token over the tokens of a batch, one line for each collator and kind of row."""
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for (collator, kind), (name, colour, style) in LINES.items():
        line = [(r["tokens"], r["ns_per_token"]) for r in results if (r["collator"], r["kind"]) == (collator, kind)]
        axes.plot(*zip(*line, strict=True), style, color=colour, marker="o", markersize=4.5, linewidth=1.8)
        tokens, cost = line[-1]
        # Lists and arrays may cost the same, so their labels keep apart.
        others = [r["ns_per_token"] for r in results if r["collator"] == collator and r["tokens"] == tokens]
        axes.annotate(
            f"{name}  {cost:.3g} ns" if cost < 100 else f"{name}  {cost:,.0f} ns",
            (tokens, cost),
            xytext=(9, 6 if cost == max(others) else -6),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=9,
        )
    sizes = sorted({result["tokens"] for result in results})
    costs = [result["ns_per_token"] for result in results]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(sizes[0] / 1.6, sizes[-1] * 12)
    axes.set_ylim(min(costs) / 2, max(costs) * 2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ns"))
    axes.tick_params(which="both", colors=SOFT, labelsize=9)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("tokens in the batch (both scales are logarithmic)", color=INK)
    tidy(axes, "Time per token", grid="y")
    save(figure, path, conditions(facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=SIZES, help="tokens of the batches")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for a collator and batch (default: 2)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    console = terminal()
    sizes = sorted(arguments.tokens)
    results: list[dict[str, Any]] = []
    for tokens in track(sizes, "Measuring", console=console, transient=True):
        for kind, convert in KINDS.items():
            case = padding(kind, "", [{"input_ids": convert(row)} for row in token_rows(tokens)])
            with_reference = tokens in sizes[:REFERENCE_SIZES]
            results += measure(case, kind, tokens, with_reference=with_reference, seconds=arguments.seconds)
            # The rows of the next size must not be built while these are alive.
            del case
            gc.collect()
    console.print(table(results))
    columns = [one for count in COLUMNS for one in by_columns(count, arguments.seconds)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    facts = machine()
    (arguments.out / "growth.json").write_text(
        json.dumps(rounded({"machine": facts, "batches": results, "columns": columns}), indent=2) + "\n"
    )
    plot(results, facts, arguments.out / "growth")


if __name__ == "__main__":
    main()
