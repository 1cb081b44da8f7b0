"""Show the mistakes of a token classifier: the loss of each token, in a table, without padding.

Tutorials do this error analysis for named entities. This task needs no download: the model tags each word of Python
source as a keyword, an attribute, part of a comment and so on. Python's own `tokenize` gives the tags. A small BERT
learns them from the sources of installed packages. Losses are computed in padded batches. `quadrat.unpad(loss,
mask=labels != -100)` keeps the tokens that have a label, row by row, and pandas groups them by tag, by word and by
statement. The table must have each label once, and Trainer's loss and accuracy must follow from it. Otherwise the
exit status is 1. It takes about half a minute on two cores.

    python examples/loss_per_token.py
    python examples/loss_per_token.py --sources src --statements 2000 --steps 100
"""

from __future__ import annotations

import argparse
import builtins
import keyword
import random
import re
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import torch
from corpus import train_tokenizer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForTokenClassification,
    EvalPrediction,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

import quadrat

TAGS = ("keyword", "builtin", "definition", "attribute", "name", "operator", "number", "string", "comment")
IGNORED = -100  # the label of special tokens, and of a word's sub-words after the first
BATCH_SIZE = 32
MAX_TOKENS = 48

Columns = dict[str, list[Any]]


def tag_of(token: tokenize.TokenInfo, previous: str) -> str:
    """The tag of a token that comes after the token `previous`."""
    if token.type == tokenize.NAME:
        if keyword.iskeyword(token.string):
            return "keyword"
        if previous in ("def", "class"):
            return "definition"
        if previous == ".":
            return "attribute"
        return "builtin" if hasattr(builtins, token.string) else "name"
    kind = tokenize.tok_name[token.type]
    if "STRING" in kind:  # from Python 3.12 on, f-strings come in parts
        return "string"
    return {"NUMBER": "number", "COMMENT": "comment"}.get(kind, "operator")


def statements(folders: list[Path]) -> Iterator[Columns]:
    """Words and tags of different statements, each with the comments before it, from files in a fixed order."""
    paths = [(folder, file) for folder in folders for file in sorted(folder.rglob("*.py"))]
    files = [file for folder, file in paths if "tests" not in file.relative_to(folder).parts]
    random.Random(0).shuffle(files)
    seen: set[tuple[str, ...]] = set()
    for file in files:
        words: list[str] = []
        tags: list[int] = []
        previous = ""
        with suppress(SyntaxError, UnicodeDecodeError, tokenize.TokenError), tokenize.open(file) as source:
            for token in tokenize.generate_tokens(source.readline):
                tag = tag_of(token, previous)
                # Strings and comments are many words, whose tag depends on the words around them.
                parts = re.findall(r"\w+|[^\w\s]+" if tag in ("string", "comment") else r"\S+", token.string)
                words += parts
                tags += [TAGS.index(tag)] * len(parts)
                previous = token.string
                if token.type == tokenize.NEWLINE:
                    if tuple(words) not in seen:
                        seen.add(tuple(words))
                        yield {"words": words, "tags": tags}
                    words, tags = [], []


def metrics(evaluation: EvalPrediction) -> dict[str, float]:
    """Accuracy, and F1 as the mean over the tags."""
    kept = evaluation.label_ids != IGNORED
    counts = np.zeros((len(TAGS), len(TAGS)))
    np.add.at(counts, (evaluation.label_ids[kept], evaluation.predictions[kept]), 1)
    f1 = 2 * counts.diagonal() / np.maximum(counts.sum(axis=0) + counts.sum(axis=1), 1)
    return {"accuracy": counts.trace() / counts.sum(), "macro_f1": f1.mean()}


def train(
    tokenizer: PreTrainedTokenizerBase, collator: Any, split: datasets.DatasetDict, steps: int
) -> tuple[BertForTokenClassification, dict[str, float]]:
    """A model and its evaluation by Trainer."""
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=MAX_TOKENS,
        attention_probs_dropout_prob=0.0,  # with dropout here PyTorch does not use its fused attention
        num_labels=len(TAGS),
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=BertForTokenClassification(config),
            args=TrainingArguments(
                folder,
                max_steps=steps,
                per_device_train_batch_size=BATCH_SIZE,
                per_device_eval_batch_size=BATCH_SIZE,
                learning_rate=2e-3,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
            ),
            data_collator=collator,
            train_dataset=split["train"],
            eval_dataset=split["test"],
            compute_metrics=metrics,
            preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.model, trainer.evaluate()


