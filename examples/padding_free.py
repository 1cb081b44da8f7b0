"""Fine-tune a small causal language model without padding, and compare every loss with the padded run.

`quadrat.DataCollatorWithFlattening` joins the rows of a batch into one row. Its `position_ids` start at 0 in each
row. With them, and without an attention mask and a cache, a transformers model makes a mask in which a token sees
only its own row. This works for "sdpa" and "eager", also on a CPU. (Such a mask has as many elements as the square of
the number of tokens. FlashAttention needs no mask: give the collator `return_flash_attn_kwargs=True`, and it makes
`cu_seq_lens_q` and so on.) `quadrat.check_packing` says before training what a model needs.

The script trains three models from the same weights on the same batches: padded, flattened, and flattened without
`position_ids`. In the third a token sees all rows before its own. The padded and the flattened model predict the same
tokens from the same tokens: the first token of a row is never predicted, and its label in a flattened batch is -100.
So their losses are equal at each step, up to the rounding of float32. If they differ by more than the tolerance, the
exit status is 1. Without `position_ids` they differ. It takes 15 seconds on two cores.

    python examples/padding_free.py
    python examples/padding_free.py --steps 4 --batch-size 4 --per-package 20
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from corpus import docstrings, train_tokenizer
from rich import box
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, set_seed

import quadrat

MAX_TOKENS = 512
VOCABULARY = 2000
LEARNING_RATE = 1e-3
TOLERANCE = 1e-4  # for a loss; rounding changes it by a few millionths

Example = dict[str, list[int]]


def small_llama(tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    set_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
            use_cache=False,  # with a cache, the model does not read boundaries from position_ids
            attn_implementation="sdpa",
        )
    )


class Run:
    """The training of one model and the results of its steps."""

    def __init__(self, collate: Callable[[list[Example]], Any], model: LlamaForCausalLM) -> None:
        self.collate = collate
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        self.tokens: list[int] = []  # of a batch, padding included
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def step(self, features: list[Example]) -> None:
        start = time.perf_counter()
        batch = self.collate(features)
        loss = self.model(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - start)
        self.tokens.append(batch["input_ids"].numel())
        self.losses.append(loss.item())


def largest_difference(run: Run, other: Run) -> float:
    return max(abs(left - right) for left, right in zip(run.losses, other.losses, strict=True))


def table(padded: Run, flat: Run, unbounded: Run) -> Table:
    result = Table(box=box.SIMPLE)
    for heading in (
        "step",
        "tokens,\npadded",
        "tokens,\nflattened",
        "loss,\npadded",
        "loss,\nflattened",
        "difference",
        "loss without\nboundaries",
    ):
        result.add_column(heading, justify="right")
    for step, (tokens, fewer, loss, same, other) in enumerate(
        zip(padded.tokens, flat.tokens, padded.losses, flat.losses, unbounded.losses, strict=True), start=1
    ):
        result.add_row(
            str(step),
            f"{tokens:,}",
            f"{fewer:,}",
            f"{loss:.6f}",
            f"{same:.6f}",
            f"{abs(loss - same):.1e}",
            f"{other:.6f}",
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a causal language model with and without padding.")
    parser.add_argument("--steps", type=int, default=15, help="training steps of each model (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=8, help="texts of a batch (default: %(default)s)")
    parser.add_argument("--per-package", type=int, default=100, help="texts of a package (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the order (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # enough for a small model

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY, max_length=MAX_TOKENS)
    rows = tokenizer(texts, truncation=True)["input_ids"]
    order = random.Random(options.seed)
    batches = [[{"input_ids": row} for row in order.sample(rows, options.batch_size)] for _ in range(options.steps)]

    collators = (
        quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False),
        quadrat.DataCollatorWithFlattening(),
        quadrat.DataCollatorWithFlattening(return_position_ids=False),
    )
    runs = [Run(collator, small_llama(tokenizer, options.seed)) for collator in collators]
    quadrat.check_packing(runs[1].model, collators[1], run=True).raise_if_missing()
    for features in batches:
        for run in runs:
            run.step(features)
    padded, flat, unbounded = runs

    console = Console(highlight=False)
    console.print(table(padded, flat, unbounded))
    saved = 1 - sum(flat.tokens) / sum(padded.tokens)
    times = [f"{statistics.median(run.seconds) * 1000:.0f} ms" for run in runs]
    console.print(f"Without padding, a batch has {saved:.0%} fewer tokens.")
    console.print(f"Time of a step, collation included: {times[0]} padded, {times[1]} flattened (medians).")
    console.print(f"Without boundaries, the loss differs by up to {largest_difference(padded, unbounded):.1e}.")
    difference = largest_difference(padded, flat)
    if difference > TOLERANCE:
        print(f"Padded and flattened losses differ by up to {difference:.1e}: too much.", file=sys.stderr)
        return 1
    console.print(f"Equal losses at all {options.steps} steps: they differ by at most {difference:.1e}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
