"""Fine-tune a small BERT three times on the same texts: with transformers, and without padding in two ways.

The model learns which package a docstring comes from. The texts are the docstrings of installed packages (nothing is
downloaded). The script trains a WordPiece tokenizer on them. `transformers.Trainer` trains a model of one layer with
random weights, with the same seed each time:

1. with transformers
2. with the same batches: one line, `quadrat.remove_padding(model)`, has the model compute no padding. The loss of each
   step, and the loss on held-out texts, must be equal to 1e-5, relative. Otherwise the exit status is 1
3. with other batches, by token budget: `quadrat.batch_by_tokens(trainer)` puts texts of about the same length together

The model has no dropout: it draws other numbers where there is no padding.

The three train in turn, some steps of each at a time, so that other programs on this machine slow all of them alike.
Where the gains in time and in CPU time differ by a quarter nevertheless, CPU time counts. All this takes less than a
minute on two cores. A picture goes to build/demo.png.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from corpus import Corpus, docstrings, labelled, train_tokenizer
from in_turn import Turn, in_turn
from outcomes import CLOSE, PROCESSOR, WAYS, Outcome, differences, draw, gain, table, were_disturbed
from rich.console import Console
from rich.progress import Progress
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import quadrat

MAX_TOKENS = 512
HELD_OUT = 0.1  # of the texts
LEARNING_RATE = 3e-3
PARTS = 30  # of a training; after each, the next of the three goes on

# The features of one text: input_ids, token_type_ids and attention_mask as lists, and the label as an integer.
Example = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The settings of all runs."""

    tokenizer: PreTrainedTokenizerBase
    train: list[Example]
    held_out: list[Example]
    label_count: int


class Timed:
    """Calls a collator and records the seconds of each call."""

    def __init__(self, collate: Callable[[list[Example]], Any]) -> None:
        self.collate = collate
        self.turn: Turn | None = None  # whose clocks count; None: calls are not timed
        self.seconds: list[np.ndarray] = []

    def __call__(self, features: list[Example]) -> Any:
        if self.turn is None:
            return self.collate(features)
        start = np.array(self.turn.seconds())
        try:
            return self.collate(features)
        finally:
            self.seconds.append(self.turn.seconds() - start)


class RecordingTrainer(Trainer):
    """Keeps the exact loss of each training step, which the log history rounds, and counts tokens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timed = self.data_collator
        self.losses: list[float] = []
        self.rows: list[int] = []
        self.padded = self.tokens = 0
        self.removed: Any = None  # what `remove_padding` returned

    @property
    def computed(self) -> int:
        return self.padded - (self.removed.removed if self.removed else 0)

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        mask = inputs["attention_mask"]
        loss = super().training_step(model, inputs, *args, **kwargs)
        self.losses.append(loss.item())
        self.rows.append(len(mask))
        self.padded += mask.numel()
        self.tokens += int(mask.sum())
        return loss


class InTurn(TrainerCallback):
    """Records when each step ends, and lets the other Trainers go on after each part of the training."""

    def __init__(self, turn: Turn, advance: Callable[[float], None]) -> None:
        self.turn, self.advance = turn, advance
        self.moments: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.moments.append(self.turn.seconds())
        done, before = (step * PARTS // state.max_steps for step in (state.global_step, state.global_step - 1))
        if done > before:
            self.advance(done - before)
            self.turn.pass_on()


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
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        # Larger than usual: without pretraining, small weights take most of these few steps to grow.
        initializer_range=0.02 if base else 0.1,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=label_count,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    chosen = np.asarray(prediction.predictions).argmax(axis=-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}


def trainer_for(way: str, task: Task, options: argparse.Namespace, folder: Path) -> RecordingTrainer:
    """A Trainer of a new model, made from the seed."""
    package = transformers if way == WAYS[0] else quadrat
    set_seed(options.seed)
    trainer = RecordingTrainer(
        model=bert(task.tokenizer, task.label_count, base=options.gpu),
        args=TrainingArguments(
            output_dir=str(folder / way),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=options.batch_size,
            learning_rate=1e-4 if options.gpu else LEARNING_RATE,
            warmup_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=options.seed,
            use_cpu=not options.gpu,
            bf16=options.gpu,
            full_determinism=options.gpu,  # some kernels add in any order otherwise
            dataloader_pin_memory=options.gpu,
        ),
        data_collator=Timed(package.DataCollatorWithPadding(task.tokenizer)),
        train_dataset=task.train,
        eval_dataset=task.held_out,
        processing_class=task.tokenizer,
        compute_metrics=accuracy,
    )
    trainer.remove_callback(PrinterCallback)
    if way == WAYS[1]:
        trainer.removed = quadrat.remove_padding(trainer.model)
    if way == WAYS[2]:
        # Rows are sorted by length within windows; small ones mix texts more, and pad more.
        quadrat.batch_by_tokens(trainer, window=options.window)
    return trainer


def train(trainer: RecordingTrainer, advance: Callable[[float], None], turn: Turn) -> Outcome:
    """Train in turn with others, then evaluate on the held-out texts."""
    timed, callback = trainer.timed, InTurn(turn, advance)
    timed.turn = turn
    trainer.add_callback(callback)
    trainer.train()
    timed.turn, computed = None, trainer.computed
    metrics = trainer.evaluate()
    return Outcome(
        trainer.losses,
        trainer.rows,
        np.array(callback.moments),
        metrics["eval_loss"],
        metrics["eval_accuracy"],
        np.array(timed.seconds),
        computed,
        trainer.tokens,
        int(trainer.args.num_train_epochs),
    )


def train_all(task: Task, options: argparse.Namespace) -> dict[str, Outcome]:
    """Train in all ways, in turn. A terminal shows how far each is."""
    progress = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    with tempfile.TemporaryDirectory() as folder, progress:
        jobs = {}
        for way in WAYS:
            trainer, shown = trainer_for(way, task, options, Path(folder)), progress.add_task(way, total=PARTS)
            jobs[way] = partial(train, trainer, partial(progress.advance, shown))
        return in_turn(jobs)


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

    console.print(f"Training in three ways, a part of each in turn: {'; '.join(WAYS)} ...")
    outcomes = train_all(task, options)
    if not options.gpu and were_disturbed(outcomes[WAYS[0]], outcomes[WAYS[1]]):
        console.print("Other programs used this machine: CPU time counts, not the clock on the wall.", style="bold")
        outcomes = {way: outcome.by(PROCESSOR) for way, outcome in outcomes.items()}
    reference, same, budget = (outcomes[way] for way in WAYS)

    close = 0.05 if options.gpu else CLOSE  # bfloat16 has three digits
    console.print(table(outcomes, close))
    draw(outcomes, options.picture)
    deviations = differences(reference, same, close)
    if deviations:
        errors.print("Two runs with the same batches differ by more than rounding:", style="bold red")
        for difference in deviations:
            errors.print(f"- {difference}", markup=False)
        return 1
    console.print(f"The same batches: losses at all {len(reference.losses)} steps are equal to {close:g}.")
    console.print(gain(reference, same, "the same batches, padding removed"), style="bold")
    console.print(gain(reference, budget, "batches by token budget"))
    console.print(f"The losses over time are drawn in {options.picture}.", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
