"""Fine-tune a small BERT three times on the same texts: with transformers, with quadrat, and with fewer padded tokens.

The model learns which package a docstring comes from. The texts are the docstrings of installed packages (nothing is
downloaded). The script trains a WordPiece tokenizer on them. `transformers.Trainer` trains a model of one layer with
random weights, with the same seed each time:

1. with transformers' collator
2. with batches by token budget: one line, `quadrat.batch_by_tokens(trainer)`, puts texts of about the same length
   together, so that the model computes less padding
3. with quadrat's collator and the same batches as transformers'. The loss of each step, and the loss and accuracy on
   held-out texts, must be equal to the last bit. Otherwise the exit status is 1

The first two answer in less than a minute on two cores how many times shorter an epoch is. A picture goes to
build/demo.png.

    python examples/classify_packages.py
    python examples/classify_packages.py --text reviews.txt --batch-size 16 --epochs 3 --seed 1
    python examples/classify_packages.py --gpu

`--text` takes your own file: `.txt` with a label, a tab and a text a line, or `.jsonl` with a "text" and a "label".
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
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from corpus import Corpus, docstrings, labelled, train_tokenizer
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForSequenceClassification,
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
LEARNING_RATE = 3e-3
SMOOTHED = 10  # steps of which a loss in the picture is the mean
WAYS = ("transformers", "quadrat, token budget", "quadrat, same batches")

# The features of one text: input_ids, token_type_ids and attention_mask as lists, and the label as an integer.
Example = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The settings of all runs."""

    tokenizer: PreTrainedTokenizerBase
    train: list[Example]
    held_out: list[Example]
    label_count: int


@dataclass(frozen=True)
class Outcome:
    """The results of one training run, not rounded."""

    losses: list[float]
    rows: list[int]  # of each step's batch
    moments: list[float]  # of each step's end, in seconds from the start
    eval_loss: float
    accuracy: float
    collation: list[float]  # seconds in the collator, for each training batch
    computed: int  # tokens, padding included
    tokens: int
    epochs: int

    @property
    def epoch(self) -> float:
        """Seconds of training for an epoch."""
        return self.moments[-1] / self.epochs

    @property
    def milliseconds(self) -> float:
        """Median time in the collator for a batch."""
        return statistics.median(self.collation) * 1000

    @property
    def padding(self) -> float:
        """The share of padding in the tokens computed."""
        return 1 - self.tokens / self.computed


class Timed:
    """Calls a collator and records the seconds of each call."""

    def __init__(self, collate: Callable[[list[Example]], Any]) -> None:
        self.collate = collate
        self.seconds: list[float] = []

    def __call__(self, features: list[Example]) -> Any:
        start = time.perf_counter()
        try:
            return self.collate(features)
        finally:
            self.seconds.append(time.perf_counter() - start)


