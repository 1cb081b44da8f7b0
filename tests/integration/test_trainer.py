"""A Trainer run with DataLoader workers: the same losses, step by step."""

import numpy as np
import pytest
import transformers
from transformers import BertForSequenceClassification, BertForTokenClassification

import quadrat
from support.compare import both
from support.strategies import make_tokenizer
from support.trainer import arguments, trained


def rows(label: str | None) -> list[dict[str, object]]:
    """label: None, "label" for one of each row or "labels" for one of each token."""
    random = np.random.default_rng(0)
    made = []
    for _ in range(48):
        ids = random.integers(3, 400, random.integers(4, 20)).tolist()
        labels = random.integers(0, 3, len(ids)).tolist() if label == "labels" else int(random.integers(0, 3))
        row = {"input_ids": ids, "token_type_ids": [0] * len(ids), "attention_mask": [1] * len(ids)}
        made.append(row if label is None else {**row, label: labels})
    return made


def assert_same_losses(collators, model_class, dataset, given):
    expected, got = (trained(model_class, dataset, given, data_collator=one).losses for one in collators)
    assert got == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "model_class", "label"),
    [
        ("DataCollatorWithPadding", BertForSequenceClassification, "label"),
        ("DataCollatorForTokenClassification", BertForTokenClassification, "labels"),
    ],
)
def test_same_losses(name, model_class, label, workers, tmp_path):
    given = arguments(tmp_path, max_steps=8, dataloader_num_workers=workers)
    assert_same_losses(both(name, make_tokenizer()), model_class, rows(label), given)


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_what_trainer_uses_by_itself(with_tokenizer, tmp_path):
    """Inside a patch a Trainer without `data_collator` collates with quadrat, to the same losses."""
    short = {"token_type_ids": [0] * 4, "attention_mask": [1] * 4}
    dataset = [{**row, "input_ids": row["input_ids"][:4], **short} for row in rows("label")]
    options = {"processing_class": make_tokenizer() if with_tokenizer else None}
    given = arguments(tmp_path, max_steps=8)
    before = trained(BertForSequenceClassification, dataset, given, **options)
    with quadrat.patch_transformers():
        inside = trained(BertForSequenceClassification, dataset, given, **options)
    for trainer, module in ((before, transformers), (inside, quadrat)):
        if with_tokenizer:
            assert type(trainer.data_collator) is module.DataCollatorWithPadding
        else:
            assert trainer.data_collator is module.default_data_collator
    assert inside.losses == before.losses
