"""Train a compiled encoder three ways on the same documents: random batches, a token budget, and a few shapes.

`torch.compile` compiles a graph for each shape of a batch, unless it makes slower ones for sizes that it does not know.
A random batch is as wide as its longest document, and a batch of a token budget has any number of rows too, so nearly
each batch is compiled. With a plan of four shapes there are four graphs, whatever the documents and the epochs.

The task is masked language modelling on the docstrings of installed packages. All ways begin with the same weights, and
see each document once an epoch with the same masks. The evaluation is one graph more: its batches have one shape. The
script takes a minute or two on two cores, most of it in the compiler.

    python examples/shapes.py
    python examples/shapes.py --shapes 8 --epochs 3 --per-package 100
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from typing import Any

import torch
import torch._inductor.config
from corpus import docstrings, train_tokenizer
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import quadrat
from quadrat.batching import FixedShapes, ShapePlan, plan_shapes

VOCABULARY, HIDDEN = 2000, 64


class Encoder(nn.Module):
    """A transformer of one layer that predicts masked tokens."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(max_length, HIDDEN)
        self.layer = nn.TransformerEncoderLayer(HIDDEN, 2, 4 * HIDDEN, dropout=0.0, batch_first=True, norm_first=True)
        self.predict = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of all masked tokens; filled tokens and rows have labels of -100."""
        hidden = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        hidden = self.layer(hidden, src_key_padding_mask=attention_mask == 0)
        return functional.cross_entropy(self.predict(hidden).flatten(0, 1), labels.flatten(), reduction="sum")


class Way:
    """The training of one model, and what came of it."""

    def __init__(self, name: str, batches: DataLoader[Any], options: argparse.Namespace) -> None:
        self.name, self.batches = name, batches
        self.compiled = 0
        torch._dynamo.reset()
        torch.manual_seed(options.seed)
        model = Encoder(options.max_length)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.model = torch.compile(model, backend=self.counting(options.backend), dynamic=False)
        self.computed = self.tokens = 0
        self.losses: list[float] = []  # of each epoch, per masked token
        self.seconds: list[float] = []

    def counting(self, backend: str) -> Any:
        """A compiler that counts the graphs it is given."""
        compiler = torch._dynamo.lookup_backend(backend)

        def compile_graph(graph: Any, inputs: Any) -> Any:
            self.compiled += 1
            return compiler(graph, inputs)

        return compile_graph

    def train(self) -> None:
        """An epoch."""
        start, total, count = time.perf_counter(), 0.0, 0
        for batch in self.batches:
            masked = int((batch["labels"] != -100).sum())
            loss = self.model(**batch)
            (loss / masked).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            total, count = total + loss.item(), count + masked
            self.computed += batch["input_ids"].numel()
            self.tokens += int(batch["attention_mask"].sum())
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(total / count)

    def evaluate(self, batches: DataLoader[Any]) -> float:
        """The loss of a masked token."""
        with torch.no_grad():
            sums = [(self.model(**batch).item(), int((batch["labels"] != -100).sum())) for batch in batches]
        return sum(loss for loss, _ in sums) / sum(count for _, count in sums)


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a compiled encoder on batches of any shape, and of a few.")
    parser.add_argument("--per-package", type=int, default=16, help="texts of a package (default: %(default)s)")
    parser.add_argument("--max-length", type=int, default=1024, help="tokens of a text at most (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--shapes", type=int, default=4, help="shapes of batches (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="epochs (default: %(default)s)")
    parser.add_argument("--backend", default="inductor", help="of torch.compile (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, order and masks (default: %(default)s)")
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 10_000  # otherwise the ninth shape is not compiled any more
    warnings.filterwarnings("ignore", "dynamo_pgo")
    torch._inductor.config.force_disable_caches = True  # otherwise a second run compiles nothing

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY, max_length=options.max_length)
    rows = [{"input_ids": row} for row in tokenizer(texts, truncation=True)["input_ids"]]
    random.Random(options.seed).shuffle(rows)
    rows, held_out = rows[32:], rows[:32]
    plan = plan_shapes(rows, options.max_tokens, options.shapes)
    print(f"{len(rows):,} documents, {plan.tokens:,} tokens; {plan!r}")

    collator = quadrat.DataCollatorForLanguageModeling(tokenizer, rng="philox", seed=options.seed)
    sampler = quadrat.TokenBudgetBatchSampler(rows, options.max_tokens, multiple_of=8)
    planned = quadrat.TokenBudgetBatchSampler(rows, options.max_tokens, shapes=plan)
    size = max(1, round(options.max_tokens * len(rows) / plan.tokens))
    loaders = {
        "random": DataLoader(rows, batch_size=size, shuffle=True, collate_fn=collator),
        "token budget": DataLoader(rows, batch_sampler=sampler, collate_fn=collator),
        f"{options.shapes} shapes": DataLoader(rows, batch_sampler=planned, collate_fn=FixedShapes(collator, plan)),
    }
    one_shape = FixedShapes(collator, ShapePlan(plan.shapes[-1:]))
    evaluation = DataLoader(held_out, batch_size=plan.shapes[-1][0], collate_fn=one_shape)
    print(f"{'way':<14}{'epoch':>6}{'graphs':>8}{'seconds':>9}{'computed/token':>16}{'loss':>8}{'evaluation':>12}")
    Way("the first graph takes longer", DataLoader(held_out[:2], batch_size=2, collate_fn=collator), options).train()
    ways = []
    for name, loader in loaders.items():
        way = Way(name, loader, options)
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            planned.set_epoch(epoch)
            collator.set_epoch(epoch)
            way.train()
            graphs, share = way.compiled, way.computed / way.tokens
            row = f"{name:<14}{epoch:>6}{graphs:>8}{way.seconds[-1]:>9.1f}{share:>16.2f}{way.losses[-1]:>8.3f}"
            print(f"{row}{way.evaluate(evaluation):>12.3f}", flush=True)
        ways.append(way)
    fixed = ways[-1]
    if fixed.compiled > len(plan.shapes) + 1:
        print(f"{fixed.compiled} graphs for {len(plan.shapes)} shapes and the evaluation.", file=sys.stderr)
        return 1
    print(f"{fixed.name}: {fixed.compiled} graphs, one for each shape and one for the evaluation.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
