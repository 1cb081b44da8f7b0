"""Train a small encoder three ways on the same documents: random batches, a token budget, and packs without padding.

The task is masked language modelling on the docstrings of installed packages, whose lengths differ widely. Only the
choice of the documents that go together differs: all three ways begin with the same weights, see each document once
with the same masks (`rng="philox"`), and have about the same number of tokens in a step.

- random: batches of 32 documents in random order, padded to the longest document of the batch
- token budget: `quadrat.TokenBudgetBatchSampler` puts documents of about the same length together, padded too
- packed: `quadrat.PackedDataset` fills packs with documents of any length, joined to one row without padding

The three runs are interleaved step by step: the run that has seen the fewest tokens makes the next step. So a busy
machine slows all of them alike. The rates count real tokens and documents, not padding, and include the time to make
batches.

Attention in a pack is computed per document, by one call of `scaled_dot_product_attention` for each. It costs the
squares of the documents' lengths, not the square of the pack. (On a GPU, FlashAttention does this in one call, from the
same `cu_seq_lens_q`.) The script takes about a minute on two cores.

    python examples/token_budget.py
    python examples/token_budget.py --max-length 512 --per-package 300
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait for each other leave the core to others

import numpy as np
import torch
from corpus import docstrings, train_tokenizer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import quadrat

VOCABULARY = 4000
HIDDEN, HEADS, LAYERS = 64, 2, 2
LEARNING_RATE = 2e-3
PARTS = 6  # of the tokens, with a loss for each

Batch = dict[str, Any]


class Layer(nn.Module):
    """Attention and a feed-forward network, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.wide = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None, lengths: list[int] | None) -> torch.Tensor:
        rows, length, _ = hidden.shape
        qkv = self.qkv(self.norm(hidden)).view(rows, length, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        if lengths is None:
            seen = functional.scaled_dot_product_attention(*qkv, attn_mask=mask)
        else:  # one row of many documents
            documents = zip(*(part.split(lengths, dim=2) for part in qkv), strict=True)
            seen = torch.cat([functional.scaled_dot_product_attention(*document) for document in documents], dim=2)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(rows, length, HIDDEN))
        return hidden + self.wide(self.wide_norm(hidden))