def token_table(model: BertForTokenClassification, collator: Any, rows: datasets.Dataset) -> pd.DataFrame:
    """A line for each token with a label: word, tag, predicted tag and loss. The index is the statement's number."""
    columns: Columns = {"tag": [], "predicted": [], "loss": []}
    for batch in DataLoader(rows.remove_columns("words"), BATCH_SIZE, collate_fn=collator):
        labels = batch["labels"]
        with torch.inference_mode():
            logits = model(**batch).logits
        loss = cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        for name, padded in (("tag", labels), ("predicted", logits.argmax(-1)), ("loss", loss)):
            columns[name] += quadrat.unpad(padded, mask=labels != IGNORED).to_lists()
    table = pd.DataFrame({"word": rows["words"], **columns}).rename_axis("statement")
    table = table.explode(list(table.columns)).astype({"loss": float})
    return table.assign(tag=table["tag"].map(TAGS.__getitem__), predicted=table["predicted"].map(TAGS.__getitem__))


def report(table: pd.DataFrame) -> None:
    """Print the loss by column and the statements with the largest loss."""
    pd.options.display.float_format = "{:.3f}".format
    for column, order, shown in (("tag", "mean", len(TAGS)), ("word", "sum", 10)):
        by_column = table.groupby(column)["loss"].agg(["count", "mean", "sum"]).nlargest(shown, order)
        print(f"\nLoss by {column}, the largest {order} first")
        print(by_column.reset_index().to_string(index=False))
    print("\nPredicted tag (columns) of each tag (rows), in shares of the row")
    confusion = pd.crosstab(table["tag"], table["predicted"], normalize="index").rename_axis(index=None, columns=None)
    print(confusion.reindex(index=TAGS, columns=TAGS, fill_value=0).to_string())
    print("\nThe statements with the largest loss, of those of up to 12 words")
    sums = table["loss"].groupby("statement").agg(["sum", "size"])
    for statement in sums[sums["size"] <= 12]["sum"].nlargest(4).index:
        print(table.loc[[statement]].T.to_string(header=False, line_width=118) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a token classifier and look at its loss, token by token.")
    folders = [Path(package.__file__).parent for package in (datasets, np, pd)]
    parser.add_argument(
        "--sources", nargs="+", type=Path, default=folders, help="folders with sources (default: three packages)"
    )
    parser.add_argument(
        "--statements", type=int, default=9000, help="statements to read; a sixth is held out (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: %(default)s)")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)  # enough for a small model
    set_seed(0)

    rows = list(islice(statements(options.sources), options.statements))
    if len(rows) < 6:
        parser.error("too few Python statements to hold some out")
    held_out = len(rows) // 6
    texts = [" ".join(row["words"]) for row in rows[:-held_out]]
    tokenizer = train_tokenizer(texts, vocab_size=4000, max_length=MAX_TOKENS)

    def encode(batch: Columns) -> Columns:
        encoded = tokenizer(batch["words"], is_split_into_words=True, truncation=True)
        columns: Columns = {**encoded, "labels": [], "words": []}
        for row, (words, tags) in enumerate(zip(batch["words"], batch["tags"], strict=True)):
            # The number of a word at its first sub-word, and None at all other tokens.
            firsts = [word if word != before else None for before, word in pairwise([None, *encoded.word_ids(row)])]
            columns["labels"].append([IGNORED if word is None else tags[word] for word in firsts])
            columns["words"].append([words[word] for word in firsts if word is not None])
        return columns

    dataset = datasets.Dataset.from_list(rows).map(encode, batched=True, remove_columns=["tags"])
    split = dataset.train_test_split(held_out, shuffle=False)
    collator = quadrat.DataCollatorForTokenClassification(tokenizer)
    model, evaluated = train(tokenizer, collator, split, options.steps)
    print(f"{len(split['train'])} statements to learn from, {held_out} held out; after {options.steps} steps")
    print("loss {eval_loss:.4f}, accuracy {eval_accuracy:.1%}, macro F1 {eval_macro_f1:.3f}".format(**evaluated))
    table = token_table(model, collator, split["test"])
    report(table)

    labels = sum(label != IGNORED for row in split["test"]["labels"] for label in row)
    accuracy = (table["tag"] == table["predicted"]).mean()
    # Trainer's loss is the mean of its batches' means, each counted with its rows.
    means = table["loss"].groupby(table.index // BATCH_SIZE).mean()
    loss = np.average(means, weights=[min(BATCH_SIZE, held_out - BATCH_SIZE * batch) for batch in means.index])
    print(
        f"{len(table)} tokens in the table, {labels} labels in the dataset; loss per token {table['loss'].mean():.4f}"
    )
    same = np.allclose([loss, accuracy], [evaluated["eval_loss"], evaluated["eval_accuracy"]], rtol=1e-4)
    if len(table) != labels or not same:
        print(f"The table gives the loss {loss}, and the accuracy {accuracy}; Trainer: {evaluated}", file=sys.stderr)
        return 1
    print(f"Nothing was lost: Trainer's loss, {loss:.4f} (a mean over batches), and accuracy, {accuracy:.1%}, follow.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
