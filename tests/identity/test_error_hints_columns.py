"""Errors about columns of tokens and others that are no labels: each hint is followed, and helps."""

import datetime

import numpy as np
import pytest
import torch

from support import samples
from support.hints import (
    BARE,
    CHOICE,
    FLAT,
    MASKED,
    PADDED,
    PLAIN,
    STACKED,
    TOKENS,
    Mistake,
    bad_row,
    cases,
    check_hint,
    each,
    given_as,
    gives,
    rows,
    sets,
    useless_column,
    uses,
    without,
    wrong_values,
)

PERMUTED, WORDS = ([name] for name in MASKED)
NESTED = [
    {"input_ids": [[5, 6], [7]], "attention_mask": [[1, 1], [1]]},
    {"input_ids": [[8, 9]], "attention_mask": [[1, 1]]},
]
BOXES = [{"input_ids": [5], "boxes": [[1, 2]] * n} for n in (2, 3)]


def apart(features):
    """A feature of each row of several in one."""
    return [{"input_ids": row} for feature in features for row in feature["input_ids"]]


def even(features):
    """As `apart`, of an even number of tokens."""
    return [{"input_ids": [*row, *row]} for feature in features for row in feature["input_ids"]]


def ragged_column():
    return rows(4, 2, extra=lambda n: [1] * n)


def only_row(value):
    return value[0]


