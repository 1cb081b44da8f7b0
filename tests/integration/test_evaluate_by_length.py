"""Evaluation in batches of rows of similar length: the results are those of an evaluation in order."""

from __future__ import annotations

from typing import Any

import datasets
import hypothesis
import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader
from transformers import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
)

import quadrat
from quadrat.integration.evaluate_by_length import LongestFirst, evaluate_by_length
from support.isolated import in_two
from support.strategies import make_tokenizer
from support.streams import Torch
from support.trainer import arguments, tiny

LENGTHS = [1 + 7 * number % 23 for number in range(30)]


def rows(tokens: bool = False) -> list[dict[str, Any]]:
    """The first token is the row's number."""
    return [
        {"input_ids": [number, *[5] * (n - 1)], "labels": [number % 3] * n if tokens else number % 3}
        for number, n in enumerate(LENGTHS)
    ]


class Noting(Trainer):
    """Keeps the shapes of the batches that it evaluates, and what metrics are computed from."""

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__.setdefault("shapes", []).append(tuple(inputs["input_ids"].shape))
        return super().prediction_step(model, inputs, *args, **kwargs)


def trainer_of(folder: Any, *, tokens: bool = False, cls: Any = Noting, **options: Any) -> Any:
    found: list[Any] = []

    def metrics(given: Any, compute_result: bool = True) -> dict[str, float]:
        found.append(given)
        return {"sum": float(np.asarray(given.predictions[..., 0]).sum()), "first": float(given.label_ids.flat[0])}

    model = tiny(BertForTokenClassification if tokens else BertForSequenceClassification)
    collator = (DataCollatorForTokenClassification if tokens else DataCollatorWithPadding)(make_tokenizer())
    given = arguments(folder, **{"per_device_eval_batch_size": 4, "include_for_metrics": ["inputs", "loss"], **options})
    data = rows(tokens)
    made = cls(model, given, data_collator=collator, train_dataset=data, eval_dataset=data, compute_metrics=metrics)
    made.found = found
    return made


def same(expected: Any, found: Any, where: Any = slice(None)) -> None:
    assert expected.shape == found.shape
    assert expected.dtype == found.dtype
    np.testing.assert_allclose(expected[where], found[where], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["dataset", "list"])
@pytest.mark.parametrize("tokens", [False, True], ids=["rows", "tokens"])
def test_results_are_in_order(tmp_path, form, tokens):
    data: Any = datasets.Dataset.from_list(rows(tokens)) if form == "dataset" else rows(tokens)
    before, after = (trainer_of(tmp_path, tokens=tokens) for _ in range(2))
    evaluate_by_length(after)
    expected, found = before.predict(data), after.predict(data)
    labels = expected.label_ids
    np.testing.assert_array_equal(labels, found.label_ids)
    real = labels != -100
    same(expected.predictions, found.predictions, real)
    metrics = after.found[0]
    np.testing.assert_array_equal(metrics.label_ids, labels)
    same(expected.predictions, metrics.predictions, real)
    assert metrics.inputs[:, 0].tolist() == list(range(30))
    assert metrics.losses.shape == before.found[0].losses.shape
    assert expected.metrics.keys() == found.metrics.keys()
    assert sum(np.prod(shape) for shape in after.shapes) < 0.8 * sum(np.prod(shape) for shape in before.shapes)
    assert [shape[0] for shape in after.shapes] == [shape[0] for shape in before.shapes]


def test_losses_of_rows_and_several_datasets(tmp_path):
    before, after = (trainer_of(tmp_path) for _ in range(2))
    evaluate_by_length(after)
    sets = {"all": rows(), "some": rows()[:7], "one": rows()[:1]}
    for trainer in (before, after):
        trainer.eval_dataset = sets
    for given in (None, sets, rows()[3:9]):
        expected, found = (trainer.evaluate(given) for trainer in (before, after))
        assert expected.keys() == found.keys()
        for name in expected:
            if name.endswith(("_loss", "_sum", "_first")):
                assert found[name] == pytest.approx(expected[name], rel=1e-5), name
    assert before.compute_metrics.__qualname__ == after.compute_metrics.__qualname__  # it is put back


def test_during_training_with_a_token_budget(tmp_path):
    options = {"num_train_epochs": 1, "eval_strategy": "epoch", "dataloader_num_workers": 2}
    trainer = trainer_of(tmp_path, **options)
    quadrat.batch_by_tokens(trainer, evaluation=True)
    trainer.train()
    assert trainer.found[0].inputs[:, 0].tolist() == list(range(30))
    assert trainer.shapes[0] == (4, max(LENGTHS))


