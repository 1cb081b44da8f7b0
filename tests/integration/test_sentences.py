"""sentence-transformers in batches by length: the results of its own, to rounding, in the order of the texts."""

import logging
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support import standins
from support.compare import assert_close, outcome
from support.standins import texts_of

sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers, which is patched, is not installed"
)

from sentence_transformers import CrossEncoder, SentenceTransformer  # noqa: E402

from quadrat.integration import patch_pipelines, patch_sentences  # noqa: E402


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    standins.save_encoder(folder / "encoder")
    standins.save_classifier(folder / "classifier", num_labels=1)
    made = {"encode": SentenceTransformer(str(folder / "encoder"), device="cpu", prompts={"ask": "the cat "})}
    made["predict"] = CrossEncoder(str(folder / "classifier"), device="cpu")
    with torch.no_grad():
        for parameter in [*made["encode"].parameters(), *made["predict"].parameters()]:
            parameter.mul_(4)  # so that a token of another row would show
    return made


def by_length(model, call):
    """The results with the patch, and the shapes of the batches that the model got."""
    shapes = []
    hook = model[0].register_forward_pre_hook(lambda _, given: shapes.append(tuple(given[0]["input_ids"].shape)))
    try:
        with quadrat.patch_transformers(pipelines=True):
            return call(), shapes
    finally:
        hook.remove()


OPTIONS = [
    {},
    {"convert_to_tensor": True, "normalize_embeddings": True},
    {"convert_to_numpy": False, "truncate_dim": 5},
    {"output_value": "token_embeddings"},
    {"prompt": "seven dogs ", "precision": "float32"},
    {"prompt_name": "ask", "output_value": "token_embeddings"},
]


@given(
    sizes=st.lists(st.integers(0, 24), min_size=2, max_size=20),
    how=st.tuples(st.sampled_from(OPTIONS), st.sampled_from([list, tuple, np.array])),
    batch_size=st.sampled_from([1, 2, 7, 32]),
    window=st.sampled_from([3, 10, 2048]),
)
def test_encode(models, sizes, how, batch_size, window):
    options, form = how
    model, texts = models["encode"], form(texts_of(sizes))
    expected = model.encode(texts, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patch_sentences, "_WINDOW", window)
        patch.setattr(patch_sentences, "_AT_A_TIME", 4)
        found, shapes = by_length(model, lambda: model.encode(texts, batch_size=batch_size, **options))
    assert_close(found, expected)
    if window > 1000:
        longest, mean = max(width for _, width in shapes), sum(map(np.prod, shapes)) / len(sizes)
        assert all(np.prod(shape) <= max(longest, batch_size * mean + 1) for shape in shapes)
        assert [width for _, width in shapes] == sorted((width for _, width in shapes), reverse=True)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_precisions(models, precision):
    """Rounding is that of the embeddings of all texts."""
    model, texts = models["encode"], texts_of(range(1, 30))
    expected = model.encode(texts, precision=precision)
    found, shapes = by_length(model, lambda: model.encode(texts, precision=precision, batch_size=4))
    assert len(shapes) > 2
    assert found.dtype == expected.dtype
    assert (np.abs(found.astype(int) - expected.astype(int)) > 1).mean() < 0.01  # a value may be at the edge of two


@given(sizes=st.lists(st.integers(1, 12), min_size=3, max_size=20), softmax=st.booleans())
def test_predict_and_rank(models, sizes, softmax):
    model, texts = models["predict"], texts_of(sizes)
    pairs = [*pairwise(texts)]
    expected = model.predict(pairs, apply_softmax=softmax)
    found, shapes = by_length(model, lambda: model.predict(pairs, apply_softmax=softmax, batch_size=4))
    assert_close(found, expected)
    assert sum(rows for rows, _ in shapes) == len(pairs)
    ranked, _ = by_length(model, lambda: model.rank(texts[0], texts[1:]))
    scores = {one["corpus_id"]: one["score"] for one in model.rank(texts[0], texts[1:])}
    assert {one["corpus_id"]: one["score"] for one in ranked} == pytest.approx(scores, abs=1e-5)


ERRORS = [{"batch_size": 0}, {"precision": "int3"}, {"prompt_name": "unknown"}, {"unknown": 1}, {"inputs": [1, 2]}]


@pytest.mark.parametrize("options", ERRORS, ids=lambda options: next(iter(options)))
def test_errors_are_those_of_sentence_transformers(models, options):
    model, given = models["encode"], {"inputs": ["the cat", "dogs"], **options}
    expected = outcome(lambda given: model.encode(**given), given)[1]
    with pytest.raises(type(expected), match=f"^{re.escape(str(expected))}$"):
        by_length(model, lambda: model.encode(**given))


class Own(SentenceTransformer):
    pass


def test_others_stay_as_they_are(models, caplog):
    """With a warning for each reason, once, and to the bit; one text and none without a warning."""
    model, texts = models["encode"], texts_of([3, 1, 7, 2])
    own = Own(modules=list(model.children()), device="cpu")
    for reason, one, options in (("only a SentenceTransformer", own, {}), ("'all'", model, {"output_value": "all"})):
        patch_pipelines._warn_once.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "quadrat"):
            if options:
                with pytest.raises(KeyError):
                    by_length(one, lambda one=one, options=options: one.encode(texts, **options))
            else:
                found, shapes = by_length(one, lambda one=one: one.encode(texts, batch_size=2))
                assert [rows for rows, _ in shapes] == [2, 2]
                assert (found == one.encode(texts, batch_size=2)).all()
        (record,) = [record for record in caplog.records if record.name == "quadrat"]
        assert record.message.startswith(f"batches of {type(one).__name__} are as before")
        assert reason in record.message
    caplog.clear()
    for few in ("the cat", ["the cat"], []):
        assert (by_length(model, lambda few=few: model.encode(few))[0] == model.encode(few)).all()
    assert not [record for record in caplog.records if record.name == "quadrat"]


def test_padding_on_the_left_stays(models, monkeypatch):
    model, texts = models["encode"], texts_of([3, 1, 7, 2])
    monkeypatch.setattr(model.tokenizer, "padding_side", "left")
    _, shapes = by_length(model, lambda: model.encode(texts, batch_size=2))
    assert [rows for rows, _ in shapes] == [2, 2]


def test_a_loop_of_another_version(models, monkeypatch, caplog):
    """Where a loop does anything else than is known, the model's own batches are computed."""
    model, texts = models["encode"], texts_of([3, 1, 7, 2])
    expected = model.encode(texts)

    def encode(self, inputs, batch_size=32, **options):
        features = [self.tokenize(inputs[at : at + batch_size]) for at in range(0, len(inputs), batch_size)]
        return np.concatenate([model(one)["sentence_embedding"].detach().numpy() for one in features])

    monkeypatch.setattr(SentenceTransformer, "encode", encode)
    monkeypatch.delattr(SentenceTransformer, "_inference", raising=False)
    patch_pipelines._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "quadrat"):
        found, shapes = by_length(model, lambda: model.encode(texts, batch_size=2))
    assert_close(found, expected)
    assert [rows for rows, _ in shapes] == [2, 2]
    assert "another loop" in caplog.text


def test_is_off_by_default_and_undone():
    name = "_inference" if hasattr(SentenceTransformer, "_inference") else "encode"
    before = vars(SentenceTransformer)[name]
    with quadrat.patch_transformers():
        assert vars(SentenceTransformer)[name] is before
    with quadrat.patch_transformers(pipelines=True):
        assert vars(SentenceTransformer)[name] is not before
    assert vars(SentenceTransformer)[name] is before
