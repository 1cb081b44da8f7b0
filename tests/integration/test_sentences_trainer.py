"""`batch_by_tokens` of trainers of sentence-transformers: rows are texts, and lengths those of all their columns."""

import logging

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

import quadrat
from support import standins
from support.standins import texts_of

pytest.importorskip("sentence_transformers", reason="sentence-transformers, which has these trainers, is not installed")

from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

SIZES = [1 + (7 * at) % 29 for at in range(60)]
TEXTS = texts_of(SIZES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    standins.save_encoder(made / "encoder")
    standins.save_classifier(made / "pairs", num_labels=1)
    return made


def rows(count=60):
    columns = {"anchor": TEXTS[:count], "positive": TEXTS[::-1][:count], "label": [0.0, 1.0] * (count // 2)}
    return Dataset.from_dict(columns)


def trainer_of(folder, tmp_path, data=None, cls=SentenceTransformerTrainer, **options):
    model = SentenceTransformer(str(folder / "encoder"), device="cpu")
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "num_train_epochs": 2}
    args = SentenceTransformerTrainingArguments(
        str(tmp_path), **{**quiet, "per_device_train_batch_size": 6, "logging_steps": 1, "bf16": False, **options}
    )
    return cls(model, args, train_dataset=rows() if data is None else data, loss=CosineSimilarityLoss(model))


def noted(trainer):
    """The texts of each batch that a training computes, and the tokens of it with padding."""
    seen, collator = [], trainer.data_collator

    def collate(features):
        batch = collator(features)
        seen.append(([row["anchor"] for row in features], tokens_of(batch)))
        return batch

    trainer.data_collator = collate
    collate.valid_label_columns = collator.valid_label_columns
    return seen


def batches_of(trainer):
    """The notes of a training, by epoch."""
    seen = noted(trainer)
    trainer.train()
    half = len(seen) // 2
    return seen[:half], seen[half:]


def tokens_of(batch):
    return sum(batch[f"{name}_input_ids"].numel() for name in ("anchor", "positive"))


def test_batches_that_take_the_same_time(folder, tmp_path):
    trainer = trainer_of(folder, tmp_path)
    made = quadrat.batch_by_tokens(trainer, 128, attention="auto")
    assert made.attention == quadrat.batching.AttentionCost.of(trainer.model.transformers_model)
    first, second = batches_of(trainer)
    for epoch in (first, second):
        assert sorted(text for texts, _ in epoch for text in texts) == sorted(TEXTS)


def test_each_row_once_an_epoch(folder, tmp_path):
    trainer = trainer_of(folder, tmp_path)
    before = [sum(computed for _, computed in epoch) for epoch in batches_of(trainer_of(folder, tmp_path))]
    made = quadrat.batch_by_tokens(trainer)
    assert (made.rows, made.steps_before, made.changed) == (60, 10, True)
    first, second = batches_of(trainer)
    assert trainer.state.global_step == 2 * made.steps
    for epoch, usual in zip((first, second), before, strict=True):
        assert sorted(text for texts, _ in epoch for text in texts) == sorted(TEXTS)
        assert sum(computed for _, computed in epoch) < usual
    assert [texts for texts, _ in first] != [texts for texts, _ in second]


def test_lengths_are_those_of_all_columns(folder, tmp_path):
    """With prompts and the limit of a batch's tokens, as the collator has them; and the rest stays."""
    trainer = trainer_of(folder, tmp_path, prompts={"anchor": "seven dogs "})
    collator, evaluation = trainer.data_collator, rows(8)
    lengths = [tokens_of(collator([row])) for row in rows()]
    made = quadrat.batch_by_tokens(trainer, max_tokens=200)
    loader = trainer.get_train_dataloader()
    sampler = loader.batch_sampler
    assert trainer.data_collator is collator
    assert made.max_tokens == sampler.max_tokens == 200
    found = [len(batch) * max(lengths[row] for row in batch) for batch in sampler.batches().to_lists()]
    assert max(found) <= 200
    assert np.array_equal(np.sort(sampler.batches().values), np.arange(60))
    assert [len(batch["label"]) for batch in trainer.get_eval_dataloader(evaluation)] == [8]
    with pytest.raises(ValueError, match="planned already: to have other batches, make the Trainer anew"):
        quadrat.batch_by_tokens(trainer)


class Own(SentenceTransformerTrainer):
    def get_batch_sampler(self, *args, **options):
        return super().get_batch_sampler(*args, **options)


@pytest.mark.parametrize("name", ["no_duplicates", "no_duplicates_hashed", "group_by_label"])
def test_samplers_that_promise_something_stay(folder, tmp_path, name):
    trainer = trainer_of(folder, tmp_path, batch_sampler=name)
    with pytest.raises(ValueError, match=f"batch_sampler='{name}' promises which rows a batch has together"):
        quadrat.batch_by_tokens(trainer)
    assert "get_batch_sampler" not in vars(trainer)


def test_what_cannot_be_chosen(folder, tmp_path):
    trainer = trainer_of(folder, tmp_path, cls=Own)
    with pytest.raises(ValueError, match="Own chooses rows in its own way: it has a get_batch_sampler of its own"):
        quadrat.batch_by_tokens(trainer)
    several = trainer_of(folder, tmp_path, DatasetDict({"one": rows(8), "two": rows(10)}))
    with pytest.raises(ValueError, match="several datasets"):
        quadrat.batch_by_tokens(several)
    with pytest.raises(ValueError, match="batches of texts cannot be filled to a few shapes"):
        quadrat.batch_by_tokens(trainer_of(folder, tmp_path), shapes=2)
    pairs = CrossEncoderTrainer(CrossEncoder(str(folder / "pairs"), device="cpu"), train_dataset=rows())
    with pytest.raises(TypeError, match="CrossEncoderDataCollator does not tokenise its rows"):
        quadrat.batch_by_tokens(pairs)


def test_a_run_that_is_resumed(folder, tmp_path, caplog):
    """It goes on with the rows that are left of the epoch, and with the batches of the next one."""
    options = {"save_strategy": "steps", "save_steps": 3}
    whole = trainer_of(folder, tmp_path / "whole")
    quadrat.batch_by_tokens(whole)
    first, second = batches_of(whole)
    stopped = trainer_of(folder, tmp_path / "part", max_steps=len(first) + 3, **options)
    quadrat.batch_by_tokens(stopped)
    stopped.train()
    resumed = trainer_of(folder, tmp_path / "part", **options)
    quadrat.batch_by_tokens(resumed)
    seen = noted(resumed)
    caplog.set_level(logging.ERROR)
    resumed.train(resume_from_checkpoint=True)
    done = resumed.state.global_step - len(seen)
    assert [texts for texts, _ in seen] == [texts for texts, _ in (*first, *second)][done:]
    other = trainer_of(folder, tmp_path / "part", **options)
    quadrat.batch_by_tokens(other, seed=9)
    with pytest.raises(ValueError, match="seed is 9 here and 42 in the checkpoint"):
        other.train(resume_from_checkpoint=True)
