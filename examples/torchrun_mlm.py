"""Pre-train a small BERT in two processes from one memory-mapped dataset, with quadrat's collator.

`torchrun` starts the processes, which communicate through gloo. No GPU is needed. The first process tokenises the
docstrings of installed packages and saves them. Both processes map the file into memory and read their share of each
batch from a `quadrat.ArrowDataset`. `--reference` first runs the same training with a plain `datasets.Dataset` and
transformers' collator. If a loss of a process is not identical then, the exit status is 1. It takes 15 seconds.

    torchrun --standalone --nproc-per-node 2 examples/torchrun_mlm.py
    torchrun --standalone --nproc-per-node 2 examples/torchrun_mlm.py --reference --steps 10
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes share the cores

import datasets
import torch
import torch.distributed as dist
import transformers
from corpus import docstrings, train_tokenizer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

import quadrat


class LossKeepingTrainer(Trainer):
    """Keeps the exact loss of each step in this process. The log history holds rounded means."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.losses: list[float] = []

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(*args, **kwargs)
        self.losses.append((result[0] if isinstance(result, tuple) else result).item())
        return result


def prepare(folder: Path, per_package: int) -> None:
    """Save a tokenizer trained on docstrings, and the docstrings as a dataset of tokens."""
    texts = docstrings(per_package=per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=2000, max_length=64)
    tokenizer.save_pretrained(folder / "tokenizer")
    encoded = tokenizer(texts, truncation=True, return_special_tokens_mask=True)
    datasets.Dataset.from_dict(dict(encoded)).save_to_disk(folder / "tokens")


def train(
    dataset: datasets.Dataset, collator: Any, tokenizer: PreTrainedTokenizerBase, arguments: TrainingArguments
) -> list[float]:
    """The losses of this process, step by step."""
    transformers.set_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        pad_token_id=tokenizer.pad_token_id,
    )
    trainer = LossKeepingTrainer(
        model=BertForMaskedLM(config), args=arguments, train_dataset=dataset, data_collator=collator
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.losses


def of_all(value: Any) -> list[Any]:
    """The values of all processes, in the order of the processes."""
    if not dist.is_initialized():
        return [value]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered


def main() -> int:
    parser = argparse.ArgumentParser(description="Masked language modelling on several processes.")
    parser.add_argument("--reference", action="store_true", help="train with transformers' collator too, and compare")
    parser.add_argument("--steps", type=int, default=40, help="training steps (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a process (default: %(default)s)")
    parser.add_argument("--per-package", type=int, default=100, help="texts of a package (default: %(default)s)")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)  # two processes, two cores

    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch_size,
            learning_rate=5e-3,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
            ddp_find_unused_parameters=False,
            # This model's loss is already the mean of its process. Trainer would scale it otherwise.
            average_tokens_across_devices=False,
            dataloader_pin_memory=False,
        )
        # TrainingArguments has connected the processes.
        folder = Path(of_all(directory)[0])
        with arguments.main_process_first(desc="tokenise"):
            if arguments.process_index == 0:
                prepare(folder, options.per_package)
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
        dataset = datasets.load_from_disk(folder / "tokens")
        expected = None
        if options.reference:
            collator = transformers.DataCollatorForLanguageModeling(tokenizer)
            expected = of_all(train(dataset, collator, tokenizer, arguments))
        collator = quadrat.DataCollatorForLanguageModeling(tokenizer)
        losses = of_all(train(quadrat.ArrowDataset(dataset), collator, tokenizer, arguments))

    status = int(expected is not None and losses != expected)
    if arguments.process_index == 0:
        first, last = (sum(curve[step] for curve in losses) / len(losses) for step in (0, -1))
        print(f"{len(dataset)} rows, {len(losses)} processes, {options.batch_size} rows of each a step")
        print(f"loss {first:.4f} at the first step, {last:.4f} at step {options.steps}")
        if expected is not None:
            print("The losses differ." if status else f"Identical losses at all {options.steps} steps of each process.")
    return status


if __name__ == "__main__":
    sys.exit(main())
