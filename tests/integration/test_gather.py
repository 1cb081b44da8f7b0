"""Trainer's evaluation with quadrat's container in it, and predictions without padding."""

import copy
import pickle

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertForTokenClassification, Trainer, trainer_pt_utils

import quadrat
from quadrat.evaluation.containers import EvalLoopContainer
from support.compare import picture
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny

LABELS = 3


def rows(count):
    """Token classification: rows of different lengths, some tokens without a label."""
    drawn = np.random.default_rng(0)
    made = []
    for length in drawn.integers(2, 30, count):
        ids = drawn.integers(5, 50, length)
        labels = np.where(drawn.random(length) < 0.3, -100, ids % LABELS)
        made.append({"input_ids": ids.tolist(), "attention_mask": [1] * int(length), "labels": labels.tolist()})
    return made


@pytest.fixture(scope="module")
def model():
    return tiny(BertForTokenClassification, vocab_size=60, num_labels=LABELS)


@pytest.fixture
def trainer(model, tmp_path):
    def make(compute_metrics=None, **options):
        given = arguments(tmp_path, per_device_eval_batch_size=4, **options)
        collator = quadrat.DataCollatorForTokenClassification(make_tokenizer())
        return Trainer(model, given, data_collator=collator, compute_metrics=compute_metrics)

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
    assert all(one == seen[0] for one in seen)


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
    said = trainer(quadrat.evaluation.without_padding(metrics_of_tokens), **options).evaluate(data)
    (padded,), (kept,) = plain, ragged
    mask = padded.label_ids != -100
    assert type(kept) is type(padded)
    assert isinstance(kept.predictions, quadrat.Ragged)
    assert kept.label_ids.to_lists() == [[label for label in row["labels"] if label != -100] for row in data]
    assert np.array_equal(kept.predictions.values, padded.predictions[mask])
    assert np.array_equal(kept.predictions.offsets, kept.label_ids.offsets)
    assert said["eval_accuracy"] == (padded.predictions.argmax(-1) == padded.label_ids)[mask].mean()
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
    made = []
    metrics = quadrat.evaluation.without_padding(lambda prediction: made.append(prediction) or {})
    logits, classes = np.zeros((2, 5)), np.array([1, 0])
    assert metrics(transformers.EvalPrediction(logits, classes)) == {}
    assert made[0].predictions is logits
    assert made[0].label_ids is classes
    # Generated tokens of another width than the labels, and a second array of the labels' width.
    labels = np.array([[1, 2, -100], [3, -100, -100]])
    generated = np.array([[7, 8, 9, 9], [7, -100, -100, -100]])
    hidden = np.arange(12).reshape(2, 3, 2)
    metrics(transformers.EvalPrediction((generated, {"hidden": hidden}, logits), (classes, labels)))
    tokens, named, untouched = made[1].predictions
    assert tokens.to_lists() == [[7, 8, 9, 9], [7]]
    assert named["hidden"].to_lists() == [[[0, 1], [2, 3]], [[6, 7]]]
    assert untouched is logits
    assert made[1].label_ids[0] is classes
    words = np.array([["a", "b", ""], ["c", "", ""]])
    metrics(transformers.EvalPrediction(hidden, labels, inputs=words))
    assert made[2].inputs is words
    assert made[1].label_ids[1].to_lists() == [[1, 2], [3]]


STEPS = st.tuples(st.integers(1, 3), st.integers(0, 5), st.booleans(), st.booleans())
# -100, which pads in the reference, is no uint8.
DTYPES = st.sampled_from([["uint8"], ["float32"], ["float32", "float64"], ["float64", "float32"]])


@given(
    st.lists(STEPS, min_size=1, max_size=6),
    DTYPES,
    st.sampled_from([(), (2,)]),
    st.sampled_from([dict, transformers.BatchEncoding]),
)
def test_ragged_containers(batches, dtypes, inner, mapping):
    """Nothing is padded; rows are as long as they were, of the dtype that the reference's have."""
    container, reference = quadrat.evaluation.EvalLoopContainer(ragged=True), trainer_pt_utils.EvalLoopContainer()
    assert container.get_arrays() is None
    added = []
    for number, (rows, width, moves, looks) in enumerate(batches):
        dtype = getattr(torch, dtypes[number % len(dtypes)])
        added.append(torch.arange(rows * width * 2 ** len(inner)).reshape(rows, width, *inner).to(dtype))
        container.add(mapping({"logits": added[-1], "classes": torch.ones(rows)}))
        if moves:
            container.to_cpu_and_numpy()
        if looks:
            assert container.get_arrays()["logits"].to_lists() == [row.tolist() for one in added for row in one]
        if dtypes != ["uint8"]:
            reference.add(added[-1])
    arrays = container.get_arrays()
    assert type(arrays) is mapping
    assert arrays["classes"].tolist() == [1] * sum(rows for rows, *_ in batches)
    assert arrays["logits"].to_lists() == [row.tolist() for one in added for row in one]
    if dtypes != ["uint8"]:
        padded = reference.get_arrays()
        assert arrays["logits"].values.dtype == padded.dtype
        assert np.array_equal(quadrat.pad(arrays["logits"], padding_value=-100), padded)


def test_a_ragged_container_goes_on():
    container, reference = quadrat.evaluation.EvalLoopContainer(ragged=True), trainer_pt_utils.EvalLoopContainer()
    for width in (3, 5, 4):
        for each in (container, reference):
            each.add(torch.full((2, width), float(width)))
        before = container.get_arrays()
        lists = before.to_lists()
    container.ragged = False
    assert np.array_equal(container.get_arrays(), reference.get_arrays())
    assert before.to_lists() == lists
    container.ragged = True
    assert container.get_arrays().to_lists() == reference.get_arrays().tolist()
    # What has to be joined at once has no rows of its own any more.
    for each in (container, reference):
        each.add(torch.ones(2, 5, dtype=torch.float64))
    assert container.get_arrays().to_lists() == reference.get_arrays().tolist()


@pytest.mark.parametrize("looked_at", [False, True])
def test_what_a_ragged_container_refuses_changes_nothing(looked_at):
    container = quadrat.evaluation.EvalLoopContainer(ragged=True)
    for width in (3, 2):
        container.add((torch.ones(1, width, 2),))
    if looked_at:
        container.get_arrays()
    for error, batch in [
        (ValueError, (torch.ones(1, 3, 4),)),
        (ValueError, (torch.ones(1, 3, 1),)),  # NumPy would spread it
        (AssertionError, [torch.ones(1, 3, 2)]),
    ]:
        with pytest.raises(error):
            container.add(batch)
    container.add((torch.ones(1, 4, 2),))
    assert container.get_arrays()[0].lengths.tolist() == [3, 2, 4]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda container: pickle.loads(pickle.dumps(container))])
def test_copies_of_ragged_containers(how):
    container = quadrat.evaluation.EvalLoopContainer(ragged=True)
    for width in (3, 2):
        container.add((torch.ones(1, width, 2), torch.ones(1)))
    other = how(container)
    other.add((torch.ones(2, 4, 2), torch.ones(2)))
    container.add((torch.zeros(1, 1, 2), torch.zeros(1)))
    assert [rows.lengths.tolist() for rows in (container.arrays[0], other.arrays[0])] == [[3, 2, 1], [3, 2, 4, 4]]
    assert (other.arrays[0].values == 1).all()
    assert other.arrays[1].tolist() == [1] * 4
