"""Pipelines in batches by length: the results of `batch_size=1`, to rounding, in the order of the inputs."""

import functools
import inspect
import itertools
import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    TextClassificationPipeline,
    TextGenerationPipeline,
    pipeline,
    set_seed,
)
from transformers.pipelines.base import ChunkPipeline, Pipeline
from transformers.pipelines.pt_utils import KeyDataset

import quadrat
from quadrat.integration import patch_pipelines
from support import standins
from support.compare import assert_close
from support.standins import texts_of

TASKS = {
    "text-classification": (BertForSequenceClassification, {}),
    "token-classification": (BertForTokenClassification, {"aggregation_strategy": "simple", "stride": 2}),
    "feature-extraction": (BertModel, {}),
    "fill-mask": (BertForMaskedLM, {"top_k": 2}),
    "zero-shot-classification": (BertForSequenceClassification, {"candidate_labels": ["cats", "seven dogs", "Paris"]}),
}
# One that takes inputs by position: some releases take a question and a context alone.
asking = getattr(transformers, "QuestionAnsweringPipeline", None)
if asking is not None and "args" in inspect.signature(asking.__call__).parameters:
    more = {"max_seq_len": 16, "doc_stride": 4, "max_question_len": 6}
    TASKS["question-answering"] = (transformers.BertForQuestionAnswering, more)