def test_what_has_no_lengths_is_read_as_before(tmp_path):
    trainer = trainer_of(tmp_path)
    evaluate_by_length(trainer, "lengths_of")
    for data in (rows(), Torch(rows())):
        assert torch.tensor(trainer.predict(data).label_ids).tolist() == [row["labels"] for row in rows()]
        assert trainer.shapes[0] == (4, max(LENGTHS[:4]))
        trainer.shapes = []


def test_a_loader_of_ones_own_is_read_as_it_is(tmp_path):
    trainer = trainer_of(tmp_path)
    evaluate_by_length(trainer)
    sampler = quadrat.TokenBudgetBatchSampler(LENGTHS, 64, shuffle=False)
    loader = DataLoader(rows(), batch_sampler=sampler, collate_fn=trainer.data_collator)
    found = trainer.evaluation_loop(loader, "Prediction").label_ids
    assert found.tolist() == [number % 3 for batch in sampler for number in batch]


def losses_of_processes(sampler: Any, count: int, size: int, processes: int, **options: Any) -> float:
    """The mean loss as Trainer and accelerate compute it; that of a batch is the mean of its rows' numbers."""
    batches = BatchSampler(sampler, size, False)
    shards = [list(BatchSamplerShard(batches, processes, rank, **options)) for rank in range(processes)]
    steps = [[np.mean(shard[step]) for shard in shards for _ in shard[step]] for step in range(len(shards[0]))]
    return float(np.mean([loss for step in steps for loss in step][:count]))


@hypothesis.given(st.integers(1, 60), st.integers(1, 3), st.integers(2, 4), st.booleans())
def test_mean_losses_of_several_processes(count, each, processes, split):
    """Rows that fill the last batches of processes are those of an evaluation in order, so that they count alike."""
    lengths, size = np.random.default_rng(count).integers(1, 99, count), each * processes if split else each
    sampler = LongestFirst(lengths, each * processes)
    assert sorted(sampler) == list(range(count))
    expected, found = (
        losses_of_processes(one, count, size, processes, split_batches=split) for one in (range(count), sampler)
    )
    assert found == pytest.approx(expected)
    moved = lengths[sampler.order]
    assert np.count_nonzero(np.diff(moved) > 0) <= each * processes


@pytest.mark.slow
def test_two_processes(tmp_path):
    in_two("evaluated_in_two.py", tmp_path)


def test_metrics_that_read_padding(tmp_path, caplog):
    """What run_qa.py does: it reads the logits of all tokens, and evaluates without labels."""
    data = [{"input_ids": row["input_ids"]} for row in rows()]
    arrays = {}
    for by_length in (False, True):
        model = tiny(BertForQuestionAnswering, num_labels=2)
        collator = DataCollatorWithPadding(make_tokenizer())
        trainer = Noting(model, arguments(tmp_path, per_device_eval_batch_size=4), data_collator=collator)
        if by_length:
            evaluate_by_length(trainer)
        arrays[by_length], _ = (trainer.predict(data).predictions[0] for _ in range(2))
    assert ((arrays[False] == -100) != (arrays[True] == -100)).any()
    assert caplog.text.count("A metric that reads predictions for padding") == 1
    for tokens in (False, True):
        trainer = trainer_of(tmp_path, tokens=tokens)
        evaluate_by_length(trainer)
        trainer.evaluate()
    assert caplog.text.count("evaluation by length") == 1


class OwnLoop(Noting):
    def get_eval_dataloader(self, *args: Any) -> Any:
        return super().get_eval_dataloader(*args)


def test_what_it_cannot_do(tmp_path):
    with pytest.raises(ValueError, match="OwnLoop evaluates in its own way: it has a get_eval_dataloader of its own"):
        evaluate_by_length(trainer_of(tmp_path, cls=OwnLoop))
    trainer = trainer_of(tmp_path, batch_eval_metrics=True)
    with pytest.raises(ValueError, match=r"in order with TrainingArguments\(batch_eval_metrics=True\)"):
        quadrat.batch_by_tokens(trainer, evaluation=True)
    assert trainer.args.per_device_train_batch_size == 4  # nothing changed
    evaluate_by_length(trainer_of(tmp_path))
    trainer = trainer_of(tmp_path)
    evaluate_by_length(trainer)
    with pytest.raises(ValueError, match=r"evaluates by length already: .* make the Trainer anew"):
        evaluate_by_length(trainer)
