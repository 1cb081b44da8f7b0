"""With everything patched, what else transformers and TRL do is what it was."""

import copy
import inspect
import logging
import pickle
import warnings
from typing import Any

import datasets
import pytest
from transformers import (
    AutoTokenizer,
    BatchEncoding,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedTokenizerBase,
    TextGenerationPipeline,
    pipeline,
    set_seed,
)
from transformers.pipelines.pt_utils import KeyDataset

from support import standins
from support.compare import frozen, outcome
from support.patched import assert_unchanged, everything_patched, picture, unchanged
from support.standins import TEXTS

SOME = TEXTS[:7]  # one batch of four, and part of another
LABELS = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}}


def pipe(task: str, **options: Any) -> Any:
    models = {
        "text-classification": (BertForSequenceClassification, {}),
        "zero-shot-classification": (BertForSequenceClassification, {"label2id": {"entailment": 0, "no": 1, "yes": 2}}),
        "token-classification": (BertForTokenClassification, {}),
        "fill-mask": (BertForMaskedLM, {}),
        "feature-extraction": (BertForMaskedLM, {}),
    }
    cls, settings = models[task]
    set_seed(0)
    model = cls(standins.encoder_config(**LABELS, **settings)).eval()
    return pipeline(task, model, tokenizer=standins.encoder_tokenizer(), **options)


def texts() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "number": list(range(len(TEXTS)))})


sizes = pytest.mark.parametrize("size", [1, 4])


@sizes
@unchanged
def test_text_classification(size):
    run = pipe("text-classification", batch_size=size)
    streamed = list(run((text.upper() for text in SOME), top_k=None)), list(run(KeyDataset(texts(), "text")))
    pairs = run([{"text": text, "text_pair": other} for text, other in zip(SOME, SOME[::-1], strict=True)])
    return frozen([run(SOME), run(SOME[3]), streamed, pairs, run(SOME, padding=True, max_length=6, truncation=True)])


@sizes
@unchanged
def test_token_classification(size):
    run = pipe("token-classification", batch_size=size)
    plain = [run(SOME, aggregation_strategy=how) for how in ("none", "simple", "first")]
    strided = pipe("token-classification", batch_size=size, stride=2, aggregation_strategy="simple")
    strided.tokenizer.model_max_length = 8
    return frozen([plain, strided(SOME)])


@sizes
@unchanged
def test_fill_mask_and_features(size):
    masked = [f"{text} [MASK]" for text in SOME] + ["the [MASK] sat on [MASK]"]
    features = pipe("feature-extraction", batch_size=size)
    filled = pipe("fill-mask", batch_size=size)(masked)
    return frozen([filled, features(SOME), features(SOME, return_tensors=True)])


@sizes
@unchanged
def test_zero_shot_classification(size):
    run = pipe("zero-shot-classification", batch_size=size)
    return frozen(run(SOME, candidate_labels=["cats", "seven dogs", "Paris"], multi_label=True))


@sizes
@unchanged
def test_text_generation(size):
    tokenizer = standins.decoder_tokenizer(padding_side="left")
    run = TextGenerationPipeline(standins.decoder(), tokenizer, batch_size=size)
    chats = [[{"role": "user", "content": text}] for text in SOME]
    options = {"max_new_tokens": 4, "do_sample": False}
    sampled = run(SOME, max_new_tokens=4, do_sample=True, num_return_sequences=2)
    return frozen([run(SOME, **options), run(chats, **options), sampled])


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}], ids=str)
@unchanged
def test_generation_with_padding_on_the_left(options):
    model = standins.decoder()
    tokenizer = standins.decoder_tokenizer(padding_side="left")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    padded = tokenizer.pad(tokenizer(TEXTS), padding=True, return_tensors="pt")
    chats = [[{"role": "user", "content": text}] for text in TEXTS]
    templated = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    generated = [model.generate(**inputs, max_new_tokens=5, **options) for inputs in (batch, padded, templated)]
    return frozen([*map(dict, (batch, padded, templated)), generated, tokenizer.batch_decode(generated[0])])


