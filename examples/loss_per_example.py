"""Find the texts that a classifier gets most wrong, by the loss of each example.

This is the error analysis of chapter 2 of "Natural Language Processing with Transformers". A small BERT learns which
installed package a docstring comes from (nothing is downloaded). Then `Dataset.map` computes the loss of each
held-out text, and a pandas table is sorted by it. `map` gives a dict of lists. All of quadrat's collators take one;
in transformers only DataCollatorWithPadding does. So rows are padded to the longest of 16 rows, not of the dataset.
If the mean of the losses is not the evaluation loss of `Trainer`, the exit status is 1. It takes about half a minute
on two cores.

    python examples/loss_per_example.py
    python examples/loss_per_example.py --per-package 100 --steps 50 --top 10
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from typing import Any

import datasets
import torch
from corpus import docstrings, train_tokenizer
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

import quadrat

MAX_TOKENS = 128
TOLERANCE = 1e-4  # float32, added up in another order


def main() -> int:
    parser = argparse.ArgumentParser(description="The loss of each example, sorted.")
    parser.add_argument("--per-package", type=int, default=300, help="texts of a package (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="training steps (default: %(default)s)")
    parser.add_argument("--top", type=int, default=6, help="rows of a table (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the split, weights and order (default: %(default)s)"
    )
    options = parser.parse_args()

    datasets.disable_progress_bars()
    torch.set_num_threads(1)  # enough for a small model
    set_seed(options.seed)
    corpus = docstrings(per_package=options.per_package)
    dataset = datasets.Dataset.from_dict(
        {"text": [" ".join(text.split()) for text in corpus.texts], "label": corpus.labels},
        features=datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=corpus.label_names)}
        ),
    ).train_test_split(test_size=0.1, seed=options.seed)
    tokenizer = train_tokenizer(dataset["train"]["text"], max_length=MAX_TOKENS)
    encoded = dataset.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)
    collator = quadrat.DataCollatorWithPadding(tokenizer)

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
        num_labels=len(corpus.label_names),
    )
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=16,
                learning_rate=5e-3,
                warmup_steps=options.steps // 10,
                seed=options.seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,  # it is on by default and warns without a GPU
            ),
            train_dataset=encoded["train"],  # Trainer removes the text, which the model does not take
            eval_dataset=encoded["test"],
            data_collator=collator,
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)  # prints every log
        trainer.train()
        eval_loss = trainer.evaluate()["eval_loss"]
    model.eval()

    def forward_pass_with_label(batch: dict[str, list[Any]]) -> dict[str, Any]:
        # Leave the text out: a collator makes tensors of all its columns.
        inputs = collator({name: batch[name] for name in (*tokenizer.model_input_names, "label")}).to(model.device)
        with torch.no_grad():
            logits = model(**inputs).logits
            loss = cross_entropy(logits, inputs["labels"], reduction="none")
        return {"loss": loss.cpu().numpy(), "predicted_label": logits.argmax(dim=-1).cpu().numpy()}

    analysed = encoded["test"].map(forward_pass_with_label, batched=True, batch_size=16)

    frame = analysed.to_pandas()[["text", "label", "predicted_label", "loss"]]
    for column in ("label", "predicted_label"):
        frame[column] = frame[column].map(dataset["test"].features["label"].int2str)
    frame = frame.sort_values("loss", ascending=False)
    for which, rows in (("highest", frame.head(options.top)), ("lowest", frame.tail(options.top))):
        print(f"The {which} losses of {len(frame)} held-out texts")
        print(rows.to_string(max_colwidth=64, float_format="%.4f"), end="\n\n")

    accuracy = (frame["label"] == frame["predicted_label"]).mean()
    majority = frame["label"].value_counts(normalize=True).max()
    print(f"accuracy {accuracy:.1%} after {options.steps} steps; always the most frequent label: {majority:.1%}")
    mean = frame["loss"].mean()
    print(f"mean of the losses {mean:.6f}, loss of Trainer.evaluate {eval_loss:.6f}")
    if abs(mean - eval_loss) > TOLERANCE:
        print(f"They differ by more than {TOLERANCE}.", file=sys.stderr)
        return 1
    print(f"They differ by less than {TOLERANCE}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
