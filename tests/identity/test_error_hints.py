"""Errors: the reference's type and message, then column, row and what to do; each hint is followed, and helps."""

import datetime
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from support import hints as h
from support import samples
from support.hints import (
    BARE,
    CHOICE,
    FLAT,
    LANGUAGE,
    MASKED,
    PADDED,
    PLAIN,
    SEQ2SEQ,
    STACKED,
    TAGS,
    TOKENS,
    each,
    gives,
    hint,
    labelled,
    numbers,
    rows,
    runs,
    sets,
    uses,
    without,
)
from support.others import OTHERS, TRL

PERMUTED, WORDS = MASKED[:1], MASKED[1:]
UNPADDED = [*PLAIN, *STACKED]
WHOLE = r"for example (collator\(.*\))"
LOADER = r"DataLoader: (DataLoader\(.*collate_fn=collator\))"
FROM_TOKENIZER = "'input_ids', row 0 has shape (1, 4) | without return_tensors"
NESTED = [
    {"input_ids": [[5, 6], [7]], "attention_mask": [[1, 1], [1]]},
    {"input_ids": [[8, 9]], "attention_mask": [[1, 1]]},
]
PAIRS = [([5, 6], 1), ([7, 8], 0)]
BOXES = [{"input_ids": [5], "boxes": [[1, 2]] * n} for n in (2, 3)]
LISTS = each(lambda row: row.tolist() if hasattr(row, "tolist") else row)


def dataset() -> Any:
    return datasets.Dataset.from_list(rows(*[4, 2] * 16))


def tags(n: int) -> list[int]:
    return [1] * n


def apart(features: Any) -> Any:
    """A feature of each row of several in one."""
    return [{"input_ids": row} for feature in features for row in feature["input_ids"]]


def even(features: Any) -> Any:
    """As `apart`, of an even number of tokens."""
    return [{"input_ids": [*row, *row]} for feature in features for row in feature["input_ids"]]


def only_row(value: Any) -> Any:
    return value[0]


def ids_of(text: str) -> Any:
    return samples.tokenizer()(text)["input_ids"]


def ids_of_words(row: Any) -> Any:
    return samples.tokenizer().convert_tokens_to_ids(row)


def choices(**columns: Any) -> Callable[[], Any]:
    return lambda: [{**row, **columns} for row in samples.batch(*CHOICE)]


def labels(name: str, *values: Any) -> Callable[[], Any]:
    return lambda: [{**row, name: value} for row, value in zip(rows(*[4] * len(values)), values, strict=True)]


def in_row(name: str, place: int, value: Any, *, removes: bool = False) -> Any:
    """A good batch of another collator with one value in its place, or without it."""
    batch = OTHERS[name].batch()
    column = next(iter(batch[0]))
    if isinstance(value, dict):
        batch[place].update(value)
    elif removes:
        del batch[place][value]
    else:
        batch[place][column] = value
    return batch


def other(name: str, place: int, value: Any, says: str, **options: Any) -> h.Mistake:
    """A mistake in a row of a batch of another collator, which is right without it."""
    return hint([name], in_row(name, place, value, **options), says, gives(lambda _: OTHERS[name].batch()))


