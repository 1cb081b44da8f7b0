"""Fine-tune a small BERT on sentence pairs, as chapter 3 of the Hugging Face course does, with quadrat's collator.

The script first trains on two sentences in its own loop. Then it makes pairs with dynamic padding and
`token_type_ids`, and trains with `Trainer`. Each pair is the first two sentences of a docstring of an installed
package (nothing is downloaded). Half of the pairs are swapped. The label says whether a pair is in its original
order; ALBERT calls this task sentence order prediction. A model with random weights learns it in a few hundred steps.
If quadrat's batch differs from transformers', or the loss of the first two sentences does not fall, the exit status
is 1. It takes about half a minute on two cores.

    python examples/sentence_pairs.py
    python examples/sentence_pairs.py --per-package 100 --steps 50 --seed 1
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping

import datasets
import numpy as np
import torch
import transformers
from corpus import docstrings, train_tokenizer
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments

import quadrat

MAX_TOKENS = 128


def sentences(text: str) -> list[str]:
    """The prose sentences of a docstring, without headings, arguments and code."""
    pieces = [" ".join(piece.split()) for piece in re.split(r"(?<=\.)\s+(?=[A-Z])|\n\s*\n", text)]
    return [piece for piece in pieces if re.fullmatch(r"[A-Z][^:>=]*\.", piece) and 5 <= len(piece.split()) <= 40]


def make_pairs(texts: list[str]) -> datasets.Dataset:
    """One pair of each text that has two sentences: label 1 for the original order, 0 if swapped."""
    pairs = dict.fromkeys(tuple(parts[:2]) for parts in map(sentences, texts) if len(parts) > 1)  # without duplicates
    rows = []
    for number, (first, second) in enumerate(pairs):
        label = number % 2
        left, right = (first, second) if label else (second, first)
        rows.append({"sentence1": left, "sentence2": right, "label": label})
    return datasets.Dataset.from_list(rows)


def compute_metrics(prediction: transformers.EvalPrediction) -> dict[str, float]:
    labels, chosen = prediction.label_ids, np.argmax(prediction.predictions, axis=-1)
    hits = (chosen * labels).sum()  # where both are 1
    return {"accuracy": (chosen == labels).mean(), "f1": 2 * hits / (chosen.sum() + labels.sum())}


def train_by_hand(model: BertForSequenceClassification, batch: Mapping[str, torch.Tensor]) -> list[float]:
    """Five steps on one batch, and the loss of each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description="Fine-tune a small BERT on sentence pairs.")
    parser.add_argument("--per-package", type=int, default=600, help="texts of a package (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=250, help="training steps (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the split, weights and order (default: %(default)s)"
    )
    options = parser.parse_args()

    datasets.disable_progress_bars()
    torch.set_num_threads(1)  # enough for a small model
    transformers.set_seed(options.seed)
    texts = docstrings(per_package=options.per_package).texts
    raw_datasets = make_pairs(texts).train_test_split(test_size=0.1, seed=options.seed)
    train_pairs = raw_datasets["train"]
    tokenizer = train_tokenizer([*train_pairs["sentence1"], *train_pairs["sentence2"]], max_length=MAX_TOKENS)
    data_collator = quadrat.DataCollatorWithPadding(tokenizer)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=MAX_TOKENS,
        attention_probs_dropout_prob=0.0,  # with dropout PyTorch does not use its faster, fused attention
        initializer_range=0.1,  # small weights would take most of these few steps to grow
        pad_token_id=tokenizer.pad_token_id,
        num_labels=2,
    )

    print("One batch of two sentences, trained on by hand")
    model = BertForSequenceClassification(config)
    sequences = ["Return the shape of an array.", "The result is a copy."]
    batch = data_collator(tokenizer(sequences, truncation=True))
    batch["labels"] = torch.tensor([1, 1])
    losses = train_by_hand(model, batch)
    print("loss of each step:", ", ".join(f"{loss:.3f}" for loss in losses))
    if losses[-1] >= losses[0]:
        print("The loss did not fall.", file=sys.stderr)
        return 1

    print("\nThe same two as a pair: tokens and token_type_ids")
    inputs = tokenizer(*sequences)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    print(*tokens)
    print(*(f"{kind:<{len(token)}}" for token, kind in zip(tokens, inputs["token_type_ids"], strict=True)))

    print(f"\nPairs of docstrings: {raw_datasets.num_rows}")
    for name, value in raw_datasets["train"][0].items():
        print(f"{name}: {value}")
    tokenized_datasets = raw_datasets.map(
        lambda example: tokenizer(example["sentence1"], example["sentence2"], truncation=True), batched=True
    )
    samples = tokenized_datasets["train"].remove_columns(["sentence1", "sentence2"])[:8]
    batch = data_collator(samples)
    print("\nlengths of eight:", [len(x) for x in samples["input_ids"]])
    print("their batch:", {k: tuple(v.shape) for k, v in batch.items()})
    expected = transformers.DataCollatorWithPadding(tokenizer)(samples)
    if list(batch) != list(expected) or not all(torch.equal(batch[k], expected[k]) for k in expected):
        print("The batch is not that of transformers' collator.", file=sys.stderr)
        return 1
    print("The batch is identical to that of transformers' collator.")

    print(f"\nFine-tuning with Trainer, {options.steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=32,
                learning_rate=2e-3,
                warmup_steps=options.steps // 10,
                seed=options.seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,  # it is on by default and warns without a GPU
            ),
            train_dataset=tokenized_datasets["train"],
            eval_dataset=tokenized_datasets["test"],
            data_collator=data_collator,
            processing_class=tokenizer,
            compute_metrics=compute_metrics,
        )
        trainer.remove_callback(PrinterCallback)  # prints every log
        trainer.train()
        metrics = trainer.evaluate()
    ones = np.mean(raw_datasets["test"]["label"])
    print(f"on held-out pairs: accuracy {metrics['eval_accuracy']:.1%}, F1 {metrics['eval_f1']:.3f}")
    print(f"always the more frequent label: accuracy {max(ones, 1 - ones):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
