"""The whole loop: dataset, DataLoader and training step, in samples per second and CPU seconds per epoch.

A small BERT learns the package that a docstring comes from. The lengths of the documents are mixed:

- transformers: its collator on a plain `datasets.Dataset`, random batches of 32
- quadrat: its collator on the same dataset, with `patch_datasets`; the losses are checked to be the same
- grouped: the same, with `LengthGroupedSampler`
- budget: the same, with `TokenBudgetBatchSampler`; a batch computes as many tokens as a random one does on average

and once more without a model, which shows what the loader alone gives. Each epoch runs in a process of its own, whose
CPU time counts the workers'. The ways are timed alternately; results are medians over the rounds.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from rich import box
from rich.progress import track
from rich.table import Table
from torch.utils.data import DataLoader

import quadrat
from cases import MAX_LENGTH, corpus, encode, token_ids, tokenizer
from measure import machine, rounded, terminal
from report import RESULTS, times_as

ROWS = 32
WORKERS = (0, 2, 4)
SHORTEST = 8

Loader = DataLoader[Any]


def documents(count: int) -> datasets.Dataset:
    """Tokenised docstrings in random order, as a memory-mapped dataset would hold them."""
    long_enough = [index for index, ids in enumerate(token_ids()) if len(ids) >= SHORTEST]
    chosen = np.random.default_rng(0).choice(long_enough, size=count, replace=count > len(long_enough))
    rows = [encode(int(index)) for index in chosen]
    types = {name: datasets.Sequence(datasets.Value("int32" if name == "input_ids" else "int8")) for name in rows[0]}
    tokenised = datasets.Dataset.from_list(rows, features=datasets.Features(types))
    return tokenised.add_column("label", [corpus().labels[index] for index in chosen])


def random_batches(rows: datasets.Dataset, collator: Any, workers: int) -> Loader:
    shuffle = torch.Generator().manual_seed(0)
    return DataLoader(rows, ROWS, shuffle=True, generator=shuffle, collate_fn=collator, num_workers=workers)  # type: ignore[arg-type]


def grouped(rows: datasets.Dataset, collator: Any, workers: int) -> Loader:
    order = quadrat.LengthGroupedSampler(
        ROWS, lengths=quadrat.lengths(rows).tolist(), generator=torch.Generator().manual_seed(0)
    )
    return DataLoader(rows, ROWS, sampler=order, collate_fn=collator, num_workers=workers)  # type: ignore[arg-type]


def budget(rows: datasets.Dataset, collator: Any, workers: int) -> Loader:
    lengths = quadrat.lengths(rows)
    drawn = np.random.default_rng(0).permutation(lengths)
    most = max(ROWS * int(np.mean([drawn[at : at + ROWS].max() for at in range(0, len(drawn), ROWS)])), MAX_LENGTH)
    batches = quadrat.TokenBudgetBatchSampler(lengths, most)
    return DataLoader(rows, batch_sampler=batches, collate_fn=collator, num_workers=workers)  # type: ignore[arg-type]


# Whose collator, and which rows go together.
WAYS: dict[str, tuple[Any, Callable[[datasets.Dataset, Any, int], Loader]]] = {
    "transformers": (transformers, random_batches),
    "quadrat": (quadrat, random_batches),
    "grouped": (quadrat, grouped),
    "budget": (quadrat, budget),
}


def model() -> torch.nn.Module:
    """A BERT of one layer, the same weights each time."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer()),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=len(corpus().label_names),
    )
    return transformers.BertForSequenceClassification(config)


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def epoch(way: str, workers: int, rows: datasets.Dataset, *, train: bool) -> dict[str, Any]:
    """One epoch in this process: time, CPU time, the tokens computed, and the loss of each step."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's, of more workers than cores
    package, loader_of = WAYS[way]
    if package is quadrat:
        quadrat.patch_datasets()
    loader = loader_of(rows, package.DataCollatorWithPadding(tokenizer()), workers)
    network = model() if train else None
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1) if network is not None else None
    torch.manual_seed(1)
    losses, computed, began, used = [], 0, time.perf_counter(), cpu_seconds()
    for batch in loader:
        computed += batch["input_ids"].numel()
        if network is not None and optimizer is not None:
            loss = network(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "cpu": cpu_seconds() - used, "computed": computed, "losses": losses}


def in_a_process(*arguments: Any, **options: Any) -> dict[str, Any]:
    """What `epoch` returns, from a process that ends after it."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            send.send(epoch(*arguments, **options))
        finally:
            os._exit(0)
    send.close()
    try:
        found: dict[str, Any] = receive.recv()
    finally:
        os.waitpid(child, 0)
    return found


def measure(rows: datasets.Dataset, workers: int, rounds: int, *, train: bool) -> list[dict[str, Any]]:
    """The medians of all ways; the first two have the same losses."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, found in runs.items():
            found.append(in_a_process(way, workers, rows, train=train))
    if runs["transformers"][0]["losses"] != runs["quadrat"][0]["losses"]:
        raise AssertionError("the losses of transformers' collator and of quadrat's differ")
    tokens = int(quadrat.lengths(rows).sum())
    results = []
    for way, found in runs.items():
        ratios = [one["seconds"] / own["seconds"] for one, own in zip(runs["transformers"], found, strict=True)]
        results.append(
            {
                "way": way,
                "workers": workers,
                "model": train,
                "samples": len(rows),
                "samples_per_second": len(rows) / statistics.median(run["seconds"] for run in found),
                "cpu_seconds": statistics.median(run["cpu"] for run in found),
                "computed_per_token": found[0]["computed"] / tokens,
                "ratio": statistics.median(ratios),
                "ratio_range": [min(ratios), max(ratios)],
            }
        )
    return results


def table(results: list[dict[str, Any]]) -> Table:
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("way", no_wrap=True)
    for heading in ("model", "workers", "samples/s", "CPU s/epoch", "computed/token", "ratio"):
        view.add_column(heading, justify="right")
    for one in results:
        view.add_row(
            one["way"],
            "yes" if one["model"] else "no",
            str(one["workers"]),
            f"{one['samples_per_second']:,.0f}",
            f"{one['cpu_seconds']:.2f}",
            f"{one['computed_per_token']:.2f}",
            times_as(one["ratio"]),
        )
    return view


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=960, help="documents in an epoch (default: 960)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each way (default: 3)")
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS), help="numbers of workers")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: results/)")
    arguments = parser.parse_args()
    console = terminal()
    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    corpus()
    rows = documents(arguments.documents)
    model()(input_ids=torch.ones(1, 4, dtype=torch.int64))  # loads what a first step loads, before the processes fork
    jobs = [(workers, train) for train in (True, False) for workers in arguments.workers]
    results = []
    for workers, train in track(jobs, "Measuring", console=console, transient=True):
        results += measure(rows, workers, arguments.rounds, train=train)
    console.print(table(results))
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), "results": results}
    (arguments.out / "loop.json").write_text(json.dumps(rounded(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
