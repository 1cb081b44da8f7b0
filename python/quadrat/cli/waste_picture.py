"""The picture of `python -m quadrat waste`: how long the rows are, and the share of padding in each way of batching."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from quadrat.cli.command import CommandError, harmless, one_line
from quadrat.cli.waste import Report, histogram, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, SOFT, BAR, PALE = "#222222", "#6b6b6b", "#3f74b5", "#c9d7e8"
MEDIAN, P95, LIMIT = "#b45309", "#0f766e", "#b91c1c"
_BINS, _TICKS = 64, 12
_BARS: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.4}
_ABOVE: dict[str, Any] = {"textcoords": "offset points", "va": "bottom", "fontsize": 8.5, "linespacing": 1.25}


def check(path: Path) -> None:
    """Raise CommandError unless a picture can be written to `path`, which is left as it is."""
    with _settings(path):
        if not path.parent.is_dir():
            raise CommandError(f"{path}: there is no folder {str(path.parent)!r}")
        if path.is_dir():
            raise CommandError(f"{path}: a folder; expected the name of a file")
        target = path.resolve()
        exists = target.exists()
        if exists and not (target.is_file() or target.is_char_device()):  # a pipe would wait for its reader
            raise CommandError(f"{path}: not a file")
        figure = Figure()
        # Without pgf, which is a program for TeX: names would be a part of it.
        formats = figure.canvas.get_supported_filetypes().keys() - {"pgf"}
        if _format(path) not in formats:
            expected = ", ".join(f".{one}" for one in sorted(formats))
            raise CommandError(f"{path}: {path.suffix!r} is not a picture format; expected one of {expected}")
        figure.suptitle("What a format needs installed is found by trying.")
        figure.savefig(io.BytesIO(), format=_format(path))
        target.open("ab").close()
        if not exists:
            target.unlink()


def draw(report: Report, path: Path) -> None:
    """Write the picture; the extension of `path` sets the format, PNG without one. Raises CommandError."""
    with _settings(path):
        # Without pyplot there is no window system to look for, and nothing to close.
        figure = Figure(figsize=(9, 6.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        above, below = figure.subplots(2, height_ratios=(1.35, 1))
        _lengths(above, report)
        _shares(below, report)
        title = harmless(Path(report.data).name)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", color=INK, fontsize=13, parse_math=False)
        figure.savefig(path, dpi=160, format=_format(path))  # without a format it adds an ending


def _format(path: Path) -> str:
    return path.suffix[1:].lower() or "png"


@contextmanager
def _settings(path: Path) -> Iterator[None]:
    """The settings to draw with, and CommandError for all that matplotlib raises."""
    with matplotlib.rc_context({"text.usetex": False}), warnings.catch_warnings():  # names are not TeX
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # a box is drawn
        try:
            yield
        except CommandError:
            raise
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        except Exception as error:  # of a format, or of the programs it needs; there are many kinds
            raise CommandError(f"{path}: {one_line(error)}") from error


def _lengths(axes: Axes, report: Report) -> None:
    bins = histogram(report.lengths, at_most=_BINS, percentile=99)
    closed = [one for one in bins if one.last is not None]
    width = bins[1].first - bins[0].first if len(bins) > 1 else 1
    right = closed[-1].first + width
    axes.bar([one.first for one in closed], [one.rows for one in closed], width, **_BARS, color=BAR)
    if len(bins) > len(closed):
        # The bin of all longer rows, a little apart.
        axes.bar(right + width, bins[-1].rows, 2 * width, **_BARS, color=PALE)
        right += 3 * width
        label = f"{bins[-1]}\n{bins[-1].rows:,}"
        axes.annotate(label, (right, bins[-1].rows), xytext=(0, 3), **_ABOVE, ha="right", color=SOFT)
    found = report.summary
    # A row of n tokens lies between n and n + 1.
    axes.axvline(found.median + 0.5, color=MEDIAN, linewidth=1.8, label=f"median {found.median:g}")
    axes.axvline(found.p95 + 0.5, color=P95, linewidth=1.8, linestyle=(0, (5, 2)), label=f"95% up to {found.p95:,}")
    if found.truncated and report.max_length < right:
        label = f"truncated to {report.max_length:,} ({found.truncated / found.rows:.1%})"
        axes.axvline(report.max_length + 1, color=LIMIT, linewidth=1.8, linestyle=(0, (1.5, 1.5)), label=label)
    axes.set_xlim(bins[0].first - width / 2, right + width / 2)
    # Powers of two apart, as the bins and most limits are.
    step = width * max(1, 2 ** math.ceil(math.log2(len(closed) / _TICKS)))
    axes.set_xticks(range(-(-closed[0].first // step) * step, closed[-1].first + width + 1, step))
    axes.set_xlabel(f"tokens, in steps of {width:,}" if width > 1 else "tokens", color=SOFT)
    axes.set_ylabel(report.rows_are, color=SOFT)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_title(f"Length of {report.how_many}", loc="left", color=INK, fontsize=11, pad=26)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=3, frameon=False, fontsize=9)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    _plain(axes, "top", "right", "left")


def _shares(axes: Axes, report: Report) -> None:
    for position, cost in enumerate(report.costs):
        axes.barh(position, 1 - cost.padding, height=0.62, color=BAR, label="" if position else "tokens of the data")
        axes.barh(
            position, cost.padding, left=1 - cost.padding, height=0.62, color=PALE, label="" if position else "padding"
        )
        for x, text, weight, colour in (
            (1.1, f"{cost.padding:.1%}", "bold", INK),
            (1.34, f"{times(cost.factor)}\N{MULTIPLICATION SIGN} the tokens", "normal", SOFT),
        ):
            axes.text(x, position, text, va="center", ha="right", weight=weight, color=colour, fontsize=9.5)
    axes.set_yticks(range(len(report.costs)), [report.way(cost) for cost in report.costs])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("of the tokens computed", color=SOFT, x=0.5 / 1.35)
    rounding = "" if report.pad_to_multiple_of is None else f", in multiples of {report.pad_to_multiple_of}"
    axes.set_title(
        f"Padding in one pass, batches of {report.batch_size}{rounding}", loc="left", color=INK, fontsize=11, pad=24
    )
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=2, frameon=False, fontsize=9)
    _plain(axes, "top", "right", "left", "bottom")
    axes.tick_params(axis="y", labelsize=10, labelcolor=INK)


def _plain(axes: Axes, *without: str) -> None:
    """No frame, no ticks; the grid behind the bars."""
    axes.spines[list(without)].set_visible(False)
    axes.spines["bottom"].set_color("#cccccc")
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=SOFT)
