"""Padding of lists, arrays and tensors, with labels and without."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from benchmarks.jobs import Job, timed, timed_alone
from benchmarks.workload import as_numpy, as_torch, by_name, collated, corpus, encode, pick, rows, tokenizer


def padding(features: list[Any]) -> Job:
    return by_name("DataCollatorWithPadding", features)


def labelled(form: Callable[[Any], Any], label: Callable[[Any], Any]) -> Job:
    return padding([{**form(encode(index)), "label": label(corpus().labels[index])} for index in pick()])


def token_classification() -> Job:
    features = []
    for index in pick():
        encoded = tokenizer()(corpus().texts[index], truncation=True)
        words = encoded.word_ids(0)
        first_piece = [word is not None and word != before for before, word in zip([None, *words], words, strict=False)]
        # `tolist` makes every -100 an object of its own, as a row read from a data set has them.
        labels = np.where(first_piece, corpus().labels[index], -100).tolist()
        features.append({**encoded, "labels": labels})
    return by_name("DataCollatorForTokenClassification", features)


def stacking() -> Job:
    equal = {"max_length": 128, "padding": "max_length"}
    features = [{**encode(index, **equal), "label": int(corpus().labels[index])} for index in pick()]
    return collated((transformers.default_data_collator, quadrat.default_data_collator), features)


CASES = {
    "padding, Python lists": lambda: padding(rows()),
    "padding, NumPy arrays": lambda: padding(list(map(as_numpy, rows()))),
    "padding, torch tensors": lambda: padding(list(map(as_torch, rows()))),
    "padding, NumPy arrays with a NumPy scalar label": lambda: labelled(as_numpy, np.int64),
    "padding, torch tensors with a 0-d label tensor": lambda: labelled(as_torch, torch.tensor),
    "padding with token labels, Python lists": token_classification,
    "equal lengths of 128 with a label, Python lists": stacking,
    "padding, one row of 8 tokens": lambda: padding([encode(pick(1)[0], max_length=8)]),
}
test_cold = timed(CASES)
test_warm = timed_alone(CASES, small=1, said_as="warm_ns")
