"""The results of training the same model in three ways: what differs, a table, a sentence and a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

SMOOTHED = 3  # parts of an epoch; a loss in the picture is the mean of one, as some batches have longer texts
WAYS = ("transformers", "quadrat, padding removed", "quadrat, token budget")
CLOSE = 1e-5  # relative: what rounding may change of a loss
WALL, PROCESSOR = 0, 1  # the clocks, as `in_turn.Turn.seconds` gives them
BUSY = 1.25  # times by which the gains by both clocks differ where another program used the machine

__all__ = ["CLOSE", "PROCESSOR", "WAYS", "Outcome", "differences", "draw", "gain", "table", "were_disturbed"]


@dataclass(frozen=True)
class Outcome:
    """The results of one training run, not rounded. Times are in seconds of both clocks."""

    losses: list[float]
    rows: list[int]  # of each step's batch
    moments: np.ndarray  # of each step's end, from the start: an array of (steps, 2)
    eval_loss: float
    accuracy: float
    collation: np.ndarray  # in the collator, for each training batch: an array of (batches, 2)
    computed: int  # tokens, padding included
    tokens: int
    epochs: int
    clock: int = WALL  # the clock by which times are told

    def by(self, clock: int) -> Outcome:
        return replace(self, clock=clock)

    @property
    def epoch(self) -> float:
        """Seconds of training for an epoch."""
        return float(self.moments[-1, self.clock]) / self.epochs

    @property
    def collated(self) -> float:
        """Seconds in the collator for an epoch."""
        return float(self.collation[:, self.clock].sum()) / self.epochs

    @property
    def milliseconds(self) -> float:
        """Median time in the collator for a batch."""
        return statistics.median(self.collation[:, self.clock].tolist()) * 1000

    @property
    def padding(self) -> float:
        """The share of padding in the tokens computed."""
        return 1 - self.tokens / self.computed


def differences(reference: Outcome, other: Outcome, close: float = CLOSE) -> list[str]:
    """The differences between two runs that are larger than rounding, relative."""
    deviations = []
    for step, (left, right) in enumerate(zip_longest(reference.losses, other.losses, fillvalue=math.nan), start=1):
        if not math.isclose(left, right, rel_tol=close):
            deviations = [f"the loss at step {step} and perhaps later: {left!r} against {right!r}"]
            break
    if not math.isclose(reference.eval_loss, other.eval_loss, rel_tol=close):
        deviations.append(f"the loss on held-out texts: {reference.eval_loss!r} against {other.eval_loss!r}")
    return deviations


def were_disturbed(reference: Outcome, other: Outcome) -> bool:
    """True if the gain in time and in CPU time differ by a quarter: another program used the machine."""
    wall, processor = (reference.by(clock).epoch / other.by(clock).epoch for clock in (WALL, PROCESSOR))
    return max(wall, processor) > BUSY * min(wall, processor)


def table(outcomes: dict[str, Outcome], close: float = CLOSE) -> Table:
    """The runs side by side, within 80 columns."""
    reference, same, budget = (outcomes[way] for way in WAYS)
    pairs = zip(reference.losses, same.losses, strict=False)
    equal = sum(math.isclose(left, right, rel_tol=close) for left, right in pairs)
    lines: list[tuple[str, Callable[[Outcome], str]]] = [
        ("training steps", lambda run: f"{len(run.losses)}"),
        ("tokens computed", lambda run: f"{run.computed:,}"),
        ("of these, padding", lambda run: f"{run.padding:.1%}"),
        ("collation, median of a batch", lambda run: f"{run.milliseconds:.3f} ms"),
        ("seconds for an epoch", lambda run: f"{run.by(WALL).epoch:.1f}"),
        ("CPU seconds for an epoch", lambda run: f"{run.by(PROCESSOR).epoch:.1f}"),
        ("times as fast", lambda run: f"{reference.epoch / run.epoch:.2f}"),
        ("loss on held-out texts", lambda run: f"{run.eval_loss:.4f}"),
        ("accuracy on held-out texts", lambda run: f"{run.accuracy:.1%}"),
    ]
    result = Table(box=box.SIMPLE)
    for heading in ("", "transformers", "quadrat,\npadding removed", "quadrat,\ntoken budget"):
        result.add_column(heading, justify="right" if heading else "left")
    for name, value in lines:
        result.add_row(name, *map(value, (reference, same, budget)))
    result.add_row("steps with the same loss", "", f"{equal} of {len(reference.losses)}")
    return result


def gain(reference: Outcome, other: Outcome, batches: str) -> str:
    """How much shorter an epoch with these batches is, and what there is less of: numbers alone, no reasons."""
    seconds = "s" if reference.clock == WALL else "s of CPU time"
    times, fewer = reference.epoch / other.epoch, 1 - other.computed / reference.computed
    return (
        f"An epoch takes {other.epoch:.1f} {seconds} instead of {reference.epoch:.1f} {seconds} with {batches}: "
        f"{f'{times:.1f} times shorter' if times >= 1.05 else 'not shorter'}. The model computes "
        f"{f'{fewer:.0%} fewer' if fewer >= 0 else f'{-fewer:.0%} more'} tokens ({reference.padding:.0%} of them were "
        f"padding, now {other.padding:.0%}), and collation takes {other.collated:.2f} s instead of "
        f"{reference.collated:.2f} s."
    )


def draw(outcomes: dict[str, Outcome], path: Path) -> None:
    """The loss of each run by the seconds of training, as a picture."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for way, colour, style in zip(WAYS, ("tab:gray", "tab:blue", "tab:orange"), ("-", "-", ":"), strict=True):
        run = outcomes[way]
        steps = np.ones(max(len(run.losses) // run.epochs // SMOOTHED, 1))
        sums, rows = (np.convolve(of, steps, "valid") for of in (np.multiply(run.losses, run.rows), run.rows))
        mean, moments = sums / rows, run.moments[len(steps) - 1 :, run.clock]
        axes.plot(moments, mean, style, color=colour, label=f"{way}: {run.epoch:.1f} s an epoch")
        axes.plot(moments[-1], mean[-1], "o", color=colour)
    axes.set_xlabel("seconds of training" if run.clock == WALL else "seconds of training, CPU time")
    axes.set_ylabel("training loss, mean over the texts of a third of an epoch")
    axes.set_xlim(left=0)
    axes.set_title("The same model, the same texts, the same number of epochs")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
