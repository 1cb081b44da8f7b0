"""`python -m quadrat waste`: how long the rows of a data set are, and what padding costs in each way of batching."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from quadrat.batching.token_budget import usual_max_tokens
from quadrat.cli.advice import advise, code
from quadrat.cli.command import CommandError, console, require, say, table
from quadrat.cli.source import DataOptions, load_tokenizer, longest_sane, open_source, packages_for
from quadrat.cli.waste import (
    DYNAMIC,
    FLATTENED,
    GROUPED,
    PACKED,
    Cost,
    Report,
    every_way,
    histogram,
    summarise,
    times,
)

_BAR = 40  # columns of the longest bar


@dataclass(frozen=True)
class Options(DataOptions):
    """The user's options; None means that the data decides."""

    max_tokens: int | None = None
    pad_to_multiple_of: int | None = None
    png: Path | None = None


def run(options: Options) -> int:
    """Print the report, as tables or as JSON, and draw the picture. Raises CommandError."""
    needed = {"torch": "transformers"} | packages_for(options)
    needed |= {} if options.json else {"rich": "cli"}
    needed |= {} if options.png is None else {"matplotlib": "cli"}
    require("this command", needed)
    if options.png is not None:
        from quadrat.cli.waste_picture import check, draw

        check(options.png)  # before all texts are read
    found = examine(options)
    if options.json:
        sys.stdout.write(as_json(found) + "\n")
    else:
        show(found)
    if options.png is not None:
        draw(found, options.png)
        if not options.json:
            say(console(), f"{options.png} written.")
    return 0


def examine(options: Options) -> Report:
    """Read the data, count tokens, and work out what each way of batching costs."""
    source = open_source(options.data, field=options.field, split=options.split)
    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    lengths = source.lengths(tokenizer)
    if source.has_tokens:
        counted_by = f"the lists in column {source.column!r}"
    elif tokenizer is not None:
        counted_by = f"the tokenizer {options.tokenizer}"
    else:
        counted_by = "words, which are fewer than tokens; give your tokenizer with --tokenizer"
    max_length = options.max_length or longest_sane(tokenizer) or max(1, int(lengths.max()))
    multiple_of = options.pad_to_multiple_of or 1
    truncated = np.minimum(lengths, max_length)
    max_tokens = options.max_tokens or usual_max_tokens(truncated, options.batch_size, multiple_of)
    if max_tokens < multiple_of:
        raise CommandError(
            f"--max-tokens {max_tokens} is less than --pad-to-multiple-of {multiple_of}: no batch fits the budget"
        )
    sizes = {"batch_size": options.batch_size, "max_length": max_length, "max_tokens": max_tokens}
    ways = functools.partial(every_way, truncated, **sizes, seed=options.seed)
    costs = ways(multiple_of=multiple_of)
    unrounded = costs if multiple_of == 1 else ways(multiple_of=1)
    return Report(
        data=source.name,
        rows_are="rows" if source.has_tokens else "texts",
        counted_by=counted_by,
        lengths=lengths,
        **sizes,
        budget_is="as given" if options.max_tokens else "batch size times mean length (set it with --max-tokens)",
        pad_to_multiple_of=options.pad_to_multiple_of,
        summary=summarise(lengths, max_length),
        bins=histogram(lengths),
        costs=costs,
        added_by_rounding={
            cost.name: cost.computed - plain.computed for cost, plain in zip(costs, unrounded, strict=True)
        },
        advice=advise(costs, tokenizer),
        code=code(costs, **sizes, pad_to_multiple_of=options.pad_to_multiple_of, longest=int(truncated.max())),
    )


def as_json(report: Report) -> str:
    """The report as one JSON object."""
    names = ("data", "counted_by", "batch_size", "max_length", "max_tokens", "pad_to_multiple_of")
    found = {name: getattr(report, name) for name in names} | {
        "lengths": asdict(report.summary),
        "histogram": [asdict(one) for one in report.bins],
        "ways": [{**asdict(cost), "padding": cost.padding, "factor": cost.factor} for cost in report.costs],
        "added_by_rounding": report.added_by_rounding,
        "packing": {"packs": report.ways[PACKED].batches, "fewest": report.fewest_packs, "fill": report.fill},
        "advice": report.advice,
        "code": report.code,
    }
    return json.dumps(found, indent=2)


