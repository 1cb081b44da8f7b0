"""A Trainer run with DataLoader workers: the same losses, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    Trainer,
    TrainingArguments,
)

import quadrat
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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "model_class"),
    [
        ("DataCollatorWithPadding", BertForSequenceClassification),
        ("DataCollatorForTokenClassification", BertForTokenClassification),
    ],
)
def test_same_losses(name, model_class, workers, tmp_path):
    losses = []
    for module in (transformers, quadrat):
        transformers.set_seed(0)
        config = BertConfig(
            vocab_size=400,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            num_labels=3,
        )
        trainer = Losses(
            model=model_class(config),
            args=TrainingArguments(
                str(tmp_path), max_steps=8, per_device_train_batch_size=4, dataloader_num_workers=workers,
                dataloader_pin_memory=False, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True,
            ),
            train_dataset=rows(model_class is BertForTokenClassification),
            data_collator=getattr(module, name)(make_tokenizer()),
        )  # fmt: skip
        trainer.train()
        losses.append(trainer.losses)
    assert len(losses[0]) == 8
    assert losses[0] == losses[1]


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
