"""Fine-tune a small BERT twice, with transformers' collator and with quadrat's, and compare every loss.

The model learns which package a docstring comes from. The texts are the docstrings of installed packages (nothing is
downloaded). The script trains a WordPiece tokenizer on them. `transformers.Trainer` trains a model of one layer with
random weights, with the same seed in both runs. The collator is the only difference, so the loss of each step and the
loss and accuracy on held-out texts must be identical. Otherwise the exit status is 1. It takes about a minute on two
cores.

    python examples/classify_packages.py
    python examples/classify_packages.py --text reviews.txt --batch-size 16 --steps 200 --seed 1

`--text` takes your own file: `.txt` with a label, a tab and a text on each line, or `.jsonl` with a "text" and a
"label" on each line.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import Corpus, docstrings, labelled, train_tokenizer
from rich import box
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

import quadrat

MAX_TOKENS = 512
HELD_OUT = 0.1  # of the texts
LEARNING_RATE = 5e-3

# The features of one text: input_ids, token_type_ids and attention_mask as lists, and the label as an integer.
Example = dict[str, Any]
Collate = Callable[[list[Example]], Any]


@dataclass(frozen=True)
class Task:
    """The settings of both runs."""

    tokenizer: PreTrainedTokenizerBase
    train: list[Example]
    held_out: list[Example]
    label_count: int


@dataclass(frozen=True)
class Outcome:
    """The results of one training run, not rounded."""

    losses: list[float]
    eval_loss: float
    accuracy: float
    collation_seconds: list[float]  # of each batch, those of the evaluation included
    seconds: float  # of training and evaluation

    @property
    def milliseconds(self) -> float:
        """Median time in the collator for a batch."""
        return statistics.median(self.collation_seconds) * 1000


class Timed:
    """Calls a collator and records the seconds of each call."""

    def __init__(self, collate: Collate) -> None:
        self.collate = collate
        self.seconds: list[float] = []

    def __call__(self, features: list[Example]) -> Any:
        start = time.perf_counter()
        batch = self.collate(features)
        self.seconds.append(time.perf_counter() - start)
        return batch


class LossKeepingTrainer(Trainer):
    """Keeps the exact loss of each training step. The log history rounds it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.losses: list[float] = []

    def compute_loss(self, model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(model, *args, **kwargs)
        if model.training:
            loss = result[0] if isinstance(result, tuple) else result
            self.losses.append(loss.item())
        return result


class LossOnTheBar(ProgressCallback):
    """Shows the latest loss on the progress bar instead of printing a line for each step."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs is not None and "loss" in logs:
            self.training_bar.set_postfix(loss=f"{float(logs['loss']):.3f}")


def load(text: Path | None) -> Corpus:
    corpus = docstrings() if text is None else labelled(text)
    if len(corpus.label_names) < 2:
        raise ValueError("at least two packages with docstrings are needed; give a file of your own with --text")
    return corpus


def split(corpus: Corpus, seed: int) -> tuple[list[int], list[int]]:
    """Random positions of the training texts and of the held-out texts."""
    positions = list(range(len(corpus.texts)))
    random.Random(seed).shuffle(positions)
    held_out = max(1, round(HELD_OUT * len(positions)))
    return positions[held_out:], positions[:held_out]


def encode(tokenizer: PreTrainedTokenizerBase, corpus: Corpus, positions: list[int]) -> list[Example]:
    """Features of the texts at these positions, truncated but not padded. The collator pads them."""
    encoded = tokenizer([corpus.texts[position] for position in positions], truncation=True)
    return [
        {name: encoded[name][row] for name in tokenizer.model_input_names} | {"label": corpus.labels[position]}
        for row, position in enumerate(positions)
    ]


def small_bert(tokenizer: PreTrainedTokenizerBase, label_count: int) -> BertForSequenceClassification:
    """A BERT small enough to learn the task from random weights in a minute without a GPU."""
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=MAX_TOKENS,
        # With dropout here PyTorch does not use its fused attention, and a step takes several times as long.
        attention_probs_dropout_prob=0.0,
        # Larger than usual: without pretraining, small weights take most of these few steps to grow.
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=label_count,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    chosen = np.asarray(prediction.predictions).argmax(axis=-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}


def run(collator: DataCollatorWithPadding, task: Task, options: argparse.Namespace) -> Outcome:
    """Train from the seed with this collator, then evaluate on the held-out texts."""
    timed = Timed(collator)
    set_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = LossKeepingTrainer(
            model=small_bert(task.tokenizer, task.label_count),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=options.batch_size,
                per_device_eval_batch_size=options.batch_size,
                learning_rate=LEARNING_RATE,
                warmup_steps=options.steps // 10,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=not sys.stderr.isatty(),
                seed=options.seed,
                # On a GPU two runs with the same collator can differ, because some kernels add in any order.
                use_cpu=True,
                dataloader_pin_memory=False,
            ),
            data_collator=timed,
            train_dataset=task.train,
            eval_dataset=task.held_out,
            processing_class=task.tokenizer,
            compute_metrics=accuracy,
        )
        trainer.remove_callback(ProgressCallback)
        trainer.remove_callback(PrinterCallback)
        if not trainer.args.disable_tqdm:
            trainer.add_callback(LossOnTheBar)
        start = time.perf_counter()
        trainer.train()
        metrics = trainer.evaluate()
        seconds = time.perf_counter() - start
    return Outcome(trainer.losses, metrics["eval_loss"], metrics["eval_accuracy"], timed.seconds, seconds)


def differences(reference: Outcome, other: Outcome) -> list[str]:
    """The differences between two runs, compared exactly."""
    found = []
    if len(reference.losses) != len(other.losses):
        found.append(f"{len(reference.losses)} training steps against {len(other.losses)}")
    unequal = [
        (step, left, right)
        for step, (left, right) in enumerate(zip(reference.losses, other.losses, strict=False), start=1)
        if left != right
    ]
    if unequal:
        step, left, right = unequal[0]
        found.append(f"the loss at {len(unequal)} steps, first at step {step}: {left!r} against {right!r}")
    if reference.eval_loss != other.eval_loss:
        found.append(f"the loss on held-out texts: {reference.eval_loss!r} against {other.eval_loss!r}")
    if reference.accuracy != other.accuracy:
        found.append(f"the accuracy on held-out texts: {reference.accuracy!r} against {other.accuracy!r}")
    return found


def table(reference: Outcome, other: Outcome) -> Table:
    """The two runs side by side, within 80 columns."""
    result = Table(title="The same training with either collator", box=box.SIMPLE)
    result.add_column()
    result.add_column("transformers", justify="right")
    result.add_column("quadrat", justify="right")
    identical = sum(left == right for left, right in zip(reference.losses, other.losses, strict=False))
    lines: list[tuple[str, Callable[[Outcome], str]]] = [
        ("training steps", lambda run: str(len(run.losses))),
        ("loss at the first step", lambda run: f"{run.losses[0]:.4f}"),
        ("loss at the last step", lambda run: f"{run.losses[-1]:.4f}"),
        ("steps with the same loss", lambda run: "" if run is reference else f"{identical} of {len(run.losses)}"),
        ("accuracy on held-out texts", lambda run: f"{run.accuracy:.1%}"),
        ("training and evaluation", lambda run: f"{run.seconds:.2f} s"),
        ("collation, all batches", lambda run: f"{sum(run.collation_seconds):.3f} s"),
        ("share of collation", lambda run: f"{sum(run.collation_seconds) / run.seconds:.2%}"),
        ("collation, median of a batch", lambda run: f"{run.milliseconds:.3f} ms"),
        ("collation, times as fast", lambda run: "" if run is reference else f"{speedup(reference, run):.1f}"),
    ]
    for name, value in lines:
        result.add_row(name, value(reference), value(other))
    return result


def speedup(reference: Outcome, other: Outcome) -> float:
    """How many times shorter the median collation of the other run is."""
    return reference.milliseconds / other.milliseconds


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tune a small BERT with either collator and compare the losses.")
    parser.add_argument("--text", type=Path, help="labelled texts, .txt or .jsonl (default: docstrings of packages)")
    parser.add_argument("--batch-size", type=positive, default=32, help="texts per batch (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=160, help="training steps of a run (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the split, weights and order (default: %(default)s)"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # File names and package names are printed as they are, without colours for the numbers in them.
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)

    source = "the docstrings of installed packages" if options.text is None else str(options.text)
    console.print(f"Reading {source} ...", markup=False)
    try:
        corpus = load(options.text)
    except (OSError, ValueError) as error:
        errors.print(f"Error: {error}", markup=False)
        return 2
    train_positions, held_out_positions = split(corpus, options.seed)
    names = ", ".join(corpus.label_names)
    console.print(f"{len(corpus.texts)} texts of {len(corpus.label_names)} classes: {names}", markup=False)

    console.print("Training a WordPiece tokenizer on the texts that are not held out ...")
    tokenizer = train_tokenizer([corpus.texts[position] for position in train_positions], max_length=MAX_TOKENS)
    task = Task(
        tokenizer,
        train=encode(tokenizer, corpus, train_positions),
        held_out=encode(tokenizer, corpus, held_out_positions),
        label_count=len(corpus.label_names),
    )
    median = statistics.median(len(example["input_ids"]) for example in task.train)
    console.print(
        f"{len(task.train)} texts to train on, {len(task.held_out)} held out; median length {median:.0f} tokens, "
        f"at most {MAX_TOKENS}"
    )

    outcomes = []
    for name, collator in (
        ("transformers", DataCollatorWithPadding(tokenizer)),
        ("quadrat", quadrat.DataCollatorWithPadding(tokenizer)),
    ):
        console.print(f"Training and evaluating with {name}.DataCollatorWithPadding ...")
        outcomes.append(run(collator, task, options))
    reference, other = outcomes

    console.print()
    console.print(table(reference, other))
    found = differences(reference, other)
    if found:
        errors.print("The two runs differ, although only the collator changed:", style="bold red")
        for difference in found:
            errors.print(f"- {difference}", markup=False)
        return 1
    ratio = speedup(reference, other)
    compared = f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"
    console.print(f"Identical losses at all {len(reference.losses)} steps; collation was {compared}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
