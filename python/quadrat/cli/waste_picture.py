"""The picture of `python -m quadrat waste`: how long the rows are, and the share of padding in each way of batching."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from quadrat.cli.command import CommandError, errors_of, harmless
from quadrat.cli.waste import Report, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, PALE = "#3f74b5", "#c9d7e8"
MEDIAN, P95, LIMIT = "#b45309", "#0f766e", "#b91c1c"
_STYLE: Any = {
    "text.usetex": False,  # names are not TeX
    "font.size": 9.5,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    **{f"axes.spines.{side}": False for side in ("top", "left", "right")},
    **{f"{axis}tick.major.size": 0 for axis in "xy"},
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.1,
}


def check(path: Path) -> None:
    """Raise CommandError unless a picture can be written to `path`, which is left as it is."""
    with _settings(path):
        # Without pgf, which is a program for TeX: names would be a part of it.
        formats = sorted(Figure().canvas.get_supported_filetypes().keys() - {"pgf"})
        if _format(path) not in formats:
            expected = ", ".join(f".{one}" for one in formats)
            raise CommandError(f"{path}: {path.suffix!r} is not a picture format; expected one of {expected}")
        if path.is_fifo():  # which would wait for its reader
            raise CommandError(f"{path}: not a file")
        Figure().savefig(io.BytesIO(), format=_format(path))  # what a format needs installed is found by trying
        target = path.resolve()
        exists = target.exists()
        target.open("ab").close()
        if not exists:
            target.unlink()


def draw(report: Report, path: Path) -> None:
    """Write the picture; the extension of `path` sets the format, PNG without one. Raises CommandError."""
    with _settings(path):
        # Without pyplot there is no window system to look for, and nothing to close.
        figure = Figure(figsize=(9, 6.6), layout="constrained")
        above, below = figure.subplots(2, height_ratios=(1.35, 1))
        _lengths(above, report)
        _shares(below, report)
        figure.suptitle(harmless(Path(report.data).name), x=0.01, ha="left", weight="bold", size=13, parse_math=False)
        figure.savefig(path, dpi=160, format=_format(path))  # without a format it adds an ending


def _format(path: Path) -> str:
    return path.suffix[1:].lower() or "png"


@contextmanager
def _settings(path: Path) -> Iterator[None]:
    """The settings to draw with, and CommandError for all that matplotlib raises."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # a box is drawn
        with errors_of(path, "", Exception):  # of a format, or of the programs it needs; there are many kinds
            yield


def _lengths(axes: Axes, report: Report) -> None:
    found, bins = report.lengths, report.histogram
    width = (bins[0].last or 0) - bins[0].first + 1  # the first bin has an end
    firsts = [one.first for one in bins]
    axes.bar(firsts, [one.rows for one in bins], width, align="edge", color=BAR, edgecolor="white", linewidth=0.4)
    # A row of n tokens lies between n and n + 1.
    axes.axvline(found["median"] + 0.5, color=MEDIAN, label=f"median {found['median']:g}")
    axes.axvline(found["p95"] + 0.5, color=P95, linestyle="--", label=f"95% up to {found['p95']:,}")
    if found["truncated"] and report.max_length < firsts[-1] + width:
        label = f"truncated to {report.max_length:,} ({found['truncated'] / found['rows']:.1%})"
        axes.axvline(report.max_length + 1, color=LIMIT, linestyle=":", label=label)
    beyond = f"; {firsts[-1]:,} or more in the last bar" if bins[-1].last is None else ""
    axes.set_xlabel(f"tokens, in steps of {width:,}{beyond}")
    axes.set_ylabel(report.rows_are)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_title(f"Length of {report.how_many}", pad=26)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=3)
    axes.grid(axis="y")


def _shares(axes: Axes, report: Report) -> None:
    places = range(len(report.ways))
    padding = [cost.padding for cost in report.ways.values()]
    tokens = [1 - share for share in padding]
    axes.barh(places, tokens, height=0.62, color=BAR, label="tokens of the data")
    axes.barh(places, padding, left=tokens, height=0.62, color=PALE, label="padding")
    for place, cost in enumerate(report.ways.values()):
        factor = f"{times(cost.factor)}\N{MULTIPLICATION SIGN} the tokens"
        axes.text(1.1, place, f"{cost.padding:.1%}", va="center", ha="right", weight="bold")
        axes.text(1.34, place, factor, va="center", ha="right")
    axes.set_yticks(places, list(report.titled()))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("of the tokens computed", x=0.5 / 1.35)
    rounding = "" if report.pad_to_multiple_of is None else f", in multiples of {report.pad_to_multiple_of}"
    axes.set_title(f"Padding in one pass, batches of {report.batch_size}{rounding}", pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=2)
    axes.spines["bottom"].set_visible(False)
