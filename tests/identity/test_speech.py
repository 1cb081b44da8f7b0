"""The collators of speech == those that transformers' example scripts define, written plainly here."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Wav2Vec2BertProcessor,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Processor,
    WhisperFeatureExtractor,
)

import quadrat
from quadrat.installed.behaviour import only_hands_on
from support.compare import assert_same_outcome, frozen, outcome
from support.speech import CTC, Seq2Seq
from support.strategies import make_tokenizer


class OwnWay(Wav2Vec2FeatureExtractor):
    def _pad(self, *args: Any, **options: Any) -> Any:
        return super()._pad(*args, **options) | {"more": np.zeros(1)}


class OwnPad(Wav2Vec2Processor):
    def pad(self, *args: Any, **options: Any) -> Any:
        batch = super().pad(*args, **options)
        batch["own"] = len(args)
        return batch


class Whisper:
    """What the collator uses of a `WhisperProcessor`, whose tokenizer has to have files."""

    def __init__(self, **options: Any) -> None:
        self.feature_extractor, self.tokenizer = WhisperFeatureExtractor(2, **options), make_tokenizer()
        self.model_input_names = ["input_features", "input_ids", "attention_mask"]


def processor(cls: Any = Wav2Vec2Processor, **options: Any) -> Any:
    return cls(Wav2Vec2FeatureExtractor(**options), make_tokenizer())


def read_as_dataset(rows: Any, **types: Any) -> Any:
    """The rows as `datasets` gives them, and as a patched one does."""
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(rows)
    for name, kind in types.items():
        dataset = dataset.cast_column(name, kind)
    places = list(range(len(rows)))
    plain = dataset.__getitems__(places)
    with quadrat.data.patch_datasets():
        return plain, dataset.__getitems__(places)


CLIPS = {
    "list": lambda numbers: [float(one) for one in numbers],
    "array": lambda numbers: np.array(numbers, np.float32),
    "double": lambda numbers: np.array(numbers, np.float64),
    "tensor": torch.tensor,
}
LABELS = st.lists(st.sampled_from([1, 2, 5, 6]), min_size=1, max_size=5)


@st.composite
def batches(draw: Any) -> Any:
    make = CLIPS[draw(st.sampled_from(sorted(CLIPS)))]
    count = draw(st.integers(1, 4))
    width = draw(st.sampled_from([None, 3]))
    rows = []
    for i in range(count):
        size = draw(st.integers(1, 6)) if width is None else width
        row = {"input_values": make([(i + k) / 8 for k in range(size)]), "labels": draw(LABELS)}
        rows.append(row | {"attention_mask": [1] * (width or size), "text": "abc"})
    if draw(st.booleans()):
        rows = [row | {"labels": [5, *row["labels"]]} for row in rows]
    if draw(st.integers(0, 5)) == 0:
        rows[-1].pop(draw(st.sampled_from(["input_values", "labels", "attention_mask"])))
    return rows


def assert_same(reference: Any, collator: Any, rows: Any, given: Any = None) -> None:
    before = frozen(rows)
    expected = outcome(reference, rows)
    for _ in range(2):
        got = outcome(collator, rows if given is None else given)
        assert_same_outcome(expected, got)
        if expected[0] == "raised":
            assert str(got[1].args[0]).startswith(str(expected[1].args[0]))
    assert frozen(rows) == before


@given(
    batches(),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "padding": st.sampled_from([True, "longest", False, "do_not_pad", "wrong"]),
            "pad_to_multiple_of": st.sampled_from([None, 4]),
            "pad_to_multiple_of_labels": st.sampled_from([None, 4]),
        },
    ),
)
def test_ctc(rows, masks, options):
    made = processor(return_attention_mask=masks)
    assert_same(CTC(made, **options), quadrat.speech.DataCollatorCTCWithPadding(made, **options), rows)


@given(batches(), st.booleans(), st.booleans())
def test_seq2seq(rows, masks, forward):
    made = processor(return_attention_mask=masks)
    assert_same(Seq2Seq(made, 5, forward), quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(made, 5, forward), rows)


def test_a_dimension_too_many_is_a_warning(caplog):
    """The reference makes a batch of four dimensions where the model takes three."""
    made = processor(feature_size=2)
    collator = quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(made, 5, False)
    rows = [{"input_values": np.ones((1, 3, 2), np.float32), "labels": [5, 6]}] * 2
    for _ in range(2):
        assert_same(Seq2Seq(made, 5, False), collator, rows)
    collator([{**row, "input_values": row["input_values"][0]} for row in rows])
    (said,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "column 'input_values', row 0 has shape (1, 3, 2), a batch of one clip; take the clip out" in said.message


ROWS = [
    {"input_values": [0.5, 0.25, 1.0], "labels": [5, 6], "attention_mask": [1, 1, 0], "more": 1},
    {"input_values": [0.125], "labels": [5, 1, 2], "attention_mask": [1, 0, 0], "more": 2},
]


def both_kinds(made: Any, forward: bool) -> Any:
    """The reference's collator and quadrat's, of each kind."""
    yield CTC(made), quadrat.speech.DataCollatorCTCWithPadding(made)
    yield Seq2Seq(made, 5, forward), quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(made, 5, forward)


@pytest.mark.parametrize("masks", [False, True])
def test_rows_of_a_dataset_are_read_in_place(masks):
    datasets = pytest.importorskip("datasets")
    for reference, collator in both_kinds(processor(return_attention_mask=masks), True):
        plain, rows = read_as_dataset(ROWS, input_values=datasets.Sequence(datasets.Value("float32")))
        assert_same(reference, collator, plain, rows)
        assert not rows.handed_out
        table = datasets.Dataset.from_list(ROWS).with_format("arrow")[:]
        assert_same(reference, collator, ROWS, table)
        assert_same(reference, collator, ROWS, {name: [row[name] for row in ROWS] for name in ROWS[0]})


def test_spectrograms():
    made, random = Whisper(return_attention_mask=True), np.random.default_rng(0)
    for make in (lambda shape: random.random(shape, np.float32), random.random, torch.rand):
        rows = [{"input_features": make((2, 9)), "labels": [5, i], "attention_mask": [1] * 9} for i in range(3)]
        for forward in (False, True):
            _, collators = both_kinds(made, forward)
            assert_same(*collators, rows)


def test_processors_and_extractors_that_pad_in_their_own_way_do_it():
    for made in (processor(OwnPad), Wav2Vec2Processor(OwnWay(), make_tokenizer())):
        for reference, collator in both_kinds(made, False):
            assert_same(reference, collator, ROWS)
    assert "own" in quadrat.speech.DataCollatorCTCWithPadding(processor(OwnPad))(ROWS)
    one = processor()
    one.pad = lambda *_, **options: {"input_ids": torch.zeros(1), **options}
    assert_same(CTC(one), quadrat.speech.DataCollatorCTCWithPadding(one), ROWS)


def test_a_missing_column_is_named():
    collator = quadrat.speech.DataCollatorCTCWithPadding(processor())
    for name in ("input_values", "labels"):
        rows = [{key: value for key, value in row.items() if key != name} for row in ROWS]
        for form in (rows, {key: [row[key] for row in rows] for key in rows[0]}):
            with pytest.raises(KeyError, match=name):
                collator(form)


@given(batches(), st.sampled_from([torch.bfloat16, torch.float16, torch.float64]), st.booleans())
def test_clips_are_cast(rows, dtype, own):
    """As those of the same collator, cast; also where the extractor pads in its own way."""
    made = Wav2Vec2Processor(OwnWay(), make_tokenizer()) if own else processor()
    for name, options in (("DataCollatorCTCWithPadding", ()), ("DataCollatorSpeechSeq2SeqWithPadding", (5, False))):
        cls = getattr(quadrat.speech, name)
        expected = outcome(cls(made, *options), rows)
        got = outcome(cls(made, *options, dtypes={"input_values": dtype}), rows)
        if expected[0] != "raised":
            expected[1]["input_values"] = expected[1]["input_values"].to(dtype)
        assert_same_outcome(expected, got)


def test_only_clips_are_cast():
    for dtypes, said in (
        ({"labels": "float32"}, "leave 'labels' out"),
        ({"input_values": "int8"}, "a dtype of floats"),
    ):
        with pytest.raises(ValueError, match=said):
            quadrat.speech.DataCollatorCTCWithPadding(processor(), dtypes=dtypes)(ROWS)


@pytest.mark.parametrize("cls", [Wav2Vec2Processor, Wav2Vec2BertProcessor])
def test_clips_are_padded_in_compiled_code(cls):
    assert only_hands_on(cls.pad)
    quadrat.stats(reset=True)
    quadrat.speech.DataCollatorCTCWithPadding(processor())(ROWS)
    quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(processor(), 5, False)(ROWS)
    assert quadrat.stats()[:3] == (2, 0, 0)