def show(report: Report) -> None:
    """Print the report as tables."""
    from rich import box
    from rich.bar import Bar as Block
    from rich.table import Table

    out = console()
    found = report.summary
    say(out, f"{report.data}: {report.how_many}, {found.tokens:,} tokens, counted by {report.counted_by}.")
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("tokens", justify="right")
    view.add_column(report.rows_are, justify="right")
    view.add_column("")
    highest = max(one.rows for one in report.bins)
    for one in report.bins:
        view.add_row(str(one), f"{one.rows:,}", Block(highest, 0, one.rows, width=_BAR))
    out.print(view)
    say(
        out,
        f"Mean {found.mean:.1f}, median {found.median:g}, 95% up to {found.p95:,}, longest {found.longest:,}. "
        + truncation(report),
    )
    say(out)
    multiple = report.pad_to_multiple_of
    rounding = "" if multiple is None else f", padded to multiples of {multiple}"
    say(out, f"One epoch in batches of {report.batch_size}{rounding}:")
    headings = ("batches", "largest\nbatch", "tokens with\npadding", "padding", "times\nthe data", "attention\nwork")
    scores = report.ways[FLATTENED].scores
    out.print(
        table(
            ("batches are", *headings),
            (
                (
                    report.way(cost),
                    f"{cost.batches:,}",
                    f"{cost.largest_batch:,}",
                    f"{cost.computed:,}",
                    f"{cost.padding:.1%}",
                    times(cost.factor),
                    times(cost.scores / scores) if scores else "",
                )
                for cost in report.costs
            ),
        )
    )
    for note in notes(report):
        say(out, note)
    say(out)
    for number, sentence in enumerate(report.advice):
        say(out, sentence, style="" if number else "bold")
    for purpose, lines in report.code.items():
        say(out)
        say(out, f"{purpose}:")
        for line in lines:
            out.print(f"    {line}", soft_wrap=True)
    say(out)
    say(out, data_of_code(report))


def notes(report: Report) -> list[str]:
    """Explanations of the table of costs."""
    ways, scores = report.ways, report.ways[FLATTENED].scores
    said = [
        f"Dynamic: shuffled rows, padded to the longest of each batch. Token budget: {report.budget_is}.",
        f"Packed: rows joined to packs of {report.max_length:,} tokens, {report.fill:.2%} full. "
        f"{ways[PACKED].batches:,} packs; any packing needs at least {report.fewest_packs:,}.",
        "Attention work: pairs of tokens compared, relative to attention that gets the row boundaries."
        + (
            f" With a mask instead (sdpa), padding-free batches compare {_masked(ways[FLATTENED])} times as many, "
            f"and packs, one in a batch, {_masked(ways[PACKED])} times."
            if scores
            else ""
        ),
    ]
    if report.pad_to_multiple_of is not None:
        added = report.added_by_rounding
        more = {name: added[name] / max(ways[name].computed - added[name], 1) for name in (DYNAMIC, GROUPED)}
        said.append(
            f"Rounding up to multiples of {report.pad_to_multiple_of} adds {more[DYNAMIC]:.1%} to the tokens of "
            f"dynamic padding, {more[GROUPED]:.1%} to those of rows grouped by length."
        )
    return said


def _masked(cost: Cost) -> str:
    """How many times as many pairs a mask compares."""
    return times((cost.masked_scores or 0) / cost.scores)


def data_of_code(report: Report) -> str:
    """What the lines of code assume."""
    cut = f", truncated to {report.max_length:,}" if report.summary.truncated else ""
    return (
        f'The code assumes that your `dataset` has tokens in the column "input_ids"{cut}, and that you have a '
        "`tokenizer` and a `model`. You can use any other collator of quadrat instead of this one."
    )


def truncation(report: Report) -> str:
    """How many rows are cut."""
    found = report.summary
    if not found.truncated:
        return "No row is truncated."
    return (
        f"{found.truncated:,} of them ({found.truncated / found.rows:.1%}) are truncated to {report.max_length:,}, "
        f"which leaves {found.kept:,} tokens."
    )
