"""Trainer's evaluation with quadrat's container in it, predictions without padding, and lack of memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import BertForTokenClassification, Trainer, trainer_pt_utils

import quadrat
from quadrat.evaluation.containers import EvalLoopContainer
from support.compare import picture
from support.isolated import python
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny

LABELS = 3


def rows(count):
    """Token classification: rows of different lengths, some tokens without a label."""
    drawn = np.random.default_rng(0)
    examples = []
    for length in drawn.integers(2, 30, count):
        ids = drawn.integers(5, 50, length)
        labels = np.where(drawn.random(length) < 0.3, -100, ids % LABELS)
        examples.append({"input_ids": ids.tolist(), "attention_mask": [1] * int(length), "labels": labels.tolist()})
    return examples


@pytest.fixture(scope="module")
def model():
    return tiny(BertForTokenClassification, vocab_size=60, num_labels=LABELS)


@pytest.fixture
def trainer(model, tmp_path):
    def make(compute_metrics=None, **options):
        args = arguments(tmp_path, per_device_eval_batch_size=4, **options)
        collator = quadrat.DataCollatorForTokenClassification(make_tokenizer())
        return Trainer(model, args, data_collator=collator, compute_metrics=compute_metrics)

    return make


OPTIONS = [
    {}, {"eval_accumulation_steps": 1}, {"eval_accumulation_steps": 3}, {"eval_do_concat_batches": False},
    {"include_for_metrics": ["inputs", "loss"]},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_trainer_predicts_the_same(trainer, options):
    seen = []

    def metrics(prediction):
        seen.append([picture(part) for part in prediction])
        return {}

    expected = trainer(metrics, **options).predict(rows(30))
    with quadrat.patch_transformers():
        assert transformers.trainer.EvalLoopContainer is EvalLoopContainer
        patched = trainer(metrics, **options)
        assert picture(patched.predict(rows(30)).predictions) == picture(expected.predictions)
        assert picture(patched.predict(rows(30)).label_ids) == picture(expected.label_ids)
        loss = patched.evaluate(rows(30))["eval_loss"]
    assert loss == expected.metrics["test_loss"]
    assert all(pictures == seen[0] for pictures in seen)


@pytest.mark.parametrize("options", [*OPTIONS[:3], {"include_for_metrics": ["inputs", "loss"]}])
def test_metrics_without_padding(trainer, options):
    plain, ragged = [], []

    def metrics(prediction):
        plain.append(prediction)
        return {"accuracy": 0.0}

    def metrics_of_tokens(prediction):
        ragged.append(prediction)
        chosen = prediction.predictions.values.argmax(-1)
        return {"accuracy": float((chosen == prediction.label_ids.values).mean())}

    data = rows(30)
    trainer(metrics, **options).evaluate(data)
    scores = trainer(quadrat.evaluation.without_padding(metrics_of_tokens), **options).evaluate(data)
    (padded,), (kept,) = plain, ragged
    mask = padded.label_ids != -100
    assert type(kept) is type(padded)
    assert isinstance(kept.predictions, quadrat.Ragged)
    assert kept.label_ids.to_lists() == [[label for label in row["labels"] if label != -100] for row in data]
    assert np.array_equal(kept.predictions.values, padded.predictions[mask])
    assert np.array_equal(kept.predictions.offsets, kept.label_ids.offsets)
    assert scores["eval_accuracy"] == (padded.predictions.argmax(-1) == padded.label_ids)[mask].mean()
    if options.get("include_for_metrics"):
        ids = [[i for i, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100] for row in data]
        assert kept.inputs.to_lists() == ids
        assert np.array_equal(kept.losses, padded.losses)


def test_metrics_of_each_batch(trainer):
    calls = []

    def metrics(prediction, compute_result):
        assert isinstance(prediction.predictions.values, torch.Tensor)
        calls.append((len(prediction.label_ids.values), compute_result))
        return {}

    data = rows(10)
    trainer(quadrat.evaluation.without_padding(metrics), batch_eval_metrics=True).evaluate(data)
    counts = [sum(label != -100 for row in data[first : first + 4] for label in row["labels"]) for first in (0, 4, 8)]
    assert calls == list(zip(counts, [False, False, True], strict=True))


def test_what_has_no_padding_stays():
    predictions = []
    metrics = quadrat.evaluation.without_padding(lambda prediction: predictions.append(prediction) or {})
    logits, classes = np.zeros((2, 5)), np.array([1, 0])
    assert metrics(transformers.EvalPrediction(logits, classes)) == {}
    assert predictions[0].predictions is logits
    assert predictions[0].label_ids is classes
    # Generated tokens of another width than the labels, and a second array of the labels' width.
    labels = np.array([[1, 2, -100], [3, -100, -100]])
    generated = np.array([[7, 8, 9, 9], [7, -100, -100, -100]])
    hidden = np.arange(12).reshape(2, 3, 2)
    metrics(transformers.EvalPrediction((generated, {"hidden": hidden}, logits), (classes, labels)))
    tokens, named, untouched = predictions[1].predictions
    assert tokens.to_lists() == [[7, 8, 9, 9], [7]]
    assert named["hidden"].to_lists() == [[[0, 1], [2, 3]], [[6, 7]]]
    assert untouched is logits
    assert predictions[1].label_ids[0] is classes
    words = np.array([["a", "b", ""], ["c", "", ""]])
    metrics(transformers.EvalPrediction(hidden, labels, inputs=words))
    assert predictions[2].inputs is words
    assert predictions[1].label_ids[1].to_lists() == [[1, 2], [3]]


HUGE = torch.zeros(1, 1).expand(10**7, 10**7)


@pytest.mark.parametrize("library", ["pt", "np"])
@pytest.mark.parametrize("before", [1, 3])
def test_what_there_is_no_memory_for_is_not_added(library, before):
    """The first array of the batch has room, the second has not."""
    convert = (lambda value: value.numpy()) if library == "np" else lambda value: value
    container, reference = quadrat.evaluation.EvalLoopContainer(), trainer_pt_utils.EvalLoopContainer()
    for number in range(before):
        for each in (container, reference):
            each.add(tuple(map(convert, (torch.full((6, 3), float(number)),) * 2)))
    for refused in (HUGE, torch.zeros(1, 1).expand(10**7, 3 * 10**6)):
        with pytest.raises((MemoryError, RuntimeError)):
            container.add((convert(torch.zeros(300_000, 3)), convert(refused)))
    for each in (container, reference):
        each.add(tuple(map(convert, (torch.ones(6, 4), torch.ones(6, 4)))))
    assert picture(container.tensors) == picture(reference.tensors)


LIMITED = """
import resource
import torch
import quadrat

small, large = torch.ones(6, 3), torch.ones(64 << 20)
container = quadrat.evaluation.EvalLoopContainer()
for _ in range(2):
    container.add((small, small))
container.add((torch.ones(2, 3), torch.ones(2, 3)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    container.add((small, large.view(-1, 1)))
except (MemoryError, RuntimeError):
    pass
else:
    raise AssertionError("there was room")
container.add((small, small))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
first, second = container.get_arrays()
assert first.shape == second.shape == (20, 3), (first.shape, second.shape)
assert (first == 1).all() and (second == 1).all()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory is mapped")
def test_memory_that_cannot_grow():
    python("-c", LIMITED)
