"""Errors about a collator's options and its tokenizer: each hint is followed, and helps."""

import pytest
import transformers

import quadrat
from support import samples
from support.compare import check_error, outcome
from support.hints import (
    LANGUAGE,
    MASKED,
    PADDED,
    SEQ2SEQ,
    TAGS,
    TOKENS,
    Mistake,
    cases,
    check_hint,
    code,
    each,
    gives,
    reference_of,
    rows,
    run,
    sets,
    wrong_option,
)

PERMUTED = MASKED[:1]


def tags(n):
    return [1] * n


MISTAKES = {
    "no padding": wrong_option(PADDED[:3], "padding", False, r"use padding=(True)", "'input_ids' is ragged"),
    "no padding of labels": Mistake(
        SEQ2SEQ,
        lambda: [{**row, "labels": labels} for row, labels in zip(rows(4, 4), ([1], [1, 2]), strict=True)],
        ["'labels' is ragged"],
        sets("padding", r"use padding=(True)"),
        {"padding": False},
    ),
    "unknown padding": wrong_option(
        PADDED[:3], "padding", "longst", r"must be (True)", "padding is 'longst'", "'longest'"
    ),
    "a multiple of 0": wrong_option(
        PADDED, "pad_to_multiple_of", 0, r"or (None)", "pad_to_multiple_of is 0", "a positive int"
    ),
    "a float as multiple": wrong_option(PADDED, "pad_to_multiple_of", 8.0, r"or (None)", "pad_to_multiple_of is 8.0"),
    "below the longest": Mistake(
        PADDED[1:3],
        lambda: rows(4, 2),
        ["'input_ids', row 0 has 4 tokens, more than max_length=3", "truncation=True"],
        gives(each(lambda row: row[:3])),
        {"padding": "max_length", "max_length": 3},
    ),
    "below the longest row of labels": Mistake(
        SEQ2SEQ,
        lambda: rows(4, 2, labels=lambda n: [1] * (n + 2)),
        ["'labels', row 0 has 6 labels, more than max_length=5", "truncation=True"],
        gives(each(lambda row: row[:5])),
        {"padding": "max_length", "max_length": 5},
    ),
    "unknown framework": wrong_option(
        TOKENS, "return_tensors", "torch", r"must be ('pt')", "return_tensors is 'torch'"
    ),
    "no framework": wrong_option(
        [*TAGS, *LANGUAGE, *MASKED], "return_tensors", None, r"must be ('pt')", "return_tensors is None"
    ),
    "no label to pad with": wrong_option(
        TAGS, "label_pad_token_id", None, r"usually (-100)", "label_pad_token_id is None", "an int", labels=tags
    ),
    "no probability": wrong_option(PERMUTED, "plm_probability", 0, r"for example (1/6)", "plm_probability is 0"),
    "no span": Mistake(
        PERMUTED,
        lambda: rows(4, 2),
        ["max_span_length is 0", "a positive int"],
        lambda scene: setattr(scene.collator, "max_span_length", 1) or scene.collator(scene.features),
        {"max_span_length": 0},
    ),
}


@pytest.mark.parametrize(("mistake", "collator"), cases(MISTAKES))
def test_hint(mistake, collator):
    check_hint(MISTAKES[mistake], collator)


class Processor:
    """As processors of models for images and text: they hold a tokenizer and do not pad."""

    tokenizer = samples.tokenizer()


class Auto:
    """As `AutoTokenizer`, without files."""

    @staticmethod
    def from_pretrained(name):
        return samples.tokenizer()


# What is given as tokenizer, and what the message says.
NO_TOKENIZERS = {
    "None": (None, ["tokenizer is None"], r"for example (AutoTokenizer.*)"),
    "a name": ("bert-base-uncased", ["tokenizer is the string 'bert-base-uncased'"], r"give (AutoTokenizer.*)"),
    "a class": (transformers.BertTokenizer, ["tokenizer is the class BertTokenizer"], r"for example (BertTokenizer.*)"),
    "a Tokenizer": (samples.tokenizer()._tokenizer, ["tokenizer is a Tokenizer of the package"], r"give (.*)"),
    "a processor": (Processor(), ["tokenizer is a Processor"], r"give its tokenizer: (.*)"),
    "a dict": ({}, ["tokenizer is a dict", "give a tokenizer of transformers"], None),
}


