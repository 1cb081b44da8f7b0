"""Features to columns: the mappings that are read, those that answer in a way of their own, and user code meanwhile."""

import asyncio
import functools
import random
import types
from collections import ChainMap, OrderedDict, UserDict
from collections.abc import Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.overrides import TorchFunctionMode
from transformers import BatchEncoding, BatchFeature

from quadrat import _core
from quadrat.planning import plan_cache
from quadrat.planning.facts import CALL
from quadrat.support import columns as ingest
from quadrat.support import memory
from quadrat.support.columns import BatchLayout
from support.ingest import INT64, KINDS, columns_of, flat, move
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


class Equal(type(Custom)):
    """Classes that say they are others."""

    __eq__ = lambda cls, other: True  # noqa: E731
    __hash__ = lambda cls: hash(types.MappingProxyType)  # noqa: E731


READERS = ["__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get"]
PLAIN = [
    *(dict, Row, OrderedDict, Reordered, with_lists, UserDict, BatchEncoding, Encoding, BatchFeature),
    *(types.MappingProxyType, lambda row: types.MappingProxyType(Reordered(row)), lambda row: ChainMap({}, row)),
    lambda row: ChainMap(dict(list(row.items())[:1]), dict(list(row.items())[1:])),
    lambda row: ChainMap(dict(list(row.items())[:1]), row | dict.fromkeys(list(row)[:1])),
    lambda row: encoding_around(with_lists(row)),
]
OPAQUE = [
    *(overriding(base, name) for base in (dict, OrderedDict, UserDict) for name in READERS),
    *(
        Custom,
        Equal("Own", (Custom,), {}),
        OwnData,
        overriding(BatchFeature, "__getitem__"),
        overriding(ChainMap, "__missing__"),
    ),
    *(lambda row: encoding_around(Custom(row)), lambda row: types.MappingProxyType(Custom(row)), lambda row: None),
    *(lambda row: ChainMap(row, Custom(row)), lambda row: ChainMap({}, with_lists(row))),
]
BATCHES = st.lists(st.tuples(TOKENS, TOKENS, st.sampled_from(PLAIN)), min_size=1, max_size=140)


@given(batch=BATCHES, container=st.sampled_from([list, tuple]), data=st.data())
def test_collects_plain_mappings(guarded, batch, container, data):
    order = data.draw(st.permutations(["ids", "mask", "\N{LATIN SMALL LETTER E WITH ACUTE}"]))
    rows = [dict(zip(order, (a, b, [7]), strict=True)) for a, b, _ in batch]
    features = container(carrier(row) for row, (_, _, carrier) in zip(rows, batch, strict=True))
    names, columns = _core.collect(features, None, memory.interop())
    assert names == tuple(features[0])
    for index, name in enumerate(names):
        assert flat(columns, index, guarded) == [number for feature in features for number in feature[name]]
    later = data.draw(st.integers(0, len(rows) - 1))
    del rows[later][order[1]]
    features = [carrier(row) for row, (_, _, carrier) in zip(rows, batch, strict=True)]
    collected = _core.collect(features, None, memory.interop())
    assert collected is None if later else order[1] not in collected[0]
    assert [dict(feature).keys() for feature in features] == [row.keys() for row in rows], "features are not changed"


@given(carrier=st.sampled_from(OPAQUE), count=st.integers(1, 140), data=st.data())
def test_asks_no_mapping_that_may_answer_in_its_own_way(carrier, count, data):
    features = [{"ids": [[1], [2]], "plain": 0} for _ in range(count)]
    for at in data.draw(st.sets(st.integers(0, count - 1), min_size=1)):
        features[at] = carrier(features[at])
    assert _core.collect(features, None, memory.interop()) is None
    assert _core.collect(features, ("ids",), memory.interop()) is None
    assert made_of_choices(features) is None


WIDTH = 4


def nested_batch(data, choices):
    """Features with at least so many rows of tokens in each column but one, which has a number."""
    count, chance = data.draw(st.integers(1, 5) | st.integers(60, 140)), random.Random(data.draw(st.integers(0, 2**32)))

    def column():
        forms = [chance.choice([list, list, tuple, np.array]) for _ in range(choices + chance.randrange(3))]
        rows = [form([chance.randrange(-10, 70000) for _ in range(chance.randrange(WIDTH + 1))]) for form in forms]
        return chance.choice([list, tuple])(rows)

    features = [{"ids": column(), "plain": chance.randrange(9), "mask": column()} for _ in range(count)]
    features[0]["ids"] = features[0]["ids"][:choices]
    return features


