"""`quadrat waste`: how long the rows of a data set are, what padding costs, and what to do."""

import json
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from quadrat.cli.command import harmless
from quadrat.cli.corpus import limit_of, load_tokenizer, open_corpus
from quadrat.cli.costs import LITTLE, Cost, cost_of
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray

FIXED, DYNAMIC, BUDGET, FLATTENED = "fixed length", "dynamic", "token budget", "padding-free"


def run(options: Namespace) -> int:
    """Print the report, as text or as JSON. Raises CommandError."""
    report = examine(options)
    if options.json:
        ways = [
            {"name": name, **asdict(cost), "padding": cost.padding, "factor": cost.factor}
            for name, cost in report["ways"].items()
        ]
        sys.stdout.write(json.dumps(report | {"ways": ways}, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(report))
    return 0


def examine(options: Namespace) -> dict[str, Any]:
    """Reads the data, counts tokens, and computes what each way of batching costs."""
    corpus = open_corpus(options.data, field=options.field, split=options.split)
    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    lengths, stored = corpus.lengths(tokenizer)
    counted_by = "words, which are fewer than tokens; give your tokenizer with --tokenizer"
    if corpus.has_tokens:
        counted_by = f"the lists in column {corpus.column!r}"
    elif tokenizer is not None:
        counted_by = f"the tokenizer {options.tokenizer}"
    max_length = options.max_length or limit_of(tokenizer) or max(1, int(stored.max()))
    ways, max_tokens = _ways(np.minimum(lengths, max_length), max_length, options.batch_size, options.max_tokens)
    of_stored = 1 - int(lengths.sum()) / max(1, int(stored.sum()))
    report = {
        "data": corpus.name,
        "counted_by": counted_by,
        "batch_size": options.batch_size,
        "max_length": max_length,
        "max_tokens": max_tokens,
        "stored": {"longest": int(stored.max()), "padding": of_stored} if of_stored > LITTLE else {},
        "lengths": {
            "rows": len(lengths),
            "tokens": int(lengths.sum()),
            "mean": float(lengths.mean()),
            "median": float(np.median(lengths)),
            "p95": int(np.percentile(lengths, 95, method="inverted_cdf")),  # 95 % of the rows are not longer
            "longest": int(lengths.max()),
            "truncated": int((lengths > max_length).sum()),
            "kept": ways[FLATTENED].tokens,
        },
        "ways": ways,
    }
    return report | {"advice": [*_advice(report, f", {max_tokens}" if options.max_tokens else "")]}


def _ways(lengths: IntArray, max_length: int, batch_size: int, max_tokens: int | None) -> tuple[dict[str, Cost], int]:
    """The cost of a pass in each way of batching, and the budget: by default, one with as many batches."""
    from quadrat.batching.token_budget import TokenBudgetBatchSampler, usual_sampler  # which import torch

    rows = len(lengths)
    order = np.random.default_rng(0).permutation(rows)
    dynamic = cost_of(lengths, Ragged(order, np.append(np.arange(0, rows, batch_size), rows)))
    sampler = usual_sampler(lengths, batch_size)
    if max_tokens:
        sampler = TokenBudgetBatchSampler(lengths, max_tokens, overlong="alone")
    of_rows = float((lengths.astype(np.float64) ** 2).sum())
    ways = {
        FIXED: replace(dynamic, computed=rows * max_length, scores=float(rows * max_length**2)),
        DYNAMIC: dynamic,
        BUDGET: cost_of(lengths, sampler.batches()),
        FLATTENED: replace(dynamic, computed=dynamic.tokens, scores=of_rows),
    }
    return ways, sampler.max_tokens


def _advice(report: dict[str, Any], budget: str) -> Iterator[str]:
    """Sentences on what to do. budget: the argument of `batch_by_tokens`, if one was chosen."""
    stored, (fixed, dynamic, by_tokens, _) = report["stored"], report["ways"].values()
    if stored:
        yield (
            f"Rows are stored padded to {stored['longest']:,} tokens: {stored['padding']:.1%} of what is stored is "
            "padding, which the numbers here are without. Map without padding."
        )
    if dynamic.padding > LITTLE:
        yield f"Have the model compute no padding: {dynamic.padding:.1%} of the tokens of random batches are padding."
        yield (
            "quadrat.remove_padding(model) does this, and so does quadrat run --remove-padding script.py. Batches, "
            "losses and metrics stay as they are."
        )
        yield (
            f"quadrat.batch_by_tokens(trainer{budget}) leaves {by_tokens.padding:.1%} padding, for any model. Rows of "
            "similar length then go together, which can cost accuracy."
        )
        return
    saved = "no token is padding, so there is nothing to save."
    if dynamic.padding:
        saved = f"only {dynamic.padding:.1%} of the tokens are padding, and nothing can save more than that."
    yield f"Pad to the longest row of each batch: {saved}"
    yield "quadrat.DataCollatorWithPadding(tokenizer) does this."
    if fixed.padding > LITTLE:
        yield f"Padding all rows to one length would make {fixed.factor:.1f} times as many tokens."


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    lengths, ways, max_length = report["lengths"], report["ways"], report["max_length"]
    count = f"{lengths['rows']:,} row{'s' * (lengths['rows'] != 1)}"
    yield _filled(f"{report['data']}: {count}, {lengths['tokens']:,} tokens, counted by {report['counted_by']}.")
    middle = "Mean {mean:.1f}, median {median:g}, 95% up to {p95:,}, longest {longest:,}.".format_map(lengths)
    cut = "No row is truncated."
    if lengths["truncated"]:
        cut = (
            f"{lengths['truncated']:,} of them ({lengths['truncated'] / lengths['rows']:.1%}) are truncated to "
            f"{max_length:,}, which leaves {lengths['kept']:,} tokens."
        )
    yield _filled(f"{middle} {cut}")
    yield f"\nOne epoch in batches of {report['batch_size']:,}:\n"
    limits = {FIXED: f", {max_length:,}", BUDGET: f", {report['max_tokens']:,}"}
    least = ways[FLATTENED].scores
    rows = [
        ("batches are", "batches", "tokens", "padding", "times the data", "attention work"),
        *(
            (
                f"{name}{limits.get(name, '')}",
                f"{cost.batches:,}",
                f"{cost.computed:,}",
                f"{cost.padding:.1%}",
                f"{cost.factor:,.2f}",
                f"{cost.scores / least:,.2f}" if least else "",
            )
            for name, cost in ways.items()
        ),
    ]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, *cells in rows:
        yield "  ".join((name.ljust(first), *(map(str.rjust, cells, others))))
    yield ""
    yield from map(_filled, report["advice"])


def _filled(sentences: str) -> str:
    """Harmless on a terminal, in lines of a width that is easy to read."""
    return textwrap.fill(harmless(sentences), 80, break_long_words=False, break_on_hyphens=False)
