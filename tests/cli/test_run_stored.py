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
model = tiny(BertForMultipleChoice if kind == "choices" else BertForSequenceClassification, **DETERMINISTIC)
args = arguments("out", per_device_train_batch_size=8, num_train_epochs=1,
    logging_strategy="no")

class Printing(Trainer):
    def compute_loss(self, model, inputs, *given, **options):
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
    _, shapes, said, report = ran(tmp_path, "padded")
    assert {width for _, width in shapes} == {60}
    assert report["computed"] == computed(shapes) == 96 * 60
    assert "rows are stored padded to 60 (map without padding), or the collator pads them to it" in said
    assert report["promises"] == []
    _, whole, said, _ = ran(tmp_path, "padded", "--max-tokens", "240")
    assert {tuple(shape) for shape in whole} == {(4, 60)}
    assert "Rows are stored padded to 60 tokens: map without padding." in said


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
