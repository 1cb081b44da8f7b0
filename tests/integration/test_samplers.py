"""Trainer and DataLoader with quadrat's samplers in the places of those of transformers: the same losses."""

import datasets
import numpy as np
import pytest
from transformers import BertForSequenceClassification, TrainingArguments, set_seed, trainer_pt_utils

import quadrat
from quadrat._names import load
from support.strategies import make_tokenizer
from support.trainer import arguments, trained

OPTIONS = {"group_by_length": {"group_by_length": True}}
if "train_sampling_strategy" in TrainingArguments.__dataclass_fields__:
    OPTIONS = {"group_by_length": {"train_sampling_strategy": "group_by_length"}}
if hasattr(trainer_pt_utils, "BatchRebalanceSampler"):
    OPTIONS["batch_rebalance"] = {"train_sampling_strategy": "batch_rebalance"}
SAMPLERS = {"group_by_length": "LengthGroupedSampler", "batch_rebalance": "BatchRebalanceSampler"}


def rows():
    random = np.random.default_rng(0)
    lengths = random.integers(4, 20, 48)
    return datasets.Dataset.from_list(
        [{"input_ids": random.integers(3, 400, length).tolist(), "label": int(length) % 3} for length in lengths]
    )


@pytest.mark.parametrize("given_lengths", [False, True])
@pytest.mark.parametrize("strategy", OPTIONS)
def test_same_losses(strategy, given_lengths, tmp_path):
    dataset = rows().shuffle(seed=0)
    if given_lengths:
        dataset = dataset.add_column("length", quadrat.lengths(dataset))
    options = {"max_steps": 8, "gradient_accumulation_steps": 2, **OPTIONS[strategy]}

    def run():
        set_seed(1)
        collator = quadrat.DataCollatorWithPadding(make_tokenizer())
        given = arguments(tmp_path, **options)
        trainer = trained(BertForSequenceClassification, dataset, given, data_collator=collator)
        loader = trainer.get_train_dataloader()
        return trainer.losses, type(trainer._get_train_sampler()), [batch["input_ids"].shape for batch in loader]

    expected, reference, shapes = run()
    with quadrat.patch_transformers():
        got, ours, shapes_inside = run()
    assert (got, shapes_inside) == (expected, shapes)
    assert reference is getattr(trainer_pt_utils, SAMPLERS[strategy])
    assert ours is load(SAMPLERS[strategy])