@functools.cache
def model_of(task):
    set_seed(0)
    labels = {"id2label": {0: "no", 1: "B-X", 2: "I-X"}, "label2id": {"entailment": 0, "B-X": 1, "I-X": 2}}
    model = TASKS[task][0](standins.encoder_config(**({} if task.startswith("question") else labels))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # so that a token of another row would show
    return model


def pipe(task, tokenizer=None, **options):
    tokenizer = tokenizer or standins.encoder_tokenizer(model_max_length=16 if task.startswith("token") else 64)
    return pipeline(task, model_of(task), tokenizer=tokenizer, device="cpu", **TASKS[task][1], **options)


def inputs_of(task, sizes):
    """As many inputs, each of so many words."""
    texts = texts_of(sizes)
    if task == "question-answering":
        return [{"question": "who sat", "context": text or "a"} for text in texts]
    return [f"{text} [MASK]" for text in texts] if task == "fill-mask" else texts


def given_as(form, inputs):
    if form == "dataset":
        return KeyDataset([{"text": one} for one in inputs], "text")
    return inputs if form == "list" else (one for one in inputs)


def batches_of(run, *args, **options):
    """The results of a pipeline with the patch, and the shapes of the batches that its model got."""
    shapes, forward = [], run.forward
    run.forward = lambda batch, **more: (shapes.append(tuple(batch["input_ids"].shape)), forward(batch, **more))[1]
    try:
        with quadrat.patch_transformers(pipelines=True):
            found = run(*args, **options)
            return (found if isinstance(found, (list, dict)) else list(found)), shapes
    finally:
        del run.forward


@pytest.mark.filterwarnings("ignore:Passing a list of SQuAD examples", "ignore:__array__ implementation")
@pytest.mark.parametrize("task", TASKS)
@given(
    sizes=st.lists(st.integers(1, 24), min_size=2, max_size=20),
    form=st.sampled_from(["list", "dataset", "generator"]),
    batch_size=st.sampled_from([1, 2, 7]),
    window=st.sampled_from([1, 3, 10, 2048]),
)
def test_results_are_those_of_each_input_alone(task, sizes, form, batch_size, window):
    inputs = inputs_of(task, sizes)
    expected = pipe(task)(inputs)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_WINDOW", "_FEATURES"):
            patch.setattr(patch_pipelines, name, window)
        found, shapes = batches_of(pipe(task, batch_size=batch_size), given_as(form, inputs))
    assert_close(found, expected)
    if window > 1000:
        rows, longest = sum(rows for rows, _ in shapes), max(width for _, width in shapes)
        usual = 32 if batch_size == 1 else batch_size
        mean = sum(np.prod(shape) for shape in shapes) / rows  # at least that of the lengths
        assert all(np.prod(shape) <= max(longest, usual * mean + 1) for shape in shapes)
        assert [width for _, width in shapes] == sorted((width for _, width in shapes), reverse=True)


def test_inputs_that_no_batch_can_have():
    """Rows without a mask or of several texts are computed alone; one input as without the patch."""
    run = pipe("feature-extraction", batch_size=4)
    for texts, options in (
        (inputs_of("feature-extraction", [1, 5, 2]), {"return_attention_mask": False}),
        ([["the cat", "a mat on"], ["dogs", "in Paris"]], {"padding": True}),
    ):
        single = {"tokenize_kwargs": options, "batch_size": 1}
        found, shapes = batches_of(run, texts, **single)
        assert len(shapes) == len(texts)
        assert_close(found, run(texts, **single))
    labels = pipe("zero-shot-classification")
    for one in ("the cat", ["the cat"]):
        found, shapes = batches_of(labels, one)
        assert_close(found, labels(one))
        assert len(shapes) == 3


def test_features_as_tensors():
    run, texts = pipe("feature-extraction"), inputs_of("feature-extraction", [1, 9, 4])
    found, shapes = batches_of(run, texts, return_tensors=True)
    assert len(shapes) == 1
    for one, other in zip(found, run(texts, return_tensors=True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def reads_one_by_one():
    """True if transformers itself gives the first result of a generator before it has read the last input."""
    read = []
    results = iter(pipe("text-classification")(read.append(text) or text for text in ["the cat"] * 9))
    return bool(next(results)) and len(read) < 9


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_an_endless_generator_and_interrupts(task, monkeypatch):
    """The results of a window come when it was read; after an interrupt, and after an error, the next ones come."""
    if not reads_one_by_one():
        pytest.skip("this release of transformers reads a generator to its end first")
    monkeypatch.setattr(patch_pipelines, "_WINDOW", 4)
    read, failures = [], [None, None, KeyboardInterrupt(), RuntimeError("busy"), *[None] * 99]
    inputs = inputs_of(task, [3, 1, 7, 2, 9, 5, 1, 1, 4])
    tokenizer = standins.encoder_tokenizer()
    run = pipe(task, tokenizer, batch_size=2)
    expected, forward = pipe(task, tokenizer)(inputs), run.forward

    def failing(batch, **options):
        if (failure := failures.pop(0)) is not None:
            raise failure
        return forward(batch, **options)

    def source():
        for at in itertools.count():
            read.append(at)
            yield inputs[at % len(inputs)]

    run.forward = failing
    with quadrat.patch_transformers(pipelines=True):
        results, found, errors = iter(run(source())), [], []
        while len(found) < len(inputs):
            try:
                found.append(next(results))
            except (KeyboardInterrupt, RuntimeError) as error:
                errors.append(error)
            assert len(read) <= 4 * (1 + len(found) // 4)
    assert_close(found, expected)
    assert [type(error) for error in errors] == [KeyboardInterrupt, RuntimeError]
    said = "".join(getattr(errors[1], "__notes__", errors[1].args))
    assert "the batch has row" in said
    assert ("rows are parts of inputs here: row" in said) == task.startswith("token")


def test_an_input_that_is_refused():
    """The results before it come first, then the error of transformers, and then the rest."""
    run, texts = pipe("text-classification", batch_size=2), inputs_of("text-classification", [3, 1, 7, 2])
    inputs = [*texts[:2], ["a", "b"], *texts[2:]]
    data = KeyDataset([{"text": one} for one in inputs], "text")
    with pytest.raises(ValueError, match="invalid inputs") as expected:
        list(pipe("text-classification")(data))
    with quadrat.patch_transformers(pipelines=True):
        results = iter(run(data))
        found = [next(results), next(results)]
        with pytest.raises(ValueError, match="invalid inputs") as raised:
            next(results)
        found += [next(results), next(results)]
    assert str(raised.value) == str(expected.value)
    assert_close(found, pipe("text-classification")(texts))


@pytest.mark.parametrize("task", [task for task in TASKS if not task.startswith("question")])
@pytest.mark.parametrize("attention", [{"attn_implementation": "eager"}, {}])
def test_outputs_that_do_not_split_into_rows_are_left_out(task, attention):
    """States and attentions of layers, which some releases of transformers cannot take apart, and no pipeline reads."""
    inputs = inputs_of(task, [3, 1, 7, 2, 9, 1])
    expected, run = pipe(task)(inputs), pipe(task, batch_size=3)
    config = standins.encoder_config(output_attentions=True, output_hidden_states=True, **attention)
    config.id2label, config.label2id = run.model.config.id2label, run.model.config.label2id
    run.model = TASKS[task][0](config).eval()
    run.model.load_state_dict(model_of(task).state_dict())
    found, shapes = batches_of(run, inputs)
    assert_close(found, expected)
    assert len(shapes) < sum(rows for rows, _ in shapes)


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_a_generator_that_is_read_in_two_loops(task):
    """The second loop goes on where the first one was left, though inputs were read ahead; lists begin anew."""
    inputs = inputs_of(task, [3, 1, 7, 2, 9, 1, 4])
    expected = pipe(task)(inputs)
    with quadrat.patch_transformers(pipelines=True):
        results = pipe(task, batch_size=2)(one for one in inputs)
        first = list(itertools.islice(results, 3))
        assert_close(first + list(results), expected)
        assert list(results) == []
        again = pipe(task, batch_size=2)(KeyDataset([{"text": one} for one in inputs], "text"))
        assert_close(list(itertools.islice(again, 3)), expected[:3])
        assert_close(list(again), expected)


class Own(TextClassificationPipeline):
    pass


def test_others_stay_as_they_are(caplog):
    """With a warning for each reason, once, and to the bit."""
    patch_pipelines._warn_once.cache_clear()
    texts, model = inputs_of("text-classification", [3, 1, 7, 2]), model_of("text-classification")
    decoders = standins.decoder_tokenizer(padding_side="left")
    encoders = standins.encoder_tokenizer
    runs = {
        "it generates": TextGenerationPipeline(standins.decoder(), decoders, max_new_tokens=2, do_sample=False),
        "only encoder": Own(model=model, tokenizer=encoders(), batch_size=2),
        "on the left": pipe("text-classification", encoders(padding_side="left"), batch_size=2),
        r"pad_token_id \(None\)": pipe("text-classification", encoders(pad_token=None)),
    }
    for reason, run in runs.items():
        expected = run(texts)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "quadrat"), quadrat.patch_transformers(pipelines=True):
            assert run(texts) == expected
            assert list(run(one for one in texts)) == expected
        (record,) = [one for one in caplog.records if one.name == "quadrat"]
        assert re.search(f"^batches of .* are as before: .*{reason}", record.message)


def test_errors_of_options_are_those_of_transformers():
    with quadrat.patch_transformers(pipelines=True), pytest.raises(ValueError, match="a positive integer"):
        pipe("text-classification", batch_size=0)(["the cat", "dogs"])


def test_is_off_by_default_and_undone():
    before = Pipeline.get_iterator, ChunkPipeline.get_iterator
    with quadrat.patch_transformers():
        assert (Pipeline.get_iterator, ChunkPipeline.get_iterator) == before
    with quadrat.patch_transformers(pipelines=True):
        assert Pipeline.get_iterator is not before[0]
    assert (Pipeline.get_iterator, ChunkPipeline.get_iterator) == before


def test_a_budget_is_a_function_of_lengths():
    rows = [{"input_ids": [1] * size} for size in (3, 1, 4, 1, 5)]
    told = SimpleNamespace(lengths=[])

    def budget(lengths):
        told.lengths.append(lengths.tolist())
        return 5

    results = quadrat.batching.map_by_length(
        lambda batch: [len(row["input_ids"]) for row in batch], iter(rows), collator=list, max_tokens=budget, window=2
    )
    assert list(results) == [3, 1, 4, 1, 5]
    assert told.lengths == [[3, 1], [4, 1], [5]]
