"""Tokenizers that pad in their own way: those of documents, entities and tables, and what a user derives."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from quadrat.installed import originals
from support.compare import assert_identical, assert_same_batch, assert_same_outcome, both, outcome
from support.documents import CLASSES, make, rows_for
from support.strategies import PadsInItsOwnWay, make_tokenizer


def by_reference(tokenizer: Any, inputs: Any, options: dict[str, Any]) -> tuple[str, Any]:
    return outcome(lambda rows: tokenizer.pad(rows, **options), copy.deepcopy(inputs))


def by_quadrat(tokenizer: Any, inputs: Any, options: dict[str, Any]) -> tuple[str, Any]:
    return outcome(lambda rows: quadrat.tokenizers.tokenizer_pad(tokenizer, rows, **options), copy.deepcopy(inputs))


def test_the_classes_are_there():
    assert {"MarkupLMTokenizer", "LukeTokenizer", "TapasTokenizer", "RoCBertTokenizer"} <= set(CLASSES)


@pytest.mark.parametrize("framework", ["pt", "np", None])
@pytest.mark.parametrize("name", CLASSES)
def test_what_they_pad(name, framework):
    rows = rows_for(name)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    arrays = [[{key: array(row[key]) for key in row} for row in rows] for array in (np.array, torch.tensor)]
    for side in ("right", "left", "middle"):
        tokenizer = make(CLASSES[name], side)
        for options in ({}, {"pad_to_multiple_of": 8}, {"padding": "max_length", "max_length": 9}, {"padding": False}):
            for inputs in (rows, columns, rows[0], rows[1:2], [], *arrays):
                asked = options | {"return_tensors": framework}
                expected = by_reference(tokenizer, inputs, asked)
                got = by_quadrat(tokenizer, inputs, asked)
                assert_same_outcome(expected, got)
                with quadrat.tokenizers.patch_tokenizers():
                    got = by_reference(tokenizer, inputs, asked)
                assert_same_outcome(expected, got)
                fails = (
                    side == "middle"
                    or "padding" in options
                    or inputs == []
                    or any(inputs is array_rows for array_rows in arrays)
                )
                assert expected[0] == "returned" or fails


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
    conversions, convert = [], originals.BatchEncoding.convert_to_tensors

    def counted(self, tensor_type=None, *rest, **named):
        conversions.append(tensor_type)
        return convert(self, tensor_type, *rest, **named)

    monkeypatch.setattr(originals.BatchEncoding, "convert_to_tensors", counted)
    assert_same_batch(expected, collator(rows))
    assert_same_batch(expected, quadrat.tokenizers.tokenizer_pad(tokenizer, rows, return_tensors="pt"))
    assert set(conversions) <= {None}