@pytest.mark.parametrize("collator", [*PADDED, *MASKED[:1]])
@pytest.mark.parametrize("columns", [{}, {"labels": tags}], ids=["ids", "labels"])
@pytest.mark.parametrize("kind", NO_TOKENIZERS)
def test_no_tokenizer(kind, columns, collator):
    given, said, pattern = NO_TOKENIZERS[kind]
    features = rows(4, 4, **columns)
    both = (getattr(module, collator) for module in (transformers, quadrat))
    reference, got = (outcome(lambda tokenizer, make=make: make(tokenizer)(features), given) for make in both)
    line = check_error(reference[1], got, said)
    if pattern is None:
        return
    names = {
        "AutoTokenizer": Auto,
        "BertTokenizer": Auto,
        "name": "bert-base-uncased",
        "processor": given,
        "tokenizer": given,
    }
    source = code(line, pattern).replace("pad_token=...", "pad_token='[PAD]', mask_token='w3'")
    made = run(source, **names, PreTrainedTokenizerFast=transformers.PreTrainedTokenizerFast)
    assert "input_ids" in getattr(quadrat, collator)(made)(features)


@pytest.mark.parametrize("name", ["DataCollatorForTokenClassification", "DataCollatorForLanguageModeling"])
def test_no_tokenizer_without_padding(name):
    options = {"mlm": False} if name in LANGUAGE else {}
    with pytest.raises(TypeError, match="tokenizer is None; give the tokenizer of your model"):
        getattr(quadrat, name)(None, padding_free=True, **options)(rows(4, 2))


@pytest.mark.parametrize("eos", ["[EOS]", None])
@pytest.mark.parametrize("collator", [*PADDED, *MASKED])
def test_no_pad_token(collator, eos):
    tokenizer = samples.tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, eos
    features = rows(4, 2)
    reference = check_reference(collator, tokenizer, features)
    made = samples.make(quadrat, collator)
    made.tokenizer = tokenizer
    line = check_error(reference, outcome(made, features), ["has no pad token"])
    exec(code(line, r"; (?:set|call) (.*?\)|.*?eos_token)"), {"tokenizer": tokenizer})
    kind, batch = outcome(made, features)
    assert kind == "returned", batch


@pytest.mark.parametrize("collator", PADDED[:3])
def test_no_pad_token_and_no_need_of_one(collator):
    tokenizer = samples.tokenizer()
    tokenizer.pad_token = None
    features = rows(4, 4)
    made = getattr(quadrat, collator)(tokenizer)
    line = check_error(check_reference(collator, tokenizer, features), outcome(made, features), ["has no pad token"])
    made.padding = run(code(line, r"or use padding=(False)"))
    assert made(features)["input_ids"].shape == (2, 4)


@pytest.mark.parametrize("collator", PADDED)
def test_unknown_padding_side(collator):
    tokenizer = samples.tokenizer()
    tokenizer.padding_side = "middle"
    features = rows(4, 2)
    made = getattr(quadrat, collator)(tokenizer)
    line = check_error(
        check_reference(collator, tokenizer, features), outcome(made, features), ["padding_side is 'middle'"]
    )
    tokenizer.padding_side = run(code(line, r"to ('right')"))
    assert made(features)["input_ids"].shape == (2, 4)


def check_reference(name, tokenizer, features):
    """The reference's error."""

    def call(batch):
        collator = reference_of(name)
        collator.tokenizer = tokenizer
        return collator(batch)

    kind, error = outcome(call, features)
    assert kind == "raised"
    return error


def test_no_mask_token_for_permutations():
    tokenizer = samples.tokenizer()
    tokenizer.mask_token = None
    features = rows(4, 2)
    made = quadrat.DataCollatorForPermutationLanguageModeling(tokenizer)
    line = check_error(check_reference(*PERMUTED, tokenizer, features), outcome(made, features), ["has no mask token"])
    exec(code(line, r"; call (.*)$"), {"tokenizer": tokenizer})
    assert made(features)["input_ids"].shape == (2, 4)