@unchanged
def test_tokenizers(tmp_path):
    """What tokenizers give besides tensors, and what is written of them."""
    tokenizer = standins.encoder_tokenizer()
    encoding = tokenizer(TEXTS[3], TEXTS[5], return_tensors="pt")
    asked = [
        encoding.tokens(),
        encoding.word_ids(),
        encoding.sequence_ids(),
        encoding.char_to_token(4),
        encoding.n_sequences,
        encoding.is_fast,
    ]
    moved = encoding.to("cpu")
    ids = [tokenizer.encode(TEXTS[2], return_tensors=framework) for framework in (None, "np", "pt")]
    wrong = [
        outcome(lambda texts: tokenizer(texts, return_tensors="pt"), TEXTS),
        outcome(lambda texts: tokenizer(texts, return_tensors="nothing"), TEXTS),
        outcome(lambda rows: tokenizer.pad(rows, return_tensors="pt"), [{"ids": [1]}]),
    ]
    told = [(type(value), str(value) if kind == "raised" else dict(value)) for kind, value in wrong]
    folder = tmp_path / "saved"
    tokenizer.save_pretrained(folder)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    again = AutoTokenizer.from_pretrained(folder)
    same = dict(again(TEXTS, padding=True, return_tensors="pt"))
    return frozen([asked, dict(moved), ids, *told, files, same])


def test_pickles_and_copies():
    """Of tokenizers and what they give: equal bytes, and what was pickled inside is loaded outside."""
    tokenizer = standins.encoder_tokenizer()

    def job():
        batches = [tokenizer(TEXTS, padding=True, return_tensors=framework) for framework in (None, "np")]
        pickled = pickle.dumps(tokenizer), *map(pickle.dumps, batches)
        copied = [copy.copy(batches[0]), copy.deepcopy(batches[1])]
        copied.append(copy.deepcopy(tokenizer)(TEXTS, padding=True, return_tensors="np"))
        return frozen([pickled, [(type(encoding), dict(encoding)) for encoding in copied]])

    assert_unchanged(job)
    expected = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    with everything_patched():
        pickled = pickle.dumps((tokenizer, tokenizer(TEXTS, padding=True, return_tensors="pt")))
    again, batch = pickle.loads(pickled)
    assert type(batch) is BatchEncoding
    assert frozen(dict(batch)) == frozen(expected) == frozen(dict(again(TEXTS, padding=True, return_tensors="pt")))


@unchanged
def test_signatures_and_help():
    methods = (PreTrainedTokenizerBase.pad, BatchEncoding.convert_to_tensors)
    return [
        (inspect.signature(method), method.__doc__, method.__module__, method.__qualname__, pickle.dumps(method))
        for method in methods
    ]


def test_nothing_is_said(caplog):
    """Neither warned nor logged, besides what was."""

    def job():
        caplog.clear()
        tokenizer = standins.encoder_tokenizer()
        with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            tokenizer.pad([{"input_ids": [5, 6]}, {"input_ids": [7]}], return_tensors="pt")
            tokenizer.pad([{"input_ids": [5, 6]}], padding="max_length", return_tensors="pt")
            tokenizer(TEXTS, padding="max_length", return_tensors="pt")
            tokenizer(" ".join(TEXTS * 5), return_tensors="pt")
        return [record.message for record in caplog.records], [str(warning.message) for warning in warned]

    logging.getLogger("transformers").propagate = True
    try:
        assert_unchanged(job)
    finally:
        logging.getLogger("transformers").propagate = False


def test_everything_is_undone():
    before = picture()
    with everything_patched():
        assert picture() != before
        pipe("text-classification", batch_size=4)(TEXTS)
        texts().__getitems__([0, 1])
    after = picture()
    assert [place for place, value in before.items() if after[place] is not value and after[place] != value] == []
    new = [value for place, value in after.items() if place not in before]
    assert [value for value in new if getattr(value, "__module__", "").partition(".")[0] == "quadrat"] == []