def recipe_of(plan_of_key, facts=(), values=None, **fields):
    class Form(plan_cache.Spec):
        plan = staticmethod(plan_cache.planned(plan_of_key))

        def values(self, collator, key):
            return values or {}

    recipe = _core.Recipe(Form(framework="np", **fields), facts, memory.interop())
    return functools.partial(_core.Recipes((recipe,)).runner(), None)


def made_of_choices(features, main="ids"):
    """The batch of a recipe for multiple choice; None for features that are no such examples."""

    def plan(key):
        steps = [(name, index, ingest.PAD, INT64) for index, name in enumerate(key.names) if name != "plain"]
        return plan_cache.Plan((*steps, ("plain", key.names.index("plain"), ingest.NUMBERS, INT64)))

    values = dict.fromkeys(("ids", "mask", "further"), 0)
    form = {"plain": "plain", "main": main, "layout": BatchLayout(WIDTH)}
    return recipe_of(plan, values=values, **form)(features)


@given(choices=st.integers(1, 4), container=st.sampled_from([list, tuple]), data=st.data())
def test_takes_the_first_rows_of_each_feature(choices, container, data):
    rows = nested_batch(data, choices)
    carriers = data.draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3))
    batch = made_of_choices(container(carriers[at % len(carriers)](row) for at, row in enumerate(rows)))
    assert sorted(batch) == ["ids", "mask", "plain"]
    assert batch["plain"].tolist() == [row["plain"] for row in rows]
    for name in ("ids", "mask"):
        taken = [[list(tokens) for tokens in row[name][:choices]] for row in rows]
        assert batch[name].tolist() == [[tokens + [0] * (WIDTH - len(tokens)) for tokens in row] for row in taken]


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
def test_takes_no_other_nested_rows(what, data):
    features = nested_batch(data, 2)
    later = data.draw(st.integers(0, len(features) - 1))
    SPOILT[what](features[later])
    batch = made_of_choices(features)
    if what == "fewer rows" and later == 0:
        assert batch["ids"].shape[:2] == (len(features), 1)
    elif len(features) == 1 and what in ("a further name", "a name less"):  # then these are the names
        assert len(batch) == (4 if what == "a further name" else 2)
    else:
        assert batch is None


EXAMPLE = {"plain": 0, "ids": [[1]]}


@pytest.mark.parametrize("features", [[], (), iter([EXAMPLE]), EXAMPLE, "a", None, [None], [[1]], [EXAMPLE, 3]])
def test_takes_no_other_features(features):
    assert _core.collect(features, None, memory.interop()) is None
    assert made_of_choices(features) is None


@pytest.mark.parametrize("row", [{"plain": 0, "ids": []}, {"plain": 0}])
def test_takes_no_choices_of_none(row):
    assert made_of_choices([row]) is None


@given(count=st.integers(1, 200), moment=st.integers(0, 199), left=st.integers(0, 199))
def test_features_may_shrink_while_they_are_read(guarded, count, moment, left):
    class Hostile:
        """A key that is compared with "ids", and is another one."""

        def __hash__(self):
            return hash("ids")

        def __eq__(self, other):
            del features[left:]
            return False

    features = []  # for now: making a dict compares keys, too
    rows = [{"ids": [i] * 3, "at": i} for i in range(count)]
    if moment < count:
        rows[moment] = {Hostile(): 0, **rows[moment]}
    features += rows
    collected = _core.collect(features, ("ids",), memory.interop())
    if collected is None:
        assert moment < count
        assert left < count
    else:
        assert flat(collected[1], 0, guarded) == [i for i in range(count) for _ in range(3)]


