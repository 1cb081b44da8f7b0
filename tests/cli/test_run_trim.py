"""`quadrat run` with rows that were stored padded, and with those of multiple choice: what is computed, and said."""

from pathlib import Path

import pytest

from support.command import reported

SCRIPT = """
import random, sys
from datasets import Dataset
from transformers import (BertForMultipleChoice, BertForSequenceClassification, DataCollatorForMultipleChoice,
    DataCollatorWithPadding, Trainer)
from support.strategies import make_tokenizer
from support.trainer import DETERMINISTIC, arguments, tiny

kind, tokenizer, draw = sys.argv[1], make_tokenizer(), random.Random(0)

def row(width):
    size = min(60, int(draw.lognormvariate(2.3, 0.6)) + 1)
    rest = [0] * max(0, width - size)
    return {"input_ids": [draw.choice([1, 2]) for _ in range(size)] + rest, "attention_mask": [1] * size + rest}

def choices():
    made = [row(0) for _ in range(4)]
    return {name: [one[name] for one in made] for name in made[0]}

rows = [{**(choices() if kind == "choices" else row(60)), "labels": i % 2} for i in range(96)]
data = Dataset.from_list(rows)
data = data.to_iterable_dataset() if kind == "stream" else data
if kind == "copied":
    data = data.map(lambda one: {"labels": one["input_ids"]})
model = tiny(BertForMultipleChoice if kind == "choices" else BertForSequenceClassification, **DETERMINISTIC)
args = arguments("out", per_device_train_batch_size=8, max_steps=4 if kind == "stream" else -1, num_train_epochs=1,
    logging_strategy="no")

class Printing(Trainer):
    def compute_loss(self, model, inputs, *given, **options):
        if kind == "copied":
            inputs["labels"] = inputs["labels"][:, 0] % 2
        loss = super().compute_loss(model, inputs, *given, **options)
        print("step", (loss[0] if isinstance(loss, tuple) else loss).item(), *inputs["input_ids"].shape, flush=True)
        return loss

collate = DataCollatorForMultipleChoice(tokenizer) if kind == "choices" else DataCollatorWithPadding(tokenizer)
Printing(model, args, train_dataset=data, data_collator=collate).train()
"""


def ran(folder: Path, kind: str, *options: str) -> tuple[list[float], list[list[int]], str, dict]:
    """The losses of a run, the shapes of its batches, what was said, and the report."""
    done, report = reported(folder, SCRIPT, kind, options=options)
    steps = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("step")]
    shapes = [[int(size) for size in shape] for _, *shape in steps]
    return [float(loss) for loss, *_ in steps], shapes, done.stderr, report


def computed(shapes: list[list[int]]) -> int:
    return sum(rows * width for rows, width in shapes)


@pytest.mark.slow
def test_rows_that_were_stored_padded(tmp_path):
    losses, shapes, said, report = ran(tmp_path, "padded")
    assert {width for _, width in shapes} == {60}
    assert report["computed"] == computed(shapes) == 96 * 60
    assert "rows are stored padded to 60 (map without padding), or the collator pads them to it; --trim cuts" in said
    (promise,) = report["promises"]
    assert f"{promise['option']} would compute" in said
    tokens = promise["option"].removeprefix("--trim --max-tokens ")

    cut, narrow, said, trimmed = ran(tmp_path, "padded", "--trim")
    assert cut == pytest.approx(losses, abs=1e-5)
    assert trimmed["computed"] == computed(narrow) == report["computed"] - report["cut"]
    assert trimmed["tokens"] == report["tokens"]
    assert f"--trim cut {report['cut']:,} tokens of padding" in said
    assert "stored padded" not in said

    # What the report promised.
    _, fewer, said, by_tokens = ran(tmp_path, "padded", "--trim", "--max-tokens", tokens)
    assert by_tokens["computed"] == computed(fewer) == pytest.approx(promise["computed_with"], rel=0.1)
    assert all(rows * width <= int(tokens) for rows, width in fewer)
    assert by_tokens["rows"] == 96

    # Without trim, a budget is one of tokens that are computed.
    _, whole, said, _ = ran(tmp_path, "padded", "--max-tokens", "240")
    assert {tuple(shape) for shape in whole} == {(4, 60)}
    assert "Rows are stored padded to 60 tokens, and computed so: map without padding, or trim" in said


@pytest.mark.slow
def test_what_trim_does_with_streams_and_labels_that_count(tmp_path):
    _, shapes, said, _ = ran(tmp_path, "stream", "--trim", "--max-tokens", "240")
    assert "batches are as before: IterableDataset cannot be indexed by row" in said
    assert all(width < 60 for _, width in shapes)
    _, shapes, said, _ = ran(tmp_path, "copied", "--trim", "--max-tokens", "240")
    assert "batches are as before: row 0: labels of masked tokens are not -100" in said
    assert "such batches are not trimmed" in said
    assert {width for _, width in shapes} == {60}
    assert "--trim cut 0 tokens of padding" in said


@pytest.mark.slow
def test_multiple_choice(tmp_path):
    """An example takes its longest choice, as often as it has choices: steps are about as many as before."""
    _, shapes, said, report = ran(tmp_path, "choices")
    assert len(shapes) == 12
    assert report["computed"] == sum(rows * choices * width for rows, choices, width in shapes)
    (promise,) = report["promises"]
    assert f"; {promise['option']} would compute" in said
    _, shapes, said, report = ran(tmp_path, "choices", "--max-tokens", "auto")
    assert len(shapes) < 18
    assert f"{len(shapes)} steps an epoch instead of 12" in said
    assert report["computed"] == pytest.approx(promise["computed_with"], rel=0.1)
