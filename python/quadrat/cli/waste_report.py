"""`python -m quadrat waste`: how long rows are, what padding costs in each way of batching, and what to do."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict

import numpy as np

from quadrat.batching.token_budget import usual_sampler
from quadrat.cli import waste
from quadrat.cli.command import CommandError, console, harmless, require, say, table
from quadrat.cli.corpus import load_tokenizer, longest_sane, open_corpus, packages_for

_BAR = 40  # columns of the longest bar
# What JSON has of a report.
_SHOWN = (
    *("data", "counted_by", "batch_size", "max_length", "max_tokens", "pad_to_multiple_of", "stored", "lengths"),
    *("histogram", "ways", "packing", "advice", "code"),
)


def run(options: Namespace) -> int:
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
        ways = [
            {"name": name, **asdict(cost), "padding": cost.padding, "factor": cost.factor}
            for name, cost in found.ways.items()
        ]
        shown = {name: getattr(found, name) for name in _SHOWN} | {"ways": ways}
        sys.stdout.write(json.dumps(shown, indent=2, default=asdict) + "\n")
    else:
        show(found)
    if options.png is not None:
        draw(found, options.png)
        if not options.json:
            say(console(), f"{options.png} written.")
    return 0


def examine(options: Namespace) -> waste.Report:
    """Read the data, count tokens, and work out what each way of batching costs."""
    corpus = open_corpus(options)
    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    lengths = corpus.lengths(tokenizer)
    stored = waste.stored_padding(lengths, corpus.lengths(None, stored=True) if corpus.has_tokens else lengths)
    counted_by = waste.WORDS
    if corpus.has_tokens:
        counted_by = f"the lists in column {corpus.column!r}{', without padding' * bool(stored)}"
    elif tokenizer is not None:
        counted_by = f"the tokenizer {options.tokenizer}"
    max_length = options.max_length or longest_sane(tokenizer) or max(1, stored.get("longest", int(lengths.max())))
    multiple_of = options.pad_to_multiple_of or 1
    truncated = np.minimum(lengths, max_length)
    size = options.batch_size
    max_tokens = options.max_tokens or usual_sampler(truncated, size, multiple_of=multiple_of).max_tokens
    if max_tokens < multiple_of:
        raise CommandError(
            f"--max-tokens {max_tokens} is less than --pad-to-multiple-of {multiple_of}: no batch fits the budget"
        )
    sizes = {"batch_size": size, "max_length": max_length, "max_tokens": max_tokens}
    rounding = {"pad_to_multiple_of": options.pad_to_multiple_of}
    ways = waste.every_way(truncated, **sizes, multiple_of=multiple_of, seed=options.seed)
    code = waste.code(
        ways, batch_size=size, max_tokens=max_tokens, **rounding, longest=int(truncated.max()), stored=bool(stored)
    )
    kept = "as many as keep the number of batches (set it with --max-tokens)"
    return waste.Report(
        data=corpus.name,
        rows_are="rows" if corpus.has_tokens else "texts",
        counted_by=counted_by,
        **sizes,
        **rounding,
        budget_is="as given" if options.max_tokens else kept,
        lengths=waste.summarise(lengths, max_length),
        histogram=waste.histogram(lengths),
        ways=ways,
        stored=stored,
        advice=waste.advise(ways, tokenizer, stored),
        code={purpose: waste.with_units(lines, counted_by) for purpose, lines in code.items()},
    )


def show(report: waste.Report) -> None:
    """Print the report as tables."""
    from rich.bar import Bar as Block

    out = console()
    found = report.lengths
    say(out, f"{report.data}: {report.how_many}, {found['tokens']:,} tokens, counted by {report.counted_by}.")
    highest = max(one.rows for one in report.histogram)
    bars = ((str(one), f"{one.rows:,}", Block(highest, 0, one.rows, width=_BAR)) for one in report.histogram)
    out.print(table(("tokens", f" {report.rows_are} ", ""), bars))
    cut = "No row is truncated."
    if found["truncated"]:
        cut = (
            f"{found['truncated']:,} of them ({found['truncated'] / found['rows']:.1%}) are truncated to "
            f"{report.max_length:,}, which leaves {found['kept']:,} tokens."
        )
    middle = "Mean {mean:.1f}, median {median:g}, 95% up to {p95:,}, longest {longest:,}.".format_map(found)
    say(out, f"{middle} {cut}")
    say(out)
    multiple = report.pad_to_multiple_of
    rounding = "" if multiple is None else f", padded to multiples of {multiple}"
    say(out, f"One epoch in batches of {report.batch_size}{rounding}:")
    headings = ("batches", "largest\nbatch", "tokens with\npadding", "padding", "times\nthe data", "attention\nwork")
    scores = report.ways[waste.FLATTENED].scores
    cells = (
        (
            way,
            f"{cost.batches:,}",
            f"{cost.largest_batch:,}",
            f"{cost.computed:,}",
            f"{cost.padding:.1%}",
            waste.times(cost.factor),
            waste.times(cost.scores / scores) if scores else "",
        )
        for way, cost in report.titled().items()
    )
    out.print(table(("batches are", *headings), cells))
    for note in notes(report):
        say(out, note)
    say(out)
    for number, sentence in enumerate(report.advice):
        say(out, sentence, style="" if number else "bold")
    shown = dict(report.code)
    if waste.is_worth_removing(report.ways) and not report.stored:
        shown["Without a change to the script"] = ["quadrat run --remove-padding script.py"]
    for purpose, lines in shown.items():
        say(out)
        say(out, f"{purpose}:")
        for line in lines:
            out.print(harmless(f"    {line}"), soft_wrap=True)
    say(out)
    cut = f", truncated to {report.max_length:,}" if found["truncated"] else ""
    say(
        out,
        f'The code assumes that your `dataset` has tokens in the column "input_ids"{cut}, and that you have a '
        "`tokenizer` and a `model`. You can use any other collator of quadrat instead of this one.",
    )


def notes(report: waste.Report) -> list[str]:
    """Explanations of the table of costs."""
    packing, ways = report.packing, report.ways
    dynamic, budget = ways[waste.DYNAMIC].shapes, ways[waste.BUDGET].shapes
    return [
        f"Dynamic: shuffled rows, padded to the longest of each batch. Token budget: {report.budget_is}.",
        f"Packed: rows joined to packs of {report.max_length:,} tokens, {packing['fill']:.2%} full. "
        f"{packing['packs']:,} packs; any packing needs at least {packing['fewest']:,}.",
        "Attention work: pairs of tokens compared, relative to attention that gets the row boundaries.",
        f"Shapes: dynamic batches have {dynamic:,}, those of the token budget {budget:,}.",
    ]
