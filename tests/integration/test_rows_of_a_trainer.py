"""What rows take in a Trainer's batches: rows that were stored padded, and multiple choice."""

from typing import Any

import datasets
import pytest
import torch
from transformers import BertForMultipleChoice

import quadrat
from quadrat.integration.row_sizes import rows_in_batches
from support.strategies import make_tokenizer
from support.trainer import tiny, trainer_of

WIDTH = 60
SIZES = [1 + row * row % 23 for row in range(64)] + [40]
TOKENIZER = make_tokenizer(model_max_length=WIDTH, mask_token="[UNK]")


def padded_row(row: int, size: int) -> dict[str, Any]:
    rest = [0] * (WIDTH - size)
    return {"input_ids": [3 + row] * size + rest, "attention_mask": [1] * size + rest, "labels": row % 2}


def stored(**columns: Any) -> Any:
    rows = [{**padded_row(row, size), **columns} for row, size in enumerate(SIZES)]
    return datasets.Dataset.from_list(rows)


def test_stored_padding_is_named_and_computed(tmp_path):
    """A budget bounds what is computed: rows that are padded on disk take what they take there."""
    trainer = trainer_of(tmp_path, stored())
    plan = quadrat.batch_by_tokens(trainer, 5 * WIDTH)
    assert "Rows are stored padded to 60 tokens: map without padding." in str(plan)
    assert plan.stored == WIDTH
    trainer.train()
    assert {shape[1] for shape in trainer.trained} == {WIDTH}
    assert max(shape[0] for shape in trainer.trained) == 5
    plain = [{"input_ids": [5] * size, "labels": 0} for size in SIZES]
    assert quadrat.batch_by_tokens(trainer_of(tmp_path, plain)).stored == 0


@pytest.mark.parametrize("multiple_of", [None, 8])
def test_multiple_choice(tmp_path, multiple_of):
    """An example takes its longest choice, as often as it has choices."""
    choices = [[SIZES[(3 * row + choice) % 64] for choice in range(4)] for row in range(48)]
    rows = []
    for row, sizes in enumerate(choices):
        padded = [padded_row(row, size) for size in sizes]
        kept = slice(max(sizes))
        rows.append({name: [encoding[name][kept] for encoding in padded] for name in ("input_ids", "attention_mask")})
        rows[-1]["label"] = row % 4
    collator = quadrat.DataCollatorForMultipleChoice(TOKENIZER, pad_to_multiple_of=multiple_of)
    trainer = trainer_of(tmp_path, datasets.Dataset.from_list(rows), collator, tiny(BertForMultipleChoice))
    plan = quadrat.batch_by_tokens(trainer)
    real = sum(4 * max(sizes) for sizes in choices)
    assert real / 48 * 8 * 0.8 < plan.max_tokens < real / 48 * 8 * 1.8
    assert plan.steps < 2 * plan.steps_before
    trainer.train()
    assert all(rows * choices * width <= plan.max_tokens for rows, choices, width in trainer.trained)
    assert sum(rows for rows, *_ in trainer.trained) == 48


def test_rows_decide_whether_they_have_choices(tmp_path):
    """A model of multiple choice may be trained on other rows; a collator of multiple choice takes none."""
    flat, model = datasets.Dataset.from_list([{"input_ids": [5] * size} for size in SIZES]), tiny(BertForMultipleChoice)
    trainer = trainer_of(tmp_path, flat, quadrat.DataCollatorWithPadding(TOKENIZER), model)
    assert quadrat.batch_by_tokens(trainer).rows == len(SIZES)
    trainer = trainer_of(tmp_path, flat, quadrat.DataCollatorForMultipleChoice(TOKENIZER), model)
    with pytest.raises(ValueError, match="DataCollatorForMultipleChoice takes rows with several choices, and row 0 of"):
        quadrat.batch_by_tokens(trainer)


def test_pairs_of_an_encoding_and_a_label(tmp_path):
    """A pair is as long as the tokens of its encoding; rows that are stored with a dimension more are refused."""
    pairs = [({"input_ids": [5] * size}, row % 2) for row, size in enumerate(SIZES)]

    def collate(rows: Any) -> Any:
        ids = quadrat.pad([encoding["input_ids"] for encoding, _ in rows], return_tensors="pt")
        return {"input_ids": ids, "labels": torch.tensor([label for _, label in rows])}

    trainer = trainer_of(tmp_path, pairs, collate)
    plan = quadrat.batch_by_tokens(trainer)
    trainer.train()
    assert all(rows * width <= plan.max_tokens for rows, width in trainer.trained)
    assert len(trainer.trained) < 1.5 * plan.steps_before
    deep = [{"input_ids": torch.full((1, size), 5), "labels": 0} for size in SIZES]
    with pytest.raises(TypeError, match="row 0 of column 'input_ids' is a Tensor of Tensors, not of tokens"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, deep, collate))


def test_a_collator_that_pads_to_one_length(tmp_path):
    constant = quadrat.DataCollatorWithPadding(TOKENIZER, padding="max_length", max_length=WIDTH)
    plain = [{"input_ids": [5] * size, "labels": 0} for size in SIZES]
    with pytest.raises(ValueError, match=r"pads each row to one length \(padding='max_length'\).*padding=True"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, plain, constant))


@pytest.mark.parametrize("reference", [False, True])
def test_triples_count_their_reference(reference):
    rows = datasets.Dataset.from_dict(
        {
            "prompt_ids": [[1, 2], [3]],
            "chosen_ids": [[4], [5, 6]],
            "rejected_ids": [[7], [8]],
            "reference_ids": [[9] * 5, []],
        }
    )
    collator = type("DataCollatorForTriplePreference", (), {"include_reference": reference})()
    assert rows_in_batches(collator, None, rows).tokens.tolist() == ([21, 9] if reference else [6, 6])
