"""Features to columns: the mappings that are read, and those that might answer in a way of their own."""

import random
import types
from collections import OrderedDict, UserDict
from collections.abc import Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from transformers import BatchEncoding, BatchFeature

from quadrat import _core
from quadrat.input import columns as ingest
from quadrat.support import memory
from support.ingest import flat
from support.mappings import Encoding, Reordered, encoding_around, with_lists

TOKENS = st.lists(st.integers(-10, 70000), max_size=40)


class Row(dict):
    """A dict that adds something, and reads as any dict does."""

    def __missing__(self, key):
        self[key] = []
        return self[key]

    def total(self):
        return sum(self.values())


class Custom(Mapping):
    def __init__(self, items):
        self._items = items

    def __getitem__(self, key):
        raise AssertionError(f"asked for {key}")

    def __iter__(self):
        raise AssertionError("asked for its keys")

    def __len__(self):
        raise AssertionError("asked for its length")


def overriding(base, name):
    def refuse(self, *_):
        raise AssertionError(f"asked by {name}")

    return type("Own", (base,), {name: refuse})


class OwnData(UserDict):
    """Keeps its entries elsewhere."""

    data = property(lambda self: self.__dict__, lambda self, value: self.__dict__.update(value))


READERS = ["__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get"]
PLAIN = [
    *(dict, Row, OrderedDict, Reordered, with_lists, UserDict, BatchEncoding, Encoding),
    lambda row: encoding_around(with_lists(row)),
]
OPAQUE = [
    *(overriding(base, name) for base in (dict, OrderedDict, UserDict) for name in READERS),
    *(Custom, types.MappingProxyType, OwnData, BatchFeature),
    *(lambda row: encoding_around(Custom(row)), lambda row: None),
]
BATCHES = st.lists(st.tuples(TOKENS, TOKENS, st.sampled_from(PLAIN)), min_size=1, max_size=140)


@given(batch=BATCHES, container=st.sampled_from([list, tuple]), data=st.data())
def test_collects_plain_mappings(guarded, batch, container, data):
    order = data.draw(st.permutations(["ids", "mask", "\N{LATIN SMALL LETTER E WITH ACUTE}"]))
    rows = [dict(zip(order, (a, b, [7]), strict=True)) for a, b, _ in batch]
    features = container(carrier(row) for row, (_, _, carrier) in zip(rows, batch, strict=True))
    names, columns = ingest.collect(features)
    assert names == tuple(features[0])
    for index, name in enumerate(names):
        assert flat(columns, index, guarded) == [number for feature in features for number in feature[name]]
    later = data.draw(st.integers(0, len(rows) - 1))
    del rows[later][order[1]]
    features = [carrier(row) for row, (_, _, carrier) in zip(rows, batch, strict=True)]
    collected = ingest.collect(features)
    assert collected is None if later else order[1] not in collected[0]
    assert [dict(feature).keys() for feature in features] == [row.keys() for row in rows], "features are not changed"


@given(carrier=st.sampled_from(OPAQUE), count=st.integers(1, 140), data=st.data())
def test_asks_no_mapping_that_may_answer_in_its_own_way(carrier, count, data):
    features = [{"ids": [1], "mask": [1]} for _ in range(count)]
    for at in data.draw(st.sets(st.integers(0, count - 1), min_size=1)):
        features[at] = carrier(features[at])
    assert ingest.collect(features) is None
    assert _core.collect(features, ("ids",), memory.interop()) is None


@pytest.mark.parametrize("features", [[], (), iter([{"a": [1]}]), {"a": [1]}, "a", None, [None], [[1]], [{"a": 1}, 3]])
def test_collects_nothing_else(features):
    assert ingest.collect(features) is None


def nested_batch(data, choices):
    """Features with at least so many rows of tokens in each column but one, which has a number."""
    count, chance = data.draw(st.integers(1, 5) | st.integers(60, 140)), random.Random(data.draw(st.integers(0, 2**32)))

    def column():
        forms = [chance.choice([list, list, tuple, np.array]) for _ in range(choices + chance.randrange(3))]
        rows = [form([chance.randrange(-10, 70000) for _ in range(chance.randrange(5))]) for form in forms]
        return chance.choice([list, tuple])(rows)

    features = [{"ids": column(), "plain": chance.randrange(9), "mask": column()} for _ in range(count)]
    features[0]["ids"] = features[0]["ids"][:choices]
    return features


@given(choices=st.integers(1, 4), container=st.sampled_from([list, tuple]), data=st.data())
def test_collects_the_first_rows_of_each_feature(guarded, choices, container, data):
    rows = nested_batch(data, choices)
    carriers = data.draw(st.lists(st.sampled_from([dict, BatchEncoding]), min_size=1, max_size=3))
    features = container(carriers[at % len(carriers)](row) for at, row in enumerate(rows))
    names, columns, found = ingest.collect_nested(features, "plain", "ids")
    assert found == choices
    assert names == ("ids", "plain", "mask")
    assert [columns.count(index) for index in range(3)] == [len(rows) * choices, len(rows), len(rows) * choices]
    for index in (0, 2):
        expected = [token for row in rows for tokens in row[names[index]][:choices] for token in tokens]
        assert flat(columns, index, guarded, "float64") == expected
    assert columns.describe(1)[:2] == (ingest.NUMBER, ingest.NUMBER)


SPOILT = {
    "a further name": lambda row: row.update(further=[[1]] * 9),
    "a name less": lambda row: row.pop("mask"),
    "fewer rows": lambda row: row.update(ids=row["ids"][:1]),
    "an array of rows": lambda row: row.update(ids=np.zeros((2, 2), int)),
    "None": lambda row: row.update(mask=None),
    "a number": lambda row: row.update(mask=3),
}


@pytest.mark.parametrize("what", SPOILT)
@given(data=st.data())
def test_collects_no_other_nested_rows(what, data):
    features = nested_batch(data, 2)
    later = data.draw(st.integers(0, len(features) - 1))
    SPOILT[what](features[later])
    collected = ingest.collect_nested(features, "plain", "ids")
    if what == "fewer rows" and later == 0:
        assert collected[2] == 1
    elif len(features) == 1 and what in ("a further name", "a name less"):  # then these are the names
        assert len(collected[0]) == (4 if what == "a further name" else 2)
    else:
        assert collected is None


@pytest.mark.parametrize(("carriers", "collected"), [(PLAIN, True), (OPAQUE, False)], ids=["plain", "opaque"])
def test_collects_nested_rows_of_plain_mappings_only(carriers, collected):
    row = {"ids": [[1], [2]], "plain": 0}
    for carrier in carriers:
        assert (ingest.collect_nested([row, carrier(row)], "plain", "ids") is not None) == collected
        assert (ingest.collect_nested([carrier(row)], "plain", "ids") is not None) == collected


@pytest.mark.parametrize("features", [[], (), iter([{"a": [[1]]}]), {"a": [[1]]}, "a", None, [None], [[1]]])
def test_collects_no_other_nested_features(features):
    assert ingest.collect_nested(features, "plain", "a") is None
    assert ingest.collect_nested([{"a": []}], "plain", "a") is None
