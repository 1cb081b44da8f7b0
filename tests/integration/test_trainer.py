"""A Trainer run with DataLoader workers: the same losses, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertLMHeadModel,
    Trainer,
    TrainingArguments,
)

import quadrat
from support.masking import make_masking_tokenizer
from support.strategies import make_tokenizer


class Losses(Trainer):
    """Keeps each step's loss, unrounded."""

    def compute_loss(self, *args, **kwargs):
        result = super().compute_loss(*args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        self.__dict__.setdefault("losses", []).append(loss.item())
        return result


def rows(token_labels: bool) -> list[dict[str, object]]:
    random = np.random.default_rng(0)
    made = []
    for _ in range(48):
        ids = random.integers(3, 400, random.integers(4, 20)).tolist()
        label = random.integers(0, 3, len(ids)).tolist() if token_labels else int(random.integers(0, 3))
        made.append({"input_ids": ids, "token_type_ids": [0] * len(ids), "attention_mask": [1] * len(ids),
                     "labels" if token_labels else "label": label})  # fmt: skip
    return made


def trained(model_class, dataset, workers, folder, *, steps=8, persistent=False, **options):
    """A Trainer after so many steps from the same start."""
    transformers.set_seed(0)
    config = BertConfig(
        vocab_size=400,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=3,
        is_decoder=model_class is BertLMHeadModel,
    )
    trainer = Losses(
        model=model_class(config),
        args=TrainingArguments(
            str(folder), max_steps=steps, per_device_train_batch_size=4, dataloader_num_workers=workers,
            dataloader_persistent_workers=persistent,
            dataloader_pin_memory=False, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True,
        ),
        train_dataset=dataset,
        **options,
    )  # fmt: skip
    trainer.train()
    assert len(trainer.losses) == steps
    return trainer


def losses_of(collator, model_class, dataset, workers, folder):
    return trained(model_class, dataset, workers, folder, data_collator=collator).losses


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "model_class"),
    [
        ("DataCollatorWithPadding", BertForSequenceClassification),
        ("DataCollatorForTokenClassification", BertForTokenClassification),
    ],
)
def test_same_losses(name, model_class, workers, tmp_path):
    dataset = rows(model_class is BertForTokenClassification)
    expected, got = (
        losses_of(getattr(module, name)(make_tokenizer()), model_class, dataset, workers, tmp_path)
        for module in (transformers, quadrat)
    )
    assert got == expected


def test_workers_that_stay_for_the_next_epoch(tmp_path):
    dataset = rows(False)[:16]
    expected, got = (
        trained(
            BertForSequenceClassification,
            dataset,
            2,
            tmp_path,
            data_collator=module.DataCollatorWithPadding(make_tokenizer()),
            steps=6,
            persistent=True,
        ).losses
        for module in (transformers, quadrat)
    )
    assert got == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("options", "model_class"),
    [
        ({"mlm_probability": 0.3}, BertForMaskedLM),
        ({"mlm_probability": 0.3, "seed": 7}, BertForMaskedLM),
        ({"mlm": False}, BertLMHeadModel),
    ],
)
def test_same_losses_in_language_modeling(options, model_class, workers, tmp_path):
    """Masks are drawn in the workers, from their own generators, and come out the same."""
    dataset = [{name: value for name, value in row.items() if name != "label"} for row in rows(False)]
    expected, got = (
        losses_of(
            module.DataCollatorForLanguageModeling(make_masking_tokenizer(), **options),
            model_class,
            dataset,
            workers,
            tmp_path,
        )
        for module in (transformers, quadrat)
    )
    assert got == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(method):
    features = rows(True)
    collator = quadrat.DataCollatorForTokenClassification(make_tokenizer())
    expected = [collator(features[at : at + 8]) for at in range(0, len(features), 8)]
    loader = torch.utils.data.DataLoader(
        features, batch_size=8, collate_fn=collator, num_workers=2, multiprocessing_context=method
    )
    for batch, right in zip(loader, expected, strict=True):
        assert list(batch) == list(right)
        assert all(torch.equal(batch[name], right[name]) for name in right)


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_what_trainer_uses_by_itself(with_tokenizer, tmp_path):
    """Inside a patch a Trainer without `data_collator` collates with quadrat, to the same losses."""
    short = {"token_type_ids": [0] * 4, "attention_mask": [1] * 4}
    dataset = [{**row, "input_ids": row["input_ids"][:4], **short} for row in rows(False)]
    options = {"processing_class": make_tokenizer() if with_tokenizer else None}
    before = trained(BertForSequenceClassification, dataset, 0, tmp_path, **options)
    with quadrat.patch_transformers():
        inside = trained(BertForSequenceClassification, dataset, 0, tmp_path, **options)
    for trainer, module in ((before, transformers), (inside, quadrat)):
        if with_tokenizer:
            assert type(trainer.data_collator) is module.DataCollatorWithPadding
        else:
            assert trainer.data_collator is module.default_data_collator
    assert inside.losses == before.losses