class Encoder(nn.Module):
    """A transformer that predicts masked tokens; it takes padded batches and padding-free ones."""

    def __init__(self, vocabulary: int, max_length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, HIDDEN), nn.Embedding(max_length, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.predict = nn.Linear(HIDDEN, vocabulary)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The losses of all masked tokens, `[masked]`."""
        ids, labels = batch["input_ids"], batch["labels"]
        if "cu_seq_lens_q" in batch:
            positions, mask, lengths = batch["position_ids"], None, batch["cu_seq_lens_q"].diff().tolist()
        else:
            positions, mask, lengths = torch.arange(ids.shape[1]), batch["attention_mask"].bool()[:, None, None], None
        hidden = self.tokens(ids) + self.positions(positions)
        for layer in self.layers:
            hidden = layer(hidden, mask, lengths)
        masked = labels != -100
        return functional.cross_entropy(self.predict(self.norm(hidden[masked])), labels[masked], reduction="none")


class Way:
    """The training of one model, and what has come of it so far."""

    def __init__(self, name: str, loader: DataLoader[Any], model: Encoder, total: int) -> None:
        self.name, self.model, self.total = name, model.train(), total
        self.batches = iter(loader)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        self.steps = self.documents = self.tokens = 0
        self.computed = self.pairs = 0  # of tokens, padding included
        self.seconds = self.loading = 0.0
        self.losses: list[list[float]] = [[] for _ in range(PARTS)]  # of masked tokens

    def step(self) -> None:
        start = time.perf_counter()
        batch = next(self.batches)
        self.loading += time.perf_counter() - start
        losses = self.model(batch)
        losses.mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds += time.perf_counter() - start

        self.losses[self.tokens * PARTS // self.total] += losses.tolist()
        rows, width = batch["input_ids"].shape
        lengths = batch["cu_seq_lens_q"].diff() if "cu_seq_lens_q" in batch else batch["attention_mask"].sum(1)
        self.steps += 1
        self.documents += len(lengths)
        self.tokens += int(lengths.sum())
        self.computed += rows * width
        self.pairs += int((lengths**2).sum()) if "cu_seq_lens_q" in batch else rows * width**2


def speeds(ways: list[Way]) -> Table:
    """What each way computed, and how fast."""
    result = Table(box=box.SIMPLE, padding=0)
    result.add_column("\n\nway")
    for heading in (
        "\n\nsteps",
        "tokens\ncomputed,\nper token",
        "attention,\npairs\nper pair",
        "\nmaking\nbatches",
        "\ntokens\nper second",
        "\ndocuments\nper second",
        "\ntimes\nas fast",
    ):
        result.add_column(heading, justify="right")
    slowest, flat = ways[0], ways[-1]
    for way in ways:
        result.add_row(
            way.name,
            str(way.steps),
            f"{way.computed / way.tokens:.2f}",
            f"{way.pairs / flat.pairs:.2f}",
            f"{way.loading / way.seconds:.1%}",
            f"{way.tokens / way.seconds:,.0f}",
            f"{way.documents / way.seconds:,.1f}",
            f"{slowest.seconds / way.seconds:.2f}",
        )
    return result


def losses(ways: list[Way], total: int) -> Table:
    """The mean loss of masked tokens, by tokens seen."""
    result = Table(box=box.SIMPLE, padding=0)
    result.add_column("tokens seen", justify="right")
    for way in ways:
        result.add_column(way.name, justify="right")
    for part in range(PARTS):
        columns = [way.losses[part] for way in ways]
        result.add_row(
            f"{total * part // PARTS:,} - {total * (part + 1) // PARTS:,}",
            *(f"{sum(column) / len(column):.3f}" if column else "" for column in columns),
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Train an encoder on random batches, by a token budget and on packs.")
    parser.add_argument("--per-package", type=int, default=100, help="texts of a package (default: %(default)s)")
    parser.add_argument("--max-length", type=int, default=1024, help="tokens of a text at most (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="texts of a random batch (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, order and masks (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console(highlight=False)

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY, max_length=options.max_length)
    rows = [{"input_ids": row} for row in tokenizer(texts, truncation=True)["input_ids"]]
    random.Random(options.seed).shuffle(rows)

    lengths = quadrat.lengths(rows)
    total = int(lengths.sum())
    max_tokens = max(options.batch_size * total // len(rows), options.max_length)
    console.print(
        f"{len(rows):,} documents, {total:,} tokens; lengths: mean {lengths.mean():.0f}, "
        f"median {np.median(lengths):g}, longest {lengths.max()} "
        f"({(lengths == options.max_length).mean():.0%} at the limit of {options.max_length})."
    )
    packs = quadrat.PackedDataset(rows, max_tokens, seed=options.seed)
    console.print(
        f"Budget of a batch and length of a pack: {max_tokens:,} tokens, as {options.batch_size} documents have on "
        f"average. {len(packs)} packs, {packs.fill:.1%} full (no packing has fewer than {-(-total // max_tokens)})."
    )

    padded = quadrat.DataCollatorForLanguageModeling(tokenizer, rng="philox", seed=options.seed)
    flat = quadrat.DataCollatorForLanguageModeling(
        tokenizer, rng="philox", seed=options.seed, padding_free=quadrat.Flattening(kwargs_for="transformers")
    )
    sampler = quadrat.TokenBudgetBatchSampler(lengths, max_tokens, seed=options.seed)
    loaders = {
        "random": DataLoader(rows, batch_size=options.batch_size, collate_fn=padded),  # the rows are shuffled
        "token budget": DataLoader(rows, batch_sampler=sampler, collate_fn=padded),
        "packed": DataLoader(packs, batch_size=1, collate_fn=flat),
    }
    ways = []
    for name, loader in loaders.items():
        torch.manual_seed(options.seed)
        ways.append(Way(name, loader, Encoder(len(tokenizer), options.max_length), total))
    while (behind := min(ways, key=lambda way: way.tokens)).tokens < total:
        behind.step()

    masked = {sum(map(len, way.losses)) for way in ways}
    if {(way.tokens, way.documents) for way in ways} != {(total, len(rows))} or len(masked) != 1:
        print("The three ways did not see the same documents and masks.", file=sys.stderr)
        return 1
    console.print(f"Each way has seen the same {total:,} tokens, {masked.pop():,} of them masked.")
    console.print(f"Padded batches: attention with a mask. Packs: attention per document. Threads: {options.threads}.")
    console.print(speeds(ways))
    console.print("Mean loss of the masked tokens:")
    console.print(losses(ways, total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
