"""Fine-tune a small BERT twice, with the collator of transformers and with quadrat's, and compare every loss.

The task: tell from a docstring which package it comes from. The texts are the docstrings of packages installed next
to quadrat (nothing is downloaded), the WordPiece tokenizer is trained on them on the spot, and the model, two layers
with random weights, is trained by `transformers.Trainer` from the same seed in both runs. The collator is the only
difference, so each step's loss must be equal to the last bit, and so must the loss and the accuracy on held-out texts.
If one is not, the exit status is 1.

    python examples/classify_packages.py
    python examples/classify_packages.py --text reviews.txt --batch-size 16 --steps 200 --seed 1

A file of your own: `.txt` with a label, a tab and a text on each line, or `.jsonl` with a "text" and a "label" each.
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
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
    ProgressCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

import quadrat
from quadrat.bench.corpus import Corpus, docstrings, read, train_tokenizer

MAX_TOKENS = 512
HELD_OUT = 0.1

# The features of one text: input_ids, token_type_ids and attention_mask as lists, and the label as an integer.
Example = dict[str, Any]
Collate = Callable[[list[Example]], Any]


@dataclass(frozen=True)
class Outcome:
    """What one training run gave; nothing in it is rounded."""

    losses: list[float]
    eval_loss: float
    accuracy: float
    collation_seconds: list[float]

    @property
    def milliseconds(self) -> float:
        """Median time in the collator for a batch."""
        return statistics.median(self.collation_seconds) * 1000


class Timed:
    """Calls a collator and keeps the seconds that each call took."""

    def __init__(self, collate: Collate) -> None:
        self.collate = collate
        self.seconds: list[float] = []

    def __call__(self, features: list[Example]) -> Any:
        start = time.perf_counter()
        batch = self.collate(features)
        self.seconds.append(time.perf_counter() - start)
        return batch


class LossKeepingTrainer(Trainer):
    """Keeps each training step's loss as computed: the log history holds rounded ones."""

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


def split(corpus: Corpus, seed: int) -> tuple[list[int], list[int]]:
    """Positions of the texts to train on and of those held out, at random."""
    positions = list(range(len(corpus.texts)))
    random.Random(seed).shuffle(positions)
    held_out = max(1, round(HELD_OUT * len(positions)))
    return positions[held_out:], positions[:held_out]


def encode(tokenizer: PreTrainedTokenizerBase, corpus: Corpus, positions: list[int]) -> list[Example]:
    """Features of the texts at the given positions, truncated but not padded: padding is the collator's work."""
    encoded = tokenizer([corpus.texts[position] for position in positions], truncation=True)
    return [
        {name: encoded[name][row] for name in tokenizer.model_input_names} | {"label": corpus.labels[position]}
        for row, position in enumerate(positions)
    ]


def small_bert(tokenizer: PreTrainedTokenizerBase, label_count: int) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=MAX_TOKENS,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=label_count,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    chosen = np.asarray(prediction.predictions).argmax(axis=-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}


def run(
    collator: DataCollatorWithPadding,
    tokenizer: PreTrainedTokenizerBase,
    train: list[Example],
    held_out: list[Example],
    label_count: int,
    options: argparse.Namespace,
) -> Outcome:
    """Train from the seed with this collator, then evaluate on the held-out texts."""
    timed = Timed(collator)
    set_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = LossKeepingTrainer(
            model=small_bert(tokenizer, label_count),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=options.batch_size,
                per_device_eval_batch_size=options.batch_size,
                learning_rate=options.learning_rate,
                warmup_steps=options.steps // 10,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                seed=options.seed,
                # On a GPU two runs with one collator can differ already: some of its kernels add in any order.
                use_cpu=True,
                dataloader_pin_memory=False,
            ),
            data_collator=timed,
            train_dataset=train,
            eval_dataset=held_out,
            processing_class=tokenizer,
            compute_metrics=accuracy,
        )
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(LossOnTheBar)
        trainer.train()
        metrics = trainer.evaluate()
    return Outcome(trainer.losses, metrics["eval_loss"], metrics["eval_accuracy"], timed.seconds)


if __name__ == "__main__":
    import os
    ap=argparse.ArgumentParser(); ap.add_argument('--steps',type=int,default=100); ap.add_argument('--batch-size',type=int,default=32); ap.add_argument('--learning-rate',type=float,default=1e-3); ap.add_argument('--seed',type=int,default=0)
    o=ap.parse_args()
    c=docstrings(); tr,ho=split(c,o.seed); tok=train_tokenizer([c.texts[i] for i in tr])
    a,b=encode(tok,c,tr),encode(tok,c,ho)
    t=time.time(); r=run(DataCollatorWithPadding(tok),tok,a,b,len(c.label_names),o)
    print(time.time()-t, r.losses[:2], r.losses[-5:], r.eval_loss,r.accuracy,r.milliseconds,len(r.collation_seconds))