def test_what_is_asked_of_a_tensor_may_change_the_others(guarded):
    """Where it takes Python code to see a tensor, as in an older torch."""

    def describe(tensor):
        for row in (tensors[0], array):
            move(row)
        rows.clear()
        return memory.describe_tensor(tensor)

    interop = _core.Interop(memory.Libraries(np.ndarray, None, torch.Tensor, None, describe, None))
    tensors, array = [torch.arange(8 * i, 8 * i + 8)[:: i % 3 + 1] for i in range(5)], np.arange(7, 9)
    rows = [[5], array, *tensors]
    expected = [5, 7, 8, *(number for tensor in tensors for number in tensor.tolist())]
    columns, out = columns_of(rows, interop), guarded("int64", len(expected))
    assert rows == []
    for row in (tensors[-1], array):
        move(row)
    assert columns.flatten(0, out.address, INT64, len(expected)) is None
    assert out.array.tolist() == expected


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("form", [torch.tensor, np.array])
def test_sees_what_has_moved_since_it_was_collected(interops, guarded, form, number):
    kind = KINDS.index("float64")
    rows = [form(0.5 if number else [0.5, 1.5], dtype=(torch if form is torch.tensor else np).float64)] * 3
    if number and form is np.array:
        rows = [np.float64(0.5)] * 3  # which has its number within, for good
    columns, out = columns_of(rows, memory.interop()), guarded("float64", 6)
    steps = (("x", 0, ingest.NUMBERS if number else ingest.STACK, kind),)

    def run():
        return columns.run(steps, {}, memory.interop(), False, BatchLayout(2))

    expected = np.array([row.tolist() for row in rows])
    assert run()["x"].tobytes() == expected.tobytes()
    if isinstance(rows[0], np.float64):
        return
    move(rows[0])
    assert run()["x"].tobytes() == expected.tobytes()
    if number:
        return
    move(rows[0])
    assert columns.flatten(0, out.address, kind, 6) is None
    assert out.array.tolist() == expected.reshape(-1).tolist()
    if form is torch.tensor:
        rows[0].resize_(1)
    else:
        rows[0].resize(1, refcheck=False)
    again = guarded("float64", 6)
    assert columns.flatten(0, again.address, kind, 6) == (ingest.CHANGED, 0, -1)
    assert run() == (0, ingest.CHANGED, 0, -1)
    assert again.untouched()


def test_function_modes_are_not_asked(interops):
    """A mode is the user's code; torch calls it even for an attribute."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was asked for")

    rows = [torch.ones(2), torch.ones(2, requires_grad=True), torch.tensor([1 + 2j]).conj().imag]
    for row in rows:
        row.is_neg = Mode().__torch_function__  # nor is an attribute that a tensor has of its own
    with Mode():
        columns = columns_of(rows, memory.interop())
    assert columns.describe(0)[0] == ingest.TENSOR | ingest.OTHER
    assert torch._C._len_torch_function_stack() == 0


ASKED = [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, asyncio.CancelledError]
FALLS_BACK = [ValueError, KeyError, AttributeError, StopIteration, RecursionError, Warning, OSError]


class Raising:
    def __init__(self, error):
        self._error, self.armed = error, False  # making a dict compares keys, too

    def __call__(self, *_):
        if self.armed:
            raise self._error
        return False

    def __hash__(self):
        return hash("ids")

    __eq__ = __call__


@pytest.mark.parametrize("error", [*ASKED, *FALLS_BACK])
def test_clears_only_errors_that_the_reference_raises_again(error):
    raising = Raising(error)
    features = [{"ids": [1], "a": [1]}, {raising: 0, "ids": [2], "a": [2]}]
    guarded = recipe_of(lambda key: plan_cache.Plan(), ((CALL, raising, None, 0),), names=("a",))
    optional = recipe_of(lambda key: plan_cache.Plan(), names=("a",), optional={"ids": False})
    assert optional(features[:1]) == {}
    raising.armed = True
    calls = [
        lambda: _core.collect(features, ("ids",), memory.interop()),
        lambda: optional(features),
        lambda: guarded(features),
    ]
    for call in calls:
        if error in FALLS_BACK:
            assert call() is None
        else:
            with pytest.raises(error):
                call()


def test_a_damaged_column_is_one_error_in_a_known_batch_and_in_a_new_one():
    values, offsets = np.arange(6), np.array([0, 3, 6])
    column = _core.memory_column(values.ctypes.data, INT64, 6, offsets.ctypes.data, 2, (values, offsets))
    rows, interop = _core.TableRows(_core.Table(("ids",), [column])), memory.interop()
    run = recipe_of(lambda key: plan_cache.Plan((("ids", 0, ingest.STACK, INT64),)))
    assert run(rows)["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    offsets[1] = 99
    for call in (lambda: _core.collect(rows, None, interop), lambda: run(rows)):
        with pytest.raises(ValueError, match="damaged"):
            call()
