"""What the pictures of the benchmarks have in common; as a script, draws them anew from benchmarks/results.

python benchmarks/pictures.py
"""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

INK, SOFT, GRID, LINE = "#222222", "#7a7a7a", "#e4e4e4", "#cccccc"
BAR, BAR_SOFT = "#3f74b5", "#b9cde5"

# Text stays text, and the same results give the same file.
plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "quadrat"}


def tidy(axes: Any, title: str, *, grid: str = "x") -> None:
    """A title on the left, a grid along one axis, and no frame but the line below."""
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.set_title(title, loc="left", weight="bold", color=INK, pad=12)


def save(figure: Any, path: Path, conditions: str) -> None:
    """Write `path` with the endings .png and .svg; the conditions are the line below."""
    figure.supxlabel(conditions, fontsize=7, color=SOFT)
    figure.savefig(path.with_suffix(".png"), dpi=160)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    import cuda_report
    import deferred
    import growth
    import peers
    import report

    def load(name: str) -> Any:
        return json.loads((report.RESULTS / f"{name}.json").read_text())

    for suite in ("pad", "language", "arrow", "padders", "whole_words_4"):
        found = load(suite)
        report.plot(found["cases"], found["machine"], report.RESULTS / suite)
    growth.plot(load("growth")["batches"], load("growth")["machine"], report.RESULTS / "growth")
    cuda_report.plot(load("cuda")["bandwidth"], load("cuda")["machine"], report.RESULTS / "cuda")
    deferred.plot(load("deferred"), report.RESULTS / "deferred")
    peers.plot(load("peers")["cells"], load("peers")["machine"], report.RESULTS / "peers")


if __name__ == "__main__":
    main()
