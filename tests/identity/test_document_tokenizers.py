"""Tokenizers that pad in their own way: those of documents, entities and tables, and what a user derives."""

from __future__ import annotations

import copy
import importlib
import random
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import quadrat
from quadrat.installed import originals
from support.compare import assert_identical, assert_same_outcome, both, outcome
from support.strategies import PadsInItsOwnWay, make_tokenizer

NAMES = {
    "layoutlmv2": "LayoutLMv2",
    "layoutlmv3": "LayoutLMv3",
    "layoutxlm": "LayoutXLM",
    "led": "LED",
    "luke": "Luke",
    "markuplm": "MarkupLM",
    "mluke": "MLuke",
    "roc_bert": "RoCBert",
    "tapas": "Tapas",
    "udop": "Udop",
}


def classes() -> dict[str, Any]:
    """The tokenizers of the installed transformers that pad in their own way; 4.x has two of most."""
    found = {}
    for name, title in NAMES.items():
        for module, cls in ((f"tokenization_{name}", "Tokenizer"), (f"tokenization_{name}_fast", "TokenizerFast")):
            try:
                home = importlib.import_module(f"transformers.models.{name}.{module}")
            except ImportError:
                continue
            own = getattr(home, title + cls, None)
            if own is not None and (own._pad is not originals.PreTrainedTokenizerBase._pad):
                found[title + cls] = own
    return found


CLASSES = classes()


def make(cls: Any, side: str) -> Any:
    """A tokenizer with the attributes that padding needs, and no vocabulary to speak of."""
    plain = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]")),
        pad_token="[PAD]",
        unk_token="[UNK]",
    )
    own = type(cls.__name__, (cls,), {"pad_token_id": 7, "pad_token": "[PAD]", "pad_token_type_id": 3})
    tokenizer = own.__new__(own)
    vars(tokenizer).update(vars(plain))
    tokenizer.padding_side = side
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.pad_token_box, tokenizer.pad_token_label = [0, 1, 2, 3], -100
    tokenizer.pad_xpath_tags_seq, tokenizer.pad_xpath_subs_seq = [216] * 5, [1001] * 5
    tokenizer.max_mention_length, tokenizer.entity_pad_token_id, tokenizer.task = 4, 9, None
    tokenizer.max_entity_length = 6
    return tokenizer


def rows_for(name: str, *, seed: int = 0) -> list[dict[str, Any]]:
    draw, rows = random.Random(seed), []

    def lists(length: int, width: int) -> list[list[int]]:
        return [[draw.randint(0, 999) for _ in range(width)] for _ in range(length)]

    for length in (3, 1, 6):
        numbers = [draw.randint(8, 300) for _ in range(length)]
        row: dict[str, Any] = {"input_ids": numbers, "attention_mask": [1] * length}
        if "Layout" in name or "Udop" in name:
            row |= {"bbox": lists(length, 4), "labels": numbers[::-1]}
        elif "Markup" in name:
            row |= {"xpath_tags_seq": lists(length, 5), "xpath_subs_seq": lists(length, 5), "token_type_ids": numbers}
        elif "Luke" in name:
            row |= {"entity_ids": numbers[:2], "entity_position_ids": lists(len(numbers[:2]), 4)}
        elif "Tapas" in name:
            row |= {"token_type_ids": lists(length, 7), "numeric_values": [0.5] * length, "labels": [1] * length}
        elif "RoCBert" in name:
            row |= {"input_shape_ids": numbers, "input_pronunciation_ids": numbers}
        else:
            row |= {"global_attention_mask": [1] * length}
        rows.append(row)
    return rows


def by_reference(tokenizer: Any, inputs: Any, options: dict[str, Any]) -> tuple[str, Any]:
    return outcome(lambda given: tokenizer.pad(given, **options), copy.deepcopy(inputs))


def by_quadrat(tokenizer: Any, inputs: Any, options: dict[str, Any]) -> tuple[str, Any]:
    return outcome(lambda given: quadrat.tokenizer_pad(tokenizer, given, **options), copy.deepcopy(inputs))


def test_the_classes_are_there():
    assert {"MarkupLMTokenizer", "LukeTokenizer", "TapasTokenizer", "RoCBertTokenizer"} <= set(CLASSES)


@pytest.mark.parametrize("framework", ["pt", "np", None])
@pytest.mark.parametrize("name", CLASSES)
def test_what_they_pad(name, framework):
    rows = rows_for(name)
    for side in ("right", "left", "middle"):
        tokenizer = make(CLASSES[name], side)
        for options in ({}, {"pad_to_multiple_of": 8}, {"padding": "max_length", "max_length": 9}, {"padding": False}):
            for inputs in (rows, {key: [row[key] for row in rows] for key in rows[0]}, rows[0], rows[1:2], []):
                asked = options | {"return_tensors": framework}
                expected = by_reference(tokenizer, inputs, asked)
                got = by_quadrat(tokenizer, inputs, asked)
                assert_same_outcome(expected, got)
                with quadrat.patch_tokenizers():
                    got = by_reference(tokenizer, inputs, asked)
                assert_same_outcome(expected, got)
                assert expected[0] == "returned" or side == "middle" or "padding" in options or inputs == []


@pytest.mark.parametrize("make_row", [np.array, torch.tensor])
@pytest.mark.parametrize("name", CLASSES)
def test_rows_of_arrays(name, make_row):
    rows = [{key: make_row(value) for key, value in row.items()} for row in rows_for(name)]
    tokenizer = make(CLASSES[name], "right")
    for framework in ("pt", "np", None):
        expected = by_reference(tokenizer, rows, {"return_tensors": framework})
        got = by_quadrat(tokenizer, rows, {"return_tensors": framework})
        assert_same_outcome(expected, got)


@pytest.mark.parametrize("collator", ["DataCollatorWithPadding", "DataCollatorForTokenClassification"])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", CLASSES)
def test_collators(name, framework, collator):
    tokenizer = make(CLASSES[name], "left")
    collators = both(collator, tokenizer, return_tensors=framework)
    assert_identical(*collators, rows_for(name), calls=3)


def test_collators_of_sequences():
    tokenizer = make_tokenizer(cls=PadsInItsOwnWay)
    rows = [{"input_ids": [3, 4], "labels": [5]}, {"input_ids": [6], "labels": [7, 8, 9]}]
    for framework in ("pt", "np"):
        assert_identical(*both("DataCollatorForSeq2Seq", tokenizer, return_tensors=framework), rows)


def test_lists_are_converted_in_compiled_code(monkeypatch):
    tokenizer = make_tokenizer(cls=PadsInItsOwnWay)
    rows = [{"input_ids": [3, 4]}, {"input_ids": [5]}]
    collator = quadrat.DataCollatorWithPadding(tokenizer)
    expected = collator(rows)
    conversions = []
    convert = originals.BatchEncoding.convert_to_tensors
    monkeypatch.setattr(
        originals.BatchEncoding,
        "convert_to_tensors",
        lambda self, tensor_type=None, *rest, **named: (
            conversions.append(tensor_type),
            convert(self, tensor_type, *rest),
        )[1],
    )
    assert_same_outcome(("returned", expected), ("returned", collator(rows)))
    assert_same_outcome(
        ("returned", expected), ("returned", quadrat.tokenizer_pad(tokenizer, rows, return_tensors="pt"))
    )
    assert set(conversions) <= {None}
