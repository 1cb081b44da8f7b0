"""Errors about what is given as features, about rows and about labels: each hint is followed, and helps."""

from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

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
    Mistake,
    bad_row,
    cases,
    check_hint,
    each,
    given_as,
    gives,
    labelled,
    maps,
    rows,
    runs,
    sets,
    useless_column,
    uses,
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

UNPADDED = [*PLAIN, *LANGUAGE, *STACKED]


def tags(n):
    return [1] * n


def targets(n):
    return [1] * (7 - n)


MADE_ANYWAY = labelled(
    LANGUAGE, tags, gives(without("labels")), "'labels' is ragged", "makes labels of its own: remove the column"
)
NUMBER_PER_ROW = labelled(
    [*TAGS, *SEQ2SEQ],
    lambda n: 1,
    uses(r"use (DataCollatorWithPadding)"),
    *("'labels', row 0 is the number 1", "one label per row"),
)

LABELS = {
    **{
        f"a label per token, named {name}": Mistake(
            UNPADDED,
            lambda name=name: rows(4, 2, **{name: tags}),
            said,
            uses(r"use (DataCollatorForTok\w+\(tokenizer\))"),
        )
        for name, said in {
            "labels": ["is ragged and not padded here: row 0 has length 4, row 1 has length 2"],
            "label": ["'label' is ragged", "pads it with -100"],
        }.items()
    },
    "targets": labelled(
        UNPADDED,
        targets,
        uses(r"use (DataCollatorForSeq2Seq\(tokenizer\))"),
        "is ragged and not padded here: row 0 has",
    ),
    "padded by option": labelled(
        PLAIN, tags, sets("pad_values", r"pad_values=({'labels': -100})"), "'labels' is ragged"
    ),
    "made anyway": MADE_ANYWAY,
    "made anyway, causal": MADE_ANYWAY._replace(options={"mlm": False}),
    "names": Mistake(
        [*PLAIN, *STACKED],
        lambda: [{**row, "label": label} for row, label in zip(rows(4, 4), ("pos", "neg"), strict=True)],
        ["'label', row 0 is the string 'pos'", "map labels to numbers, for example {'neg': 0, 'pos': 1}[label]"],
        maps("label"),
    ),
    "names of tags": labelled(
        [*TAGS, *FLAT], lambda n: ["O", "B-PER"] * (n // 2), maps("labels"), "is the string", "map labels to numbers"
    ),
    "names of choices": Mistake(
        CHOICE,
        lambda: each(lambda _: "first", "label")(samples.batch(*CHOICE)),
        ["'label', row 0 is the string 'first'"],
        maps("label"),
    ),
    "names where labels are made": useless_column(
        LANGUAGE, "label", lambda n: "pos", "'label', row 0 is the string 'pos'"
    ),
    "text": labelled(
        SEQ2SEQ,
        lambda n: "w5 w6",
        gives(each(lambda text: samples.tokenizer()(text_target=text)["input_ids"], "labels")),
        *("'labels', row 0 is the string 'w5 w6'", "tokenizer(text_target=text)['input_ids']"),
    ),
    "words": labelled(
        SEQ2SEQ,
        lambda n: ["w5"],
        gives(each(lambda row: samples.tokenizer().convert_tokens_to_ids(row), "labels")),
        *("'labels', row 0, position 0 is the string 'w5'", "tokenizer.convert_tokens_to_ids(row)"),
    ),
    "None": useless_column(
        [*PLAIN, *TAGS, *LANGUAGE, *FLAT], "labels", lambda n: None, "'labels' is None in every row"
    ),
    "None in a row": Mistake(
        [*PLAIN, *STACKED],
        lambda: [{**row, "label": label} for row, label in zip(rows(4, 4), (1, None), strict=True)],
        ["'label', row 1 is None", "give every row a value"],
        gives(each(lambda label: label or 0, "label")),
    ),
    "None for a token": labelled(
        [*TAGS, *SEQ2SEQ],
        lambda n: [None] * n,
        gives(each(lambda row: [-100 for _ in row], "labels")),
        *("'labels', row 0, position 0 is None", "give -100 where there is no label"),
    ),
    "a number per row": NUMBER_PER_ROW,
    "a number per row, flattened": NUMBER_PER_ROW._replace(
        collators=FLAT, follow=uses(r"use (DataCollatorWithFlattening\(.*\))")
    ),
    "too many": Mistake(
        TAGS,
        lambda: rows(4, 2, labels=lambda n: [1] * (n + 3)),
        ["'labels', row 0 has 7 labels for the 4 tokens", "one label per token"],
        gives(lambda features: [{**row, "labels": row["labels"][: len(row["input_ids"])]} for row in features]),
    ),
    "arrays after lists": Mistake(
        SEQ2SEQ,
        lambda: [{"input_ids": [5], "labels": [1]}, {"input_ids": [5], "labels": np.array([1, 2])}],
        ["'labels', row 1 is a ndarray where row 0 is a list", "value.tolist()"],
        gives(each(lambda row: row if isinstance(row, list) else row.tolist(), "labels")),
    ),
    "missing": Mistake(
        CHOICE,
        lambda: without("label")(samples.batch(*CHOICE)),
        ["no column 'label' or 'labels'", "any number"],
        gives(lambda features: [{**row, "label": 0} for row in features]),
    ),
    "None for choices": Mistake(
        CHOICE,
        lambda: each(lambda _: None, "label")(samples.batch(*CHOICE)),
        ["'label', row 0 is None", "any number"],
        gives(each(lambda _: 0, "label")),
    ),
    "a list of choices": Mistake(
        CHOICE,
        lambda: [{**row, "label": label} for row, label in zip(samples.batch(*CHOICE), ([1], 0, 1), strict=True)],
        ["'label', row 0 is a list", "give the number of the right choice"],
        gives(each(lambda label: label[0] if isinstance(label, list) else label, "label")),
    ),
}

MISTAKES = {
    "a string": Mistake(
        [*PADDED, *FLAT], lambda: "w5 w6 w7 w8", ["features is the string"], runs(r"first: (collator\(.*\))")
    ),
    "None": given_as(TOKENS, lambda: None, "features is None", LIST),
    "a number": given_as(TOKENS, lambda: 5, "features is an int", LIST),
    "a set": given_as(TOKENS, lambda: {1, 2}, "features is a set", LIST),
    "no rows": given_as(TOKENS, list, "the batch is empty", "skip"),
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
    "texts": Mistake(
        [*PADDED, *FLAT],
        lambda: ["w5 w6 w7 w8", "w5 w6"],
        ["row 0 is the string 'w5 w6", "tokenizer(text)"],
        gives(lambda features: list(map(samples.tokenizer(), features))),
    ),
    "a row is None": bad_row([*TOKENS, *STACKED], 0, None, "row 0 is None", "leave it out"),
    "a later row is None": bad_row([*TOKENS, *STACKED], 2, None, "row 2 is None", "leave it out"),
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


MISTAKES |= {f"label: {name}": mistake for name, mistake in LABELS.items()}


@pytest.mark.parametrize(("mistake", "collator"), cases(MISTAKES))
def test_hint(mistake, collator):
    check_hint(MISTAKES[mistake], collator)
