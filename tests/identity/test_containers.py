"""Features in mappings of every kind, and batches in sequences of every kind: read and left as the reference does."""

import random
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchEncoding

from support import samples
from support.compare import assert_seeded_alike, frozen
from support.mappings import Encoding, Reordered, Wrapped, encoding_around, with_lists


class Doubling(dict):
    """What `items` gives is not what `[]` gives."""

    def __getitem__(self, key):
        return super().__getitem__(key) * 2


class Missing(dict):
    def __missing__(self, key):
        return [7]


class UserMissing(UserDict):
    def __missing__(self, key):
        self.data[key] = [7]
        return self.data[key]


class Inserting(Wrapped):
    def __getitem__(self, key):
        return self.held.setdefault(key, [7])


class Augmenting(Wrapped):
    """Each look at a value draws a number, as augmentation does."""

    def __getitem__(self, key):
        value = self.held[key]
        return value[random.randrange(2) :] if isinstance(value, list) else value


class Hiding(dict):
    """`in` says something else than `[]`."""

    def __contains__(self, key):
        return key not in ("label", "labels") and super().__contains__(key)


class Empty(dict):
    def keys(self):
        return {}.keys()


CARRIERS = [
    *(dict, with_lists, Missing, UserMissing, Inserting, UserDict, Wrapped, Augmenting, Doubling, ChainMap, Counter),
    *(Hiding, Reordered, OrderedDict, Empty, BatchEncoding, Encoding, types.MappingProxyType),
    *(lambda row: defaultdict(int, row), lambda row: encoding_around(with_lists(row))),
]


def full_batch(name):
    """A batch with the columns that a collator looks at in some batches only."""
    if name == "DataCollatorWithFlattening":
        return [{**row, "labels": list(row["input_ids"])} for row in samples.batch(name)]
    if name == "DataCollatorForWholeWordMask":
        return [{**row, "chinese_ref": [1]} for row in samples.batch(name)]
    if name == "DefaultDataCollator":
        further = {"text": "a", "nothing": None, "label": 1, "label_ids": [1, 2]}
        return [{**row, **further} for row in samples.batch(name)]
    return samples.batch(name)


def content(feature: Any) -> Any:
    """What a feature holds, without a look that changes it."""
    if isinstance(feature, Wrapped):
        return content(feature.held)
    if isinstance(feature, UserDict):
        return content(feature.data)
    if isinstance(feature, ChainMap):
        return [content(mapping) for mapping in feature.maps]
    return frozen(dict(dict.items(feature)) if isinstance(feature, dict) else dict(feature))


def assert_alike(name, framework, maker, *, known):
    """`maker` makes the features, once for each collator; `known`: both have seen complete batches in dicts before."""
    reference, collator = samples.pair(name, return_tensors=framework)
    for _ in range(2 if known else 0):
        for instance in (reference, collator):
            instance(full_batch(name))
    theirs, ours = maker(), maker()
    assert_seeded_alike(reference, collator, theirs, ours)
    if name != "DataCollatorForMultipleChoice":  # where transformers 4.x takes the labels out of the features
        assert [content(feature) for feature in ours] == [content(feature) for feature in theirs]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("name", "framework"), samples.BATCHES)
@given(data=st.data())
def test_every_mapping(name, framework, known, data):
    rows = full_batch(name)
    pops = name == "DataCollatorForMultipleChoice"  # transformers 4.x takes the labels out of the features
    choice = st.sampled_from([carrier for carrier in CARRIERS if not (pops and carrier is types.MappingProxyType)])
    several = st.lists(choice, min_size=len(rows), max_size=len(rows))
    carriers = data.draw(several | choice.map(lambda carrier: [carrier] * len(rows)))
    column, row = st.sampled_from(sorted(rows[0])), st.integers(0, len(rows) - 1)
    lacking = data.draw(st.lists(st.tuples(row, column), max_size=2))
    if data.draw(st.booleans()):  # a column that no row has
        gone = data.draw(column)
        lacking += [(at, gone) for at in range(len(rows))]
    elif data.draw(st.booleans()):  # or that the first alone has
        lacking += [(at, data.draw(column)) for at in range(1, len(rows))]

    def maker():
        kept = [
            {name: value for name, value in row.items() if (at, name) not in lacking} for at, row in enumerate(rows)
        ]
        return [carrier(row) for carrier, row in zip(carriers, kept, strict=True)]

    assert_alike(name, framework, maker, known=known)


class List(list):
    pass


class Tuple(tuple):
    pass


class Reversed(list):
    """What iteration gives is not what `[]` gives."""

    def __iter__(self):
        return reversed(self)


class Plain(Sequence):
    def __init__(self, rows):
        self._rows = list(rows)

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, at):
        return self._rows[at]


def objects(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


CONTAINERS = [list, tuple, List, Tuple, Reversed, deque, UserList, Plain, iter, objects, enumerate]
ROWS = [[7, 8, 9, 10], [11, 12, 13, 14], [15, 16, 17, 18]]
RAGGED = [[7, 8, 9, 10], [11, 12], [13, 14, 15, 16]]


def assert_sequences_alike(name, framework, maker):
    """From new collators, and from those that know batches of the same features in a list."""
    reference, collator = samples.pair(name, return_tensors=framework)
    for _ in range(2):
        assert_seeded_alike(reference, collator, maker(), maker())
        for instance in (reference, collator):
            instance(samples.batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.__name__)
@pytest.mark.parametrize("row", [list, tuple, np.array, torch.tensor], ids=lambda row: row.__name__)
@pytest.mark.parametrize("rows", [ROWS, RAGGED], ids=["equal", "ragged"])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", samples.BARE)
def test_bare_rows(name, framework, rows, row, container):
    assert_sequences_alike(name, framework, lambda: container([row(ids) for ids in rows]))


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.__name__)
@pytest.mark.parametrize(("name", "framework"), samples.BATCHES)
def test_features(name, framework, container):
    assert_sequences_alike(name, framework, lambda: container(samples.batch(name)))


@pytest.mark.parametrize("name", samples.BARE)
def test_rows_in_one_array(name):
    for framework in ("pt", "np"):
        for form in (np.array, torch.tensor):
            assert_sequences_alike(name, framework, lambda form=form: form(ROWS))