# fmt: off
LABELS = {
    "one per token": labelled(UNPADDED, tags, "is ragged and not padded here: row 0 has length 4, row 1 has length 2",
        uses(r"use (DataCollatorForTok\w+\(tokenizer\))")),
    "one per token, named label": hint(UNPADDED, lambda: rows(4, 2, label=tags),
        "'label' is ragged | pads it with -100",
        uses(r"use (DataCollatorForTok\w+\(tokenizer\))")),
    "targets": labelled(UNPADDED, lambda n: [1] * (7 - n), "is ragged and not padded here: row 0 has",
        uses(r"use (DataCollatorForSeq2Seq\(tokenizer\))")),
    "padded by option": labelled(PLAIN, tags, "'labels' is ragged",
        sets("pad_values", r"pad_values=({'labels': -100})")),
    "made anyway": labelled(LANGUAGE, tags, "'labels' is ragged | makes labels of its own: remove the column",
        gives(without("labels"))),
    "made anyway, causal": labelled(LANGUAGE, tags, "'labels' is ragged | labels of its own",
        gives(without("labels")))._replace(options={"mlm": False}),
    "names": hint([*PLAIN, *STACKED], labels("label", "pos", "neutral"), "'label', row 0 is the string 'pos'",
        numbers("label", "neg")),
    "names of tags": labelled([*TAGS, *FLAT], lambda n: ["O", "B-PER"] * (n // 2), "is the string",
        numbers("labels", "I-PER")),
    "names of choices": hint(CHOICE, choices(label="first"), "'label', row 0 is the string | the number of the right",
        gives(each(lambda _: 0, "label"))),
    "names where labels are made": h.useless_column(LANGUAGE, "label", lambda n: "pos", "'label', row 0 is the string"),
    "text": labelled(SEQ2SEQ, lambda n: "w5 w6",
        "'labels', row 0 is the string 'w5 w6' | text_target=text)['input_ids']",
        gives(each(ids_of, "labels"))),
    "words": labelled(SEQ2SEQ, lambda n: ["w5"], "row 0, position 0 is the string | convert_tokens_to_ids(row)",
        gives(each(ids_of_words, "labels"))),
    "None": labelled([*PLAIN, *TAGS, *LANGUAGE, *FLAT], lambda n: None,
        "'labels', row 0 is None | remove the column", gives(without("labels"))),
    "None in a row": hint([*PLAIN, *STACKED], labels("label", 1, None),
        "'label', row 1 is None | give every row a value",
        gives(each(lambda label: label or 0, "label"))),
    "None for a token": labelled([*TAGS, *SEQ2SEQ], lambda n: [None] * n, "row 0, position 0 is None | -100 where",
        gives(each(lambda row: [-100] * len(row), "labels"))),
    "a number per row": labelled([*TAGS, *SEQ2SEQ], lambda n: 1, "'labels', row 0 is the number 1 | one label per row",
        uses(r"use (DataCollatorWithPadding)")),
    "a number per row, flattened": labelled(FLAT, lambda n: 1, "'labels', row 0 is the number 1 | one label per row",
        uses(r"use (DataCollatorWithFlattening\(.*\))")),
    "too many": hint(TAGS, lambda: rows(4, 2, labels=lambda n: [1] * (n + 3)),
        "'labels', row 0 has length 7 where 'input_ids' has 4 | one label per token",
        gives(lambda features: [{**row, "labels": row["labels"][: len(row["input_ids"])]} for row in features])),
    "arrays after lists": hint(SEQ2SEQ, labels("labels", [1], np.array([1, 2])),
        "row 1 is a ndarray where row 0 is a list",
        gives(LISTS)),
    "missing": hint(CHOICE, lambda: without("label")(samples.batch(*CHOICE)),
        "'label' is missing in row 0 | give the row that column",
        gives(lambda features: [{**row, "label": 0} for row in features])),
    "missing in a row": hint(CHOICE, lambda: [*without("label")(samples.batch(*CHOICE)[:1]), *samples.batch(*CHOICE)],
        "'label' is missing in row 0 | give the row that column", gives(lambda features: features[1:])),
    "None for choices": hint(CHOICE, choices(label=None), "'label', row 0 is None | give every row a value",
        gives(each(lambda _: 0, "label"))),
    "a list of choices": hint(CHOICE, lambda: [*choices(label=[1])()[:1], *samples.batch(*CHOICE)],
        "'label' is ragged | the number of the right choice", gives(lambda features: features[1:])),
    "tensors beside lists": hint([*PLAIN, *LANGUAGE], labels("label", *[torch.tensor([1, 2])] * 2),
        "'label', row 0 is a Tensor where 'input_ids' is a list", gives(LISTS)),
}

FEATURES = {
    "a string": hint([*PADDED, *FLAT], lambda: "w5 w6 w7 w8", "features is the string",
        runs(r"first: (collator\(.*\))")),
    "None": h.given_as(TOKENS, lambda: None, "features is None | not a list of rows"),
    "a number": h.given_as(TOKENS, lambda: 5, "features is an int | not a list of rows"),
    "a set": h.given_as(TOKENS, lambda: {1, 2}, "features is a set | not a list of rows"),
    "no rows": h.given_as(TOKENS, list, "the batch is empty | skip"),
    "a generator": hint([*TOKENS, *STACKED], lambda: (row for row in rows(4, 4)), "features is a generator | only once",
        runs(r"list: (collator\(.*\))")),
    "a data set": hint(PLAIN + BARE[:1], dataset, "features is a Dataset, not a list", runs(WHOLE)),
    "a data set, loaded": hint(PLAIN + BARE[:1], dataset, "DataLoader", runs(LOADER)),
    "splits": hint(TOKENS, lambda: datasets.DatasetDict(test=dataset()), "is a DatasetDict | features['test'][i]",
        runs(WHOLE)),
    "splits, loaded": hint(TOKENS, lambda: datasets.DatasetDict(test=dataset()), "DataLoader(features['test']",
        runs(LOADER)),
    "a stream": hint(TOKENS, lambda: dataset().to_iterable_dataset(), "features is an IterableDataset", runs(LOADER)),
    "a loader": hint(TOKENS, lambda: DataLoader(rows(4, 4)), "features is a DataLoader",
        lambda scene: runs(LOADER)(scene._replace(features=scene.features.dataset))),
    "one example": hint([*PADDED[1:], *MASKED, *FLAT, *STACKED], lambda: rows(4)[0],
        "features is a dict with | batch_size",
        runs(r"give (collator\(\[example\]\))")),
    "one example of choices": hint(CHOICE, lambda: samples.batch(*CHOICE)[0], "features is a dict with",
        runs(r"give (collator\(\[example\]\))")),
    "texts": hint([*PADDED, *FLAT], ["w5 w6 w7 w8", "w5 w6"], "row 0 is the string 'w5 w6 | tokenizer(text)",
        gives(lambda features: list(map(samples.tokenizer(), features)))),
    "a row is None": h.bad_row([*TOKENS, *STACKED], 0, None, "row 0 is None | leave it out"),
    "a later row is None": h.bad_row([*TOKENS, *STACKED], 2, None, "row 2 is None | leave it out"),
    "batches in a batch": hint([*TOKENS, *STACKED], lambda: [rows(4, 4)], "row 0 is a list | holds 2",
        runs(r"inner list, for example (collator\(.*\))")),
    "batches of choices": hint(CHOICE, lambda: [samples.batch(*CHOICE)], "row 0 is a list | holds 3", runs(WHOLE)),
    "pairs": hint([*PLAIN, *TAGS, *SEQ2SEQ, *FLAT], PAIRS,
        "row 0 is a tuple | name its parts, for example {'input_ids'",
        gives(lambda features: [{"input_ids": row, "labels": [label] * 2} for row, label in features])),
    "bare pairs": hint(BARE, PAIRS, "row 0 is a tuple | name its parts",
        gives(lambda features: [{"input_ids": row} for row, _ in features])),
    "bare rows": hint([*PADDED[:3], *FLAT, *STACKED], [[5, 6], [7, 8]], "row 0 is a list | give {'input_ids': row}",
        gives(lambda features: [{"input_ids": row} for row in features])),
    "bare batches of one": hint([*PADDED[:3], *FLAT], [torch.tensor([[5, 6]]), torch.tensor([[7, 8]])],
        "row 0 is a Tensor | give {'input_ids': row[0]}",
        gives(lambda features: [{"input_ids": row[0]} for row in features])),
    "mappings and rows": hint(BARE, lambda: [[5, 6], *rows(2)], "row 1 is a dict where row 0 is a list",
        gives(lambda features: features[1:])),
    "a column is missing": hint(PADDED, lambda: [*rows(4), {"input_ids": [5]}],
        "'attention_mask' is missing in row 1 | ['input_ids'] | "
        "remove it from the others", gives(without("attention_mask"))),
    "ids are missing in row 0": hint([*PADDED, *MASKED, *FLAT], lambda: [{"attention_mask": [1]}, *rows(4, 4)],
        "'input_ids' is missing in row 0 | or leave it out", gives(lambda features: features[1:])),
}

COLUMNS = {
    "tensors of one row": h.wrong_values(TOKENS, lambda row: torch.tensor([row]), only_row,
        f"{FROM_TOKENIZER} | value[0]"),
    "arrays of one row": h.wrong_values(TOKENS, lambda row: np.array([row]), only_row, f"{FROM_TOKENIZER} | value[0]"),
    "lists of one row": h.wrong_values(TOKENS, lambda row: [row], only_row,
        "row 0 is a row inside a list | tokenizer(text) | value[0]"),
    "tensors of one row, stacked": hint(STACKED, lambda: each(lambda row: torch.tensor([row]))(rows(4, 2)),
        "row 0 has shape (1, 4) | without return_tensors", uses(r"use (\w+\(tokenizer\))", each(only_row))),
    "several rows in one": hint([*PADDED, *FLAT, *WORDS], NESTED, "'input_ids', row 0 holds 2 rows | a feature of each",
        gives(apart)),
    "several rows in one, permuted": hint(PERMUTED, NESTED, "'input_ids', row 0 holds 2 rows | a feature of each",
        gives(even)),
    "several rows in one, stacked": hint(STACKED, NESTED,
        "row 0 holds rows of different lengths | make a feature of each",
        uses(r"use (\w+\(tokenizer\))", apart)),
    "words": hint(TOKENS, [{"input_ids": ["w5", "w6"]}, {"input_ids": ["w7", "w8"]}],
        "row 0, position 0 is the string 'w5' | tokenizer.convert_tokens_to_ids(row)", gives(each(ids_of_words))),
    "text": hint([*FLAT, *WORDS], [{"input_ids": "w5 w6"}, {"input_ids": "w7 w8"}],
        "row 0 is the string | tokenizer(text)['input_ids']",
        gives(each(ids_of))),
    "floats": hint(PADDED, lambda: each(lambda row: list(map(float, row)), "input_ids")(rows(4, 2)),
        "row 0, position 0 is the float 5.0 | [int(token) for token in row]",
        gives(each(lambda row: list(map(int, row))))),
    "one number": hint(BARE, [{"input_ids": 5}, {"input_ids": 6}], "'input_ids', row 0 is the number 5 | give a list",
        gives(lambda features: [{"input_ids": [row["input_ids"], 7]} for row in features])),
    "None for ids": h.bad_row(TOKENS, 2, {"input_ids": None, "attention_mask": None},
        "'input_ids', row 2 is None | leave the row out"),
    "None for all ids": hint([*PADDED[:3], *WORDS], [{"input_ids": None}] * 2,
        "'input_ids', row 0 is None | give every row a value",
        gives(each(lambda _: [5]))),
    "None among ids": h.bad_row(TOKENS, 2, {"input_ids": [5, None], "attention_mask": [1, 1]},
        "'input_ids', row 2, position 1 is None | or leave the row out"),
    "no ids": hint([*PADDED, *FLAT, *WORDS], [{"text": "w5 w6"}, {"text": "w7 w8"}],
        "'input_ids' is missing in row 0 | tokenizer(row['text'])",
        gives(lambda features: [samples.tokenizer()(row["text"]) for row in features])),
    "beyond int64": hint(TOKENS, [{"input_ids": [5, 2**63]}, {"input_ids": [6, 7]}],
        "row 0, position 1 is 9223372036854775808 | -2**63",
        gives(each(lambda row: [min(token, 399) for token in row]))),
    "tensors after lists": hint(PADDED[:3], [{"input_ids": [5, 6]}, {"input_ids": torch.tensor([5])}],
        "'input_ids', row 1 is a Tensor where row 0 is a list", gives(LISTS)),
    "tensors before lists": hint([*STACKED, *MASKED], [{"input_ids": torch.tensor([5, 6])}, {"input_ids": [5, 6]}],
        "row 1 is a list where row 0 is a",
        gives(LISTS)),
    "odd width": hint(PERMUTED, lambda: rows(3, 2), "row 0 | 3 tokens | must be even | add a padding token",
        gives(lambda features: [{"input_ids": [*features[0]["input_ids"], 0]}, features[1]])),
    "an empty row": h.given_as(PERMUTED, lambda: rows(0, 0), "'input_ids' is empty in every row"),
    "a short mask": hint(PADDED, lambda: [*rows(4), {"input_ids": [5, 6], "attention_mask": [1]}],
        "'attention_mask', row 1 has length 1 where 'input_ids' has 2 | or remove the column",
        gives(without("attention_mask"))),
    "ragged tokens, stacked": hint(STACKED, lambda: rows(4, 2),
        "'input_ids' is ragged | row 0 has length 4, row 1 has length 2",
        uses(r"use (\w+\(tokenizer\))")),
    "texts": hint(PADDED, lambda: rows(4, 2, text=lambda n: "hello"),
        "'text', row 0 is the string | columns=[...] without it",
        gives(without("text"))),
    "rows of words": h.useless_column([*PADDED, *STACKED], "words", lambda n: ["a"] * n,
        "'words', row 0, position 0 is the string 'a'"),
    "dicts": h.useless_column([*PADDED, *STACKED], "extra", lambda n: {"a": n}, "'extra', row 0 is a dict"),
    "dates": h.useless_column([*PADDED, *STACKED], "day", lambda n: datetime.date(2020, 1, n),
        "'day', row 0 is a date"),
    "rows of dates": h.useless_column([*PADDED, *STACKED], "days", lambda n: [datetime.date(2020, 1, n)],
        "row 0, position 0 is a date"),
    "ragged": hint(PADDED, lambda: rows(4, 2, extra=tags), "'extra' is ragged | row 0 has length 4, row 1 has length 2",
        sets("pad_values", r"give pad_values=({.*?})")),
    "ragged, removed": hint(PADDED, lambda: rows(4, 2, extra=tags), "'extra' is ragged | or remove it",
        gives(without("extra"))),
    "ragged, stacked": hint(STACKED, [{"input_ids": [5, 6], "extra": [1] * n} for n in (2, 3)], "'extra' is ragged",
        uses(r"use (\w+\(tokenizer, pad_values=.*?\))")),
    "ragged, of choices": hint(CHOICE, choices(extra=[[1], [1, 2]]),
        "'extra' is ragged | row 0, choice 1 has length 2 | or remove it",
        gives(without("extra"))),
    "ragged, of no choices": hint(CHOICE, choices(extra=0.5), "'extra', row 0 is a float | remove the column",
        gives(without("extra"))),
    "no choices": hint(CHOICE, choices(input_ids=None), "'input_ids', row 0 is None | tokenize each choice",
        gives(lambda _: samples.batch(*CHOICE))),
    "ragged boxes": hint(PADDED, BOXES, "'boxes' is ragged | shape (2, 2) | shape (3, 2)",
        sets("pad_values", r"give pad_values=({.*?})")),
    "ragged boxes, stacked": hint(STACKED, BOXES, "'boxes' is ragged",
        uses(r"use (\w+\(tokenizer, pad_values=.*?\))")),
    "boxes of several sizes": hint([*PADDED, *STACKED], [BOXES[0], {"input_ids": [5], "boxes": [[1, 2, 3]] * 2}],
        "shape (2, 2) | shape (2, 3) | give all rows one shape",
        gives(each(lambda boxes: [box[:2] for box in boxes], "boxes"))),
    "numbers and rows": hint([*PLAIN, *STACKED], [{"input_ids": [5], "extra": 1}, {"input_ids": [5], "extra": [1]}],
        "'extra' is ragged | row 0 is one number, row 1 has length 1 | or remove it", gives(without("extra"))),
}

OPTIONS = {
    "no padding": h.wrong_option(PADDED[:3], "padding", False, r"use padding=(True)", "'input_ids' is ragged"),
    "no padding of labels": hint(SEQ2SEQ, labels("labels", [1], [1, 2]), "'labels' is ragged",
        sets("padding", r"use padding=(True)"),
        padding=False),
    "unknown padding": h.wrong_option(PADDED[:3], "padding", "longst", r"must be (True)",
        "padding is 'longst' | 'longest'"),
    "a multiple of 0": h.wrong_option(PADDED, "pad_to_multiple_of", 0, r"or (None)",
        "pad_to_multiple_of is 0 | a positive int"),
    "a float as multiple": h.wrong_option(PADDED, "pad_to_multiple_of", 8.0, r"or (None)", "pad_to_multiple_of is 8.0"),
    "below the longest": hint(PADDED[1:3], lambda: rows(4, 2),
        "row 0 has 4 tokens, more than max_length=3 | truncation=True",
        gives(each(lambda row: row[:3])), padding="max_length", max_length=3),
    "unknown framework": h.wrong_option(TOKENS, "return_tensors", "torch", r"must be ('pt')",
        "return_tensors is 'torch'"),
    "no framework": h.wrong_option([*TAGS, *LANGUAGE, *MASKED], "return_tensors", None, r"must be ('pt')",
        "return_tensors is None"),
    "no label to pad with": h.wrong_option(TAGS, "label_pad_token_id", None, r"usually (-100)",
        "label_pad_token_id is None", labels=tags),
}

ELSEWHERE = {
    **{f"{name}, None": other(name, 1, None, "row 1 is None | give every row a value") for name in TRL},
    **{f"{name}, text": other(name, 1, "w5", "row 1 is the string | tokenize it") for name in TRL},
    **{f"{name}, a row too deep": other(name, 2, [[5]], "row 2 is a row inside a list") for name in TRL},
    **{f"{name}, no pad token": hint([name], OTHERS[name].features, "pad_token_id is None | an int",
        lambda scene: setattr(scene.collator, "pad_token_id", 0) or scene.collator(scene.features),
        pad_token_id=None) for name in TRL},
    **{f"{name}, no {column}": other(name, 1, column, f"'{column}' is missing in row 1 | give the row that column",
        removes=True)
        for name, column in (("trl.reward", "margin"), ("trl.dpo", "prompt_ids"), ("trl.dpo", "ref_chosen_logps"),
        ("trl.kto", "label"),
        ("trl.tpo", "reference_ids"), ("trl.sft", "input_ids")) if name in TRL},
    **{f"{name}, None for {column}": other(name, 1, {column: None},
        f"'{column}', row 1 is None | give every row a value")
        for name, column in (("trl.reward", "margin"), ("trl.dpo", "ref_chosen_logps"),
        ("trl.kto", "label")) if name in TRL},
    **{f"{name}, tensors": other(name, 1, torch.tensor([5]),
        "'prompt_ids', row 1 is a Tensor where row 0 is a list | value.tolist()")
        for name in ("trl.dpo", "trl.kto", "trl.tpo") if name in TRL},
    "a row of pad": other("tokenizer_pad", 1, None, "'input_ids', row 1 is None"),
}
# fmt: on
MISTAKES = {
    f"{kind}: {name}": mistake
    for kind, table in {
        "label": LABELS,
        "features": FEATURES,
        "column": COLUMNS,
        "option": OPTIONS,
        "": ELSEWHERE,
    }.items()
    for name, mistake in table.items()
}


@pytest.mark.parametrize(("mistake", "collator"), h.cases(MISTAKES))
def test_hint(mistake, collator):
    h.check_hint(MISTAKES[mistake], collator)
