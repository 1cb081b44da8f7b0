"""Errors about what is given in place of a list of features, and about rows: each hint is followed, and helps."""

from typing import Any

import datasets
import pytest
import torch
from torch.utils.data import DataLoader

from support import samples
from support.hints import (
    BARE,
    CHOICE,
    FLAT,
    MASKED,
    PADDED,
    PLAIN,
    SEQ2SEQ,
    STACKED,
    TAGS,
    TOKENS,
    Mistake,
    cases,
    check_hint,
    gives,
    rows,
    runs,
    without,
)


def dataset() -> Any:
    return datasets.Dataset.from_list(rows(*[4, 2] * 16))


def stream() -> Any:
    return dataset().to_iterable_dataset()


def splits() -> Any:
    return datasets.DatasetDict(test=dataset())


WHOLE = r"for example (collator\(.*\))"
LOADER = r"DataLoader: (DataLoader\(.*collate_fn=collator\))"
LIST = "not a list of rows"

MISTAKES = {
    "a string": Mistake(
        [*PADDED, *FLAT], lambda: "w5 w6 w7 w8", ["features is the string"], runs(r"first: (collator\(.*\))")
    ),
    "None": Mistake(TOKENS, lambda: None, ["features is None", LIST], gives(lambda _: rows(4, 4))),
    "a number": Mistake(TOKENS, lambda: 5, ["features is an int", LIST], gives(lambda _: rows(4, 4))),
    "a set": Mistake(TOKENS, lambda: {1, 2}, ["features is a set", LIST], gives(lambda _: rows(4, 4))),
    "a generator": Mistake(
        [*TOKENS, *STACKED],
        lambda: (row for row in rows(4, 4)),
        ["features is a generator", "only once"],
        runs(r"list: (collator\(.*\))"),
    ),
    "a data set": Mistake(PLAIN + BARE[:1], dataset, ["features is a Dataset, not a list"], runs(WHOLE)),
    "a data set, loaded": Mistake(PLAIN + BARE[:1], dataset, ["DataLoader"], runs(LOADER)),
    "splits": Mistake(TOKENS, splits, ["features is a DatasetDict", "features['test'][i]"], runs(WHOLE)),
    "splits, loaded": Mistake(TOKENS, splits, ["DataLoader(features['test']"], runs(LOADER)),
    "a stream": Mistake(TOKENS, stream, ["features is an IterableDataset"], runs(LOADER)),
    "a loader": Mistake(
        TOKENS,
        lambda: DataLoader(rows(4, 4)),
        ["features is a DataLoader"],
        lambda scene: runs(LOADER)(scene._replace(features=scene.features.dataset)),
    ),
    "one example": Mistake(
        [*PADDED[1:], *MASKED, *FLAT, *STACKED],
        lambda: rows(4)[0],
        ["features is a dict with", "batch_size"],
        runs(r"give (collator\(\[example\]\))"),
    ),
    "no rows": Mistake(TOKENS, list, ["the batch is empty", "skip"], gives(lambda _: rows(4, 4))),
    "texts": Mistake(
        [*PADDED, *FLAT],
        lambda: ["w5 w6 w7 w8", "w5 w6"],
        ["row 0 is the string 'w5 w6", "tokenizer(text)"],
        gives(lambda features: list(map(samples.tokenizer(), features))),
    ),
    "a row is None": Mistake(
        [*TOKENS, *STACKED],
        lambda: [None, *rows(4, 4)],
        ["row 0 is None", "leave it out"],
        gives(lambda features: features[1:]),
    ),
    "a later row is None": Mistake(
        [*TOKENS, *STACKED],
        lambda: [*rows(4, 4), None],
        ["row 2 is None", "leave it out"],
        gives(lambda features: features[:2]),
    ),
    "batches in a batch": Mistake(
        [*TOKENS, *STACKED],
        lambda: [rows(4, 4)],
        ["row 0 is a list", "holds 2"],
        runs(r"inner list, for example (collator\(.*\))"),
    ),
    "batches in a batch of choices": Mistake(
        CHOICE, lambda: [samples.batch(*CHOICE)], ["row 0 is a list", "holds 3"], runs(r"for example (collator\(.*\))")
    ),
    "one example of choices": Mistake(
        CHOICE, lambda: samples.batch(*CHOICE)[0], ["features is a dict with"], runs(r"give (collator\(\[example\]\))")
    ),
    "pairs": Mistake(
        [*PLAIN, *TAGS, *SEQ2SEQ, *FLAT],
        lambda: [([5, 6], 1), ([7, 8], 0)],
        ["row 0 is a tuple", "name its parts, for example {'input_ids'"],
        gives(lambda features: [{"input_ids": row, "labels": [label] * 2} for row, label in features]),
    ),
    "bare pairs": Mistake(
        BARE,
        lambda: [([5, 6], 1), ([7, 8], 0)],
        ["row 0 is a tuple", "name its parts, for example {'input_ids'"],
        gives(lambda features: [{"input_ids": row} for row, _ in features]),
    ),
    "bare rows": Mistake(
        [*PADDED[:3], *FLAT, *STACKED],
        lambda: [[5, 6], [7, 8]],
        ["row 0 is a list", "give {'input_ids': row}"],
        gives(lambda features: [{"input_ids": row} for row in features]),
    ),
    "bare batches of one": Mistake(
        [*PADDED[:3], *FLAT],
        lambda: [torch.tensor([[5, 6]]), torch.tensor([[7, 8]])],
        ["row 0 is a Tensor", "give {'input_ids': row[0]}"],
        gives(lambda features: [{"input_ids": row[0]} for row in features]),
    ),
    "mappings and rows": Mistake(
        BARE,
        lambda: [[5, 6], *rows(2)],
        ["row 1 is a dict where row 0 is a list"],
        gives(lambda features: features[1:]),
    ),
    "a column is missing": Mistake(
        PADDED,
        lambda: [*rows(4), {"input_ids": [5]}],
        ["'attention_mask' is missing in row 1", "['input_ids']", "remove it from the others"],
        gives(without("attention_mask")),
    ),
}


@pytest.mark.parametrize(("mistake", "collator"), cases(MISTAKES))
def test_hint(mistake, collator):
    check_hint(MISTAKES[mistake], collator)