class RecordingTrainer(Trainer):
    """Keeps the exact loss of each training step, which the log history rounds, and counts tokens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.losses: list[float] = []
        self.rows: list[int] = []
        self.moments: list[float] = []
        self.computed = self.tokens = 0

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        mask = inputs["attention_mask"]
        loss = super().training_step(model, inputs, *args, **kwargs)
        self.losses.append(loss.item())
        self.rows.append(len(mask))
        self.moments.append(time.perf_counter())
        self.computed += mask.numel()
        self.tokens += int(mask.sum())
        return loss


class QuietBar(ProgressCallback):
    """A progress bar without lines of losses."""

    def on_log(self, *args: Any, **kwargs: Any) -> None: ...


def load(text: Path | None, per_package: int) -> Corpus:
    corpus = docstrings(per_package=per_package) if text is None else labelled(text)
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


def bert(tokenizer: PreTrainedTokenizerBase, label_count: int, *, base: bool) -> BertForSequenceClassification:
    """A BERT with random weights: of the size of bert-base, or small enough to learn in a minute on a CPU."""
    width, layers = (768, 12) if base else (64, 1)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=12 if base else 2,
        intermediate_size=4 * width if base else 2 * width,
        max_position_embeddings=MAX_TOKENS,
        # With dropout here PyTorch does not use its fused attention, and a step takes several times as long.
        attention_probs_dropout_prob=0.0,
        # Larger than usual: without pretraining, small weights take most of these few steps to grow.
        initializer_range=0.02 if base else 0.1,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=label_count,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    chosen = np.asarray(prediction.predictions).argmax(axis=-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}


def run(way: str, task: Task, options: argparse.Namespace) -> Outcome:
    """Train from the seed in one of the ways, then evaluate on the held-out texts."""
    package = transformers if way == WAYS[0] else quadrat
    timed = Timed(package.DataCollatorWithPadding(task.tokenizer))
    set_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = RecordingTrainer(
            model=bert(task.tokenizer, task.label_count, base=options.gpu),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=options.epochs,
                per_device_train_batch_size=options.batch_size,
                per_device_eval_batch_size=options.batch_size,
                learning_rate=1e-4 if options.gpu else LEARNING_RATE,
                warmup_steps=10,
                save_strategy="no",
                report_to="none",
                disable_tqdm=not sys.stderr.isatty(),
                seed=options.seed,
                use_cpu=not options.gpu,
                bf16=options.gpu,
                full_determinism=options.gpu,  # some kernels add in any order otherwise
                dataloader_pin_memory=options.gpu,
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
            trainer.add_callback(QuietBar)
        if way == WAYS[1]:
            # Rows are sorted by length within windows; small ones mix texts more, and pad more.
            quadrat.batch_by_tokens(trainer, window=options.window)
        start = time.perf_counter()
        trainer.train()
        moments, collation = [moment - start for moment in trainer.moments], [*timed.seconds]
        metrics = trainer.evaluate()
    return Outcome(
        trainer.losses,
        trainer.rows,
        moments,
        metrics["eval_loss"],
        metrics["eval_accuracy"],
        collation,
        trainer.computed,
        trainer.tokens,
        options.epochs,
    )


def differences(reference: Outcome, other: Outcome) -> list[str]:
    """The differences between two runs, compared exactly."""
    found = []
    for step, (left, right) in enumerate(zip_longest(reference.losses, other.losses), start=1):
        if left != right:
            found = [f"the loss at step {step} and perhaps later: {left!r} against {right!r}"]
            break
    for name in ("eval_loss", "accuracy"):
        left, right = getattr(reference, name), getattr(other, name)
        if left != right:
            found.append(f"{name} on held-out texts: {left!r} against {right!r}")
    return found


def table(outcomes: dict[str, Outcome]) -> Table:
    """The runs side by side, within 80 columns."""
    reference, budget, same = (outcomes[way] for way in WAYS)
    identical = sum(left == right for left, right in zip(reference.losses, same.losses, strict=False))
    lines: list[tuple[str, Callable[[Outcome], str]]] = [
        ("training steps", lambda run: f"{len(run.losses)}"),
        ("tokens computed", lambda run: f"{run.computed:,}"),
        ("of these, padding", lambda run: f"{run.padding:.1%}"),
        ("collation, median of a batch", lambda run: f"{run.milliseconds:.3f} ms"),
        ("seconds for an epoch", lambda run: f"{run.epoch:.1f}"),
        ("times as fast", lambda run: f"{reference.epoch / run.epoch:.2f}"),
        ("loss on held-out texts", lambda run: f"{run.eval_loss:.4f}"),
        ("accuracy on held-out texts", lambda run: f"{run.accuracy:.1%}"),
    ]
    result = Table(box=box.SIMPLE)
    for heading in ("", "transformers", "quadrat,\nsame batches", "quadrat,\ntoken budget"):
        result.add_column(heading, justify="right" if heading else "left")
    for name, value in lines:
        result.add_row(name, *map(value, (reference, same, budget)))
    result.add_row("steps with the same loss", "", f"{identical} of {len(reference.losses)}")
    return result


def gain(reference: Outcome, budget: Outcome) -> str:
    """How many times shorter an epoch is, and how much of that is padding."""
    saved = reference.epoch - budget.epoch
    told = f"An epoch takes {budget.epoch:.1f} s instead of {reference.epoch:.1f} s with batches by token budget"
    if saved <= 0:
        return f"{told}: not shorter. The texts have about the same length: {reference.padding:.0%} was padding."
    collated = (sum(reference.collation) - sum(budget.collation)) / reference.epochs
    share = min(1.0, max(0.0, 1 - collated / saved))
    return (
        f"{told}: {reference.epoch / budget.epoch:.1f} times shorter. {share:.0%} of the time saved is padding that "
        f"the model no longer computes ({reference.padding:.0%} of all tokens before, {budget.padding:.0%} now); the "
        "rest is faster collation."
    )


def draw(outcomes: dict[str, Outcome], path: Path) -> None:
    """The loss of each run by the seconds of training, as a picture."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for way, colour, style in zip(WAYS, ("tab:gray", "tab:blue", "black"), ("-", "-", ":"), strict=True):
        run = outcomes[way]
        steps = np.ones(min(SMOOTHED, len(run.losses)))
        sums, rows = (np.convolve(of, steps, "valid") for of in (np.multiply(run.losses, run.rows), run.rows))
        mean, moments = sums / rows, run.moments[len(steps) - 1 :]
        axes.plot(moments, mean, style, color=colour, label=f"{way}: {run.epoch:.1f} s an epoch")
        axes.plot(moments[-1], mean[-1], "o", color=colour)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(f"training loss, mean over the texts of {SMOOTHED} steps")
    axes.set_xlim(left=0)
    axes.set_title("The same model, the same texts, the same number of epochs")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tune a small BERT in three ways, and compare losses and times.")
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("--text", type=Path, help="labelled texts, .txt or .jsonl; without, docstrings of packages")
    parser.add_argument("--per-package", type=positive, default=400, help="docstrings of each package")
    parser.add_argument("--batch-size", type=positive, default=32, help="texts per batch")
    parser.add_argument("--epochs", type=positive, default=2, help="epochs of each run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, weights and order")
    parser.add_argument("--window", type=positive, default=512, help="rows that are sorted by length at a time")
    parser.add_argument("--gpu", action="store_true", help="train a model of the size of bert-base on a GPU")
    parser.add_argument("--picture", type=Path, default=Path("build/demo.png"), help="file of the picture")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)

    console.print(f"Reading {options.text or 'the docstrings of installed packages'} ...", markup=False)
    try:
        corpus = load(options.text, options.per_package)
    except (OSError, ValueError) as error:
        errors.print(f"Error: {error}", markup=False)
        return 2
    train_positions, held_out_positions = split(corpus, options.seed)
    console.print(f"{len(corpus.texts)} texts of the classes {', '.join(corpus.label_names)}", markup=False)

    console.print("Training a WordPiece tokenizer on the texts that are not held out ...")
    tokenizer = train_tokenizer([corpus.texts[position] for position in train_positions], max_length=MAX_TOKENS)
    task = Task(
        tokenizer,
        train=encode(tokenizer, corpus, train_positions),
        held_out=encode(tokenizer, corpus, held_out_positions),
        label_count=len(corpus.label_names),
    )
    median = statistics.median(len(example["input_ids"]) for example in task.train)
    console.print(f"{len(task.train)} texts to train on; median length {median:.0f} tokens, at most {MAX_TOKENS}")

    outcomes: dict[str, Outcome] = {}
    for number, way in enumerate(WAYS, start=1):
        console.print(f"Training {number} of {len(WAYS)}: {way} ...")
        outcomes[way] = run(way, task, options)
        if number == 2:
            console.print(gain(*outcomes.values()), style="bold")
    reference, budget, same = (outcomes[way] for way in WAYS)

    console.print(table(outcomes))
    draw(outcomes, options.picture)
    found = differences(reference, same)
    if found:
        errors.print("Two runs differ, although only the collator changed:", style="bold red")
        for difference in found:
            errors.print(f"- {difference}", markup=False)
        return 1
    ratio = reference.milliseconds / same.milliseconds
    compared = f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"
    console.print(f"The same batches: identical losses at all {len(reference.losses)} steps; collation was {compared}.")
    console.print(gain(reference, budget), style="bold")
    console.print(f"The losses over time are drawn in {options.picture}.", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
