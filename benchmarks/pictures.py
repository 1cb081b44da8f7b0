"""The pictures of README and docs, from the results beside which they are written: python -m benchmarks.pictures."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.model_tables import by_share
from benchmarks.tables import (
    RESULTS,
    USUAL,
    Record,
    conditions,
    document,
    load,
    measured,
    rate,
    share,
    taken,
    times,
    usual,
)

INK, SOFT, LINE = "#222222", "#7a7a7a", "#cccccc"
DARK, LIGHT, GREY = "#3f74b5", "#b9cde5", "#c2c2c2"

# By the text of the legend: the colour, the length of each bar (None where there is none), and what it says.
Bars = dict[str, tuple[str, Sequence[float | None], Sequence[str]]]


def bars(path: Path, title: str, below: str, labels: Sequence[str], series: Bars, *, log: bool = False) -> None:
    """Write `path` with the endings .png and .svg: horizontal bars, a group for each label; `log`: from 1.

    below: a line below.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # Text stays text, and the same results give the same file.
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "quadrat"}
    figure, axes = plt.subplots(figsize=(9, 1.2 + len(labels) * (0.14 + 0.25 * len(series))), layout="constrained")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(which="both", colors=SOFT, labelsize=9)
    axes.set_title(title, loc="left", weight="bold", color=INK, pad=12)
    height = 0.78 / len(series)
    for number, (label, (colour, values, texts)) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * height for place in range(len(labels))]
        lengths = [(value or 0) - log for value in values]
        drawn = axes.barh(places, lengths, left=int(log), height=height * 0.94, color=colour, label=label)
        axes.bar_label(drawn, texts, padding=4, fontsize=9, color=INK)
    axes.set_yticks(range(len(labels)), labels, color=INK)
    axes.invert_yaxis()
    axes.tick_params(labelbottom=False, length=0, which="both")
    if log:
        axes.set_xscale("log")
        axes.set_xlabel("logarithmic scale", color=SOFT, fontsize=9)
    axes.set_xlim(right=axes.get_xlim()[1] * (2 if log else 1.12))
    if len(series) > 1:
        figure.legend(frameon=False, loc="outside upper right", fontsize=9, ncols=3)
    figure.supxlabel(below, fontsize=7, color=SOFT)
    figure.savefig(path.with_suffix(".png"), dpi=160)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def speed_ups(machine: Record, cases: list[Record], path: Path) -> None:
    cold = [measured(case, "transformers", "ratio") for case in cases]
    warm = [measured(case, "transformers", "warm_ns") / measured(case, "quadrat", "warm_ns") for case in cases]
    series: Bars = {"cold caches": (DARK, cold, [*map(times, cold)]), "warm caches": (LIGHT, warm, [*map(times, warm)])}
    bars(path, "Speed-up over transformers", conditions(machine), [case["case"] for case in cases], series, log=True)


def peers(machine: Record, cases: list[Record], path: Path) -> None:
    """The usual batch, padded by each way, from lists and from a data set."""
    chosen = usual(cases, "padding")
    ways, series = list(chosen["lists"]["ways"]), {}
    for kind, label, colour in (("lists", "Python lists", DARK), ("Dataset", "a datasets.Dataset", LIGHT)):
        values, texts = [measured(chosen[kind], way) for way in ways], [taken(way)(chosen[kind]) for way in ways]
        series[f"rows of {label}"] = colour, values, texts
    bars(path, f"Time to pad a batch of {USUAL[0]} rows", conditions(machine), ways, series)


def copies(machine: Record, cases: list[Record], path: Path) -> None:
    cases = [case for case in cases if case.get("part") == "bandwidth"]
    shares = [measured(case, "copy", "ratio") * 100 for case in cases]
    speeds = [case["bytes"] / measured(case, "quadrat") for case in cases]
    texts = [f"{share(part / 100)}, {speed:,.0f} GB/s" for part, speed in zip(shares, speeds, strict=True)]
    title, series = "Bandwidth, as a share of a copy within the device", {"": (DARK, shares, texts)}
    bars(path, title, on_gpu(machine), [case["case"] for case in cases], series)


def deferred(machine: Record, cases: list[Record], path: Path) -> None:
    ways = {"transformers": ("", GREY), "quadrat": ("", LIGHT), "deferred": ("quadrat, ", DARK)}
    series: Bars = {
        f"{before}{way}": (colour, [1e9 / measured(case, way) for case in cases], [*map(rate(way), cases)])
        for way, (before, colour) in ways.items()
    }
    through = {"loading": "to the device", "embedding": "through an encoder"}
    groups = [f"{through[case['part']]}, {case['workers']} workers" for case in cases]
    size = f"batches of {cases[0]['rows']} rows of up to {cases[0]['max_length']} tokens"
    bars(path, "Batches per second", f"{on_gpu(machine)}; {size}", groups, series)


def remove_padding(machine: Record, cases: list[Record], path: Path) -> None:
    """The time of a training step by the share of padding, of one model."""
    sweep = by_share(cases)
    ways = {"transformers": ("transformers", GREY), "quadrat": ("padding removed", DARK)}
    series: Bars = {
        text: (colour, [measured(case, way) for case in sweep], [*map(taken(way), sweep)])
        for way, (text, colour) in ways.items()
    }
    title = f"A training step of a BERT of 4 layers, {sweep[0]['batch']} tokens, by its padding"
    bars(path, title, conditions(machine), [f"{case['padding']:.0%}" for case in sweep], series)


def on_gpu(facts: Record) -> str:
    return f"{facts.get('gpu', 'no GPU')}, torch {facts['torch']}"


PICTURES = dict.fromkeys(("pad", "language", "arrow"), speed_ups)
PICTURES |= {"peers": peers, "remove_padding": remove_padding, "cuda": copies, "deferred": deferred}


def draw(name: str, folder: Path = RESULTS) -> None:
    PICTURES[name](document(name)["machine"], load(name), folder / name)


if __name__ == "__main__":
    for name in PICTURES:
        draw(name)