FROM_TOKENIZER = ["'input_ids', row 0 has shape (1, 4)", "without return_tensors"]
MISTAKES = {
    "tensors of one row": wrong_values(TOKENS, lambda row: torch.tensor([row]), only_row, *FROM_TOKENIZER, "value[0]"),
    "arrays of one row": wrong_values(TOKENS, lambda row: np.array([row]), only_row, *FROM_TOKENIZER, "value[0]"),
    "lists of one row": wrong_values(
        TOKENS,
        lambda row: [row],
        only_row,
        *("'input_ids', row 0 is a row inside a list", "tokenizer(text)", "value[0]"),
    ),
    "tensors of one row, stacked": Mistake(
        STACKED,
        lambda: each(lambda row: torch.tensor([row]))(rows(4, 2)),
        ["row 0 has shape (1, 4)", "without return_tensors"],
        uses(r"use (\w+\(tokenizer\))", each(only_row)),
    ),
    "several rows in one": Mistake(
        [*PADDED, *FLAT, *WORDS],
        lambda: NESTED,
        ["'input_ids', row 0 holds 2 rows", "make a feature of each"],
        gives(apart),
    ),
    "several rows in one, permuted": Mistake(
        PERMUTED, lambda: NESTED, ["'input_ids', row 0 holds 2 rows", "make a feature of each"], gives(even)
    ),
    "several rows in one, stacked": Mistake(
        STACKED,
        lambda: NESTED,
        ["'input_ids', row 0 holds rows of different lengths", "make a feature of each"],
        uses(r"use (\w+\(tokenizer\))", apart),
    ),
    "words": Mistake(
        TOKENS,
        lambda: [{"input_ids": ["w5", "w6"]}, {"input_ids": ["w7", "w8"]}],
        ["'input_ids', row 0, position 0 is the string 'w5'", "tokenizer.convert_tokens_to_ids(row)"],
        gives(each(lambda row: samples.tokenizer().convert_tokens_to_ids(row))),
    ),
    "text": Mistake(
        [*FLAT, *WORDS],
        lambda: [{"input_ids": "w5 w6"}, {"input_ids": "w7 w8"}],
        ["'input_ids', row 0 is the string 'w5 w6'", "tokenizer(text)['input_ids']"],
        gives(each(lambda text: samples.tokenizer()(text)["input_ids"])),
    ),
    "floats": Mistake(
        PADDED,
        lambda: each(lambda row: list(map(float, row)), "input_ids")(rows(4, 2)),
        ["'input_ids', row 0, position 0 is the float 5.0", "[int(token) for token in row]"],
        gives(each(lambda row: [int(token) for token in row])),
    ),
    "tensors of floats": Mistake(
        WORDS,
        lambda: each(torch.FloatTensor, "input_ids")(rows(4, 2)),
        ["'input_ids', row 0 holds float32 numbers", "row.long()"],
        gives(each(lambda row: row.long(), "input_ids")),
        {"mlm_probability": 1.0, "mask_replace_prob": 0.0, "random_replace_prob": 1.0},
    ),
    "one number": Mistake(
        BARE,
        lambda: [{"input_ids": 5}, {"input_ids": 6}],
        ["'input_ids', row 0 is the number 5", "give a list"],
        gives(lambda features: [{"input_ids": [row["input_ids"], 7]} for row in features]),
    ),
    "None for ids": bad_row(
        TOKENS, 2, {"input_ids": None, "attention_mask": None}, "'input_ids', row 2 is None", "leave it out"
    ),
    "None among ids": bad_row(
        TOKENS,
        2,
        {"input_ids": [5, None], "attention_mask": [1, 1]},
        *("'input_ids', row 2, position 1 is None", "or leave the row out"),
    ),
    "no ids": Mistake(
        [*PADDED, *FLAT, *WORDS],
        lambda: [{"text": "w5 w6"}, {"text": "w7 w8"}],
        ["no column 'input_ids'", "['text']", "tokenizer(row['text'])"],
        gives(lambda features: [samples.tokenizer()(row["text"]) for row in features]),
    ),
    "beyond int64": Mistake(
        TOKENS,
        lambda: [{"input_ids": [5, 2**63]}, {"input_ids": [6, 7]}],
        ["row 0, position 1 is 9223372036854775808", "from -2**63 to 2**63 - 1"],
        gives(each(lambda row: [min(token, 399) for token in row])),
    ),
    "odd width": Mistake(
        PERMUTED,
        lambda: rows(3, 2),
        ["row 0", "3 tokens", "must be even", "add a padding token"],
        gives(lambda features: [{"input_ids": [*features[0]["input_ids"], 0]}, features[1]]),
    ),
    "an empty row": given_as(PERMUTED, lambda: rows(0, 0), "row 0 is empty"),
    "a short mask": Mistake(
        PADDED,
        lambda: [*rows(4), {"input_ids": [5, 6], "attention_mask": [1]}],
        ["'attention_mask', row 1 has length 1 where 'input_ids' has 2", "or remove the column"],
        gives(without("attention_mask")),
    ),
    "ragged tokens, stacked": Mistake(
        STACKED,
        lambda: rows(4, 2),
        ["'input_ids' is ragged", "row 0 has length 4, row 1 has length 2"],
        uses(r"use (\w+\(tokenizer\))"),
    ),
    "texts": Mistake(
        PADDED,
        lambda: rows(4, 2, text=lambda n: "hello"),
        ["'text', row 0 is the string 'hello'", "dataset.remove_columns('text')", "name those to keep, columns="],
        gives(without("text")),
    ),
    "rows of words": useless_column(
        [*PADDED, *STACKED], "words", lambda n: ["a"] * n, "'words', row 0, position 0 is the string 'a'"
    ),
    "dicts": useless_column([*PADDED, *STACKED], "extra", lambda n: {"a": n}, "'extra', row 0 is a dict"),
    "dates": useless_column([*PADDED, *STACKED], "day", lambda n: datetime.date(2020, 1, n), "'day', row 0 is a date"),
    "rows of dates": useless_column(
        [*PADDED, *STACKED],
        "days",
        lambda n: [datetime.date(2020, 1, n)],
        "'days', row 0, position 0 is a date",
    ),
    "ragged": Mistake(
        PADDED,
        ragged_column,
        ["'extra' is ragged", "row 0 has length 4, row 1 has length 2"],
        sets("pad_values", r"give pad_values=({.*?})"),
    ),
    "ragged, removed": Mistake(PADDED, ragged_column, ["'extra' is ragged", "or remove it"], gives(without("extra"))),
    "ragged, stacked": Mistake(
        STACKED,
        lambda: [{"input_ids": [5, 6], "extra": [1] * n} for n in (2, 3)],
        ["'extra' is ragged"],
        uses(r"use (\w+\(tokenizer, pad_values=.*?\))"),
    ),
    "ragged, of choices": Mistake(
        CHOICE,
        lambda: [{**row, "extra": [[1], [1, 2]]} for row in samples.batch(*CHOICE)],
        ["'extra' is ragged", "or remove it", "the choices of all examples, 2 each"],
        gives(without("extra")),
    ),
    "ragged, of no choices": Mistake(
        CHOICE,
        lambda: [{**row, "extra": 0.5} for row in samples.batch(*CHOICE)],
        ["'extra', row 0 is a float", "remove the column"],
        gives(without("extra")),
    ),
    "ragged boxes": Mistake(
        [*PADDED, *STACKED],
        lambda: BOXES,
        ["'boxes' is ragged", "shape (2, 2)", "shape (3, 2)", "give all rows one shape"],
        gives(each(lambda boxes: boxes[:2], "boxes")),
    ),
    "numbers and rows": Mistake(
        [*PLAIN, *STACKED],
        lambda: [{"input_ids": [5], "extra": 1}, {"input_ids": [5], "extra": [1]}],
        ["'extra' is ragged", "row 0 is one number, row 1 has length 1", "or remove it"],
        gives(without("extra")),
    ),
}


@pytest.mark.parametrize(("mistake", "collator"), cases(MISTAKES))
def test_hint(mistake, collator):
    check_hint(MISTAKES[mistake], collator)
