"""Features to columns to rows: what is recognised, what is read from Python numbers, and what is refused."""

import asyncio
import random
import types
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.overrides import TorchFunctionMode
from transformers import BatchEncoding, BatchFeature

from quadrat import _core, _memory, ingest
from quadrat.collators.recall import CALL

KINDS = _core.kinds
INT64 = KINDS.index("int64")
LENGTHS = st.integers(0, 40) | st.sampled_from([63, 64, 65, 80, 255, 256, 257, 513])
EDGES = [-(2**63), -(2**62), -(2**31), -(2**30), 1 - 2**30, -6, -5, -1, 0, 1, 255, 256, 257, 2**30 - 1, 2**30, 2**31,
         2**62, 2**63 - 1]  # fmt: skip
TOKENS = st.lists(st.integers(-10, 70000), max_size=40)


class Number(int):
    """An int that is not exactly one."""


FOREIGN = {
    int: [None, "1", [1], (), {}, 1.0, True, np.int64(1), Number(1), 1j, object()],
    float: [None, "1", [1.0], True, np.float64(1), 1j],
    bool: [None, 0, 1, 1.0, np.True_],
}


def columns_of(rows, interop):
    columns = _core.Columns()
    columns.add_values(rows, interop)
    return columns


def flat(columns, index, guarded, kind="int64"):
    total = columns.describe(index)[5]
    out = guarded(kind, total)
    assert columns.flatten(index, out.address, KINDS.index(kind), total) is None
    assert out.intact()
    return out.array.tolist()


@given(rows=st.lists(st.lists(st.sampled_from(EDGES) | st.integers(-8, 260), max_size=100), max_size=5))
def test_ints_of_every_size(interops, guarded, rows):
    assert flat(columns_of(rows, interops["exchange"]), 0, guarded) == [number for row in rows for number in row]


@given(
    row=st.lists(st.sampled_from([*range(-2, 3), 256, 257, *EDGES[-4:], 2**63, 2**64 - 1, 2**64]), max_size=40),
    stream=st.booleans(),
)
def test_ints_beyond_int64_where_uint64_is_wanted(interops, guarded, row, stream):
    size = (1 << 20) if stream else len(row)  # of 8 MiB and more, see csrc/kernels/stream.hpp
    out = guarded("uint64", size)
    failure = columns_of([[], row], interops["exchange"]).flatten(0, out.address, KINDS.index("uint64"), size)
    bad = [position for position, number in enumerate(row) if not 0 <= number < 2**64]
    assert failure == ((4, 1, bad[0]) if bad else None)
    assert bad or out.array[: len(row)].tolist() == row
    assert bool((out.bytes[8 * len(row) :] == 0xA5).all())
    assert out.intact()


@given(rows=st.lists(st.lists(st.floats(width=64) | st.integers(-(2**53), 2**53), min_size=1), max_size=5))
def test_floats_may_have_ints_among_them(interops, guarded, rows):
    rows = [[0.5, *row] for row in rows]
    values = flat(columns_of(rows, interops["exchange"]), 0, guarded, "float64")
    assert np.array_equal(values, [float(number) for row in rows for number in row], equal_nan=True)


def test_an_int_beyond_every_float(interops, guarded):
    columns, out = columns_of([[0.5], [0.5, 1, -(10**400)]], interops["exchange"]), guarded("float64", 4)
    assert columns.flatten(0, out.address, KINDS.index("float64"), 4) == (4, 1, 2)
    assert out.intact()


@given(target=st.sampled_from([kind for kind in KINDS if kind != "bool"]), others=LENGTHS, data=st.data())
def test_names_the_place_of_an_int_beyond_int64(interops, guarded, target, others, data):
    values = [1] * others
    value = data.draw(st.integers(2**64 if target == "uint64" else 2**63) | st.integers(max_value=-(2**63) - 1))
    position = data.draw(st.integers(0, others))
    values.insert(position, value)
    out = guarded(target, len(values))
    columns = columns_of([values], interops["exchange"])
    assert columns.flatten(0, out.address, KINDS.index(target), len(values)) == (4, 0, position)
    assert out.intact()


@given(
    kind=st.sampled_from([int, float, bool]),
    target=st.sampled_from(KINDS),
    container=st.sampled_from([list, tuple]),
    others=LENGTHS.filter(bool),
    data=st.data(),
)
def test_names_the_place_of_what_is_no_number(interops, guarded, *, kind, target, container, others, data):
    values = [kind(1)] * others
    position = data.draw(st.integers(1, others))
    values.insert(position, data.draw(st.sampled_from(FOREIGN[kind])))
    out = guarded(target, others + 2)
    columns = columns_of([[], [kind(0)], container(values)], interops["exchange"])
    failure = columns.flatten(0, out.address, KINDS.index(target), others + 2)
    if kind is bool or (target != "bool" and (kind is int or "float" in target)):
        assert failure == (5, 2, position)
    else:
        assert failure == (3, 1, -1)
        assert out.untouched()
    assert out.intact()


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=5), row=st.integers(0, 4), change=st.sampled_from([-1, 1, 300]))
def test_notices_a_list_that_changed_its_length(interops, guarded, lengths, row, change):
    row %= len(lengths)
    lengths[row] += 1  # an empty row is never read again
    rows = [[1] * length for length in lengths]
    columns = columns_of(rows, interops["exchange"])
    rows[row][:] = [1] * (lengths[row] + change)
    out, before = guarded("int64", sum(lengths)), sum(lengths[:row])
    assert columns.flatten(0, out.address, INT64, sum(lengths)) == (6, row, -1)
    assert out.array[:before].tolist() == [1] * before
    assert bool((out.bytes[8 * before :] == 0xA5).all())
    assert out.intact()


FORMS = {ingest.LIST: list, ingest.TUPLE: tuple, ingest.ARRAY: np.array, ingest.TENSOR: torch.tensor}
OTHERS = [
    None, "text", {}, [[1]], ["a"], [None], np.zeros((1, 1)), np.float16(1), np.longdouble(1), np.array(1),
    np.zeros(2, np.float16),    np.zeros(2, ">i4"), np.zeros(2, complex), np.array(["a"]), torch.zeros(1, 1),
    torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, device="meta"), torch.ones(2).to_sparse(),
    torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)), torch.zeros(2, dtype=torch.complex64),
    torch.tensor([1 + 2j]).conj().imag, torch.tensor([], requires_grad=True), Number(1), range(3),
]  # fmt: skip


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@given(rows=st.lists(st.tuples(st.sampled_from(sorted(FORMS)), st.integers(0, 9)), max_size=9), main=st.integers(0, 1))
def test_describes_what_it_saw(interops, way, rows, main):
    columns = columns_of([FORMS[form]([5] * length) for form, length in rows], interops[way])
    columns.add_values([1.5] * len(rows), interops[way])
    lengths = [length for _, length in rows]
    ored = sum({form for form, _ in rows})
    kinds = 1 << INT64 if any(lengths) else 0  # an empty row has no kind, though an array or a tensor has a dtype
    extremes = (min(lengths, default=0), max(lengths, default=0))
    assert columns.describe(0) == (ored, rows[0][0] if rows else 0, kinds, *extremes, sum(lengths))
    assert columns.count(0) == len(rows)
    differing = [i for i, length in enumerate(lengths) if length != 1]
    assert columns.first_difference(0, 1) == columns.first_difference(1, 0) == (differing[0] if differing else -1)
    width = extremes[1]
    first, second = ingest.column_shapes(columns.signature(main, width))
    same = lengths == [1] * len(rows)
    aligned = (main == 0 or same, main == 1 or same)
    assert first == (*columns.describe(0)[:3], len(set(lengths)) <= 1, aligned[0], extremes[0] >= width)
    assert second[3:] == (True, aligned[1], (1 if rows else 0) >= width)
    assert second.forms == (ingest.NUMBER if rows else 0)


NUMPY_NUMBERS = [np.dtype(name).type for name in KINDS]
TORCH_NUMBERS = [name for name in KINDS if hasattr(torch, name)]


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("name", TORCH_NUMBERS)
def test_tensors_of_no_dimension(interops, guarded, way, name):
    column = [torch.tensor(value, dtype=getattr(torch, name)) for value in (0, 1, 1, 0)]
    columns = columns_of(column, interops[way])
    assert columns.describe(0) == (ingest.TENSOR_NUMBER, ingest.TENSOR_NUMBER, 1 << KINDS.index(name), 1, 1, 4)
    batch = columns.run((("x", 0, ingest.NUMBERS, KINDS.index(name)),), {}, _memory.interop(), True, 0, 1, False)
    assert torch.equal(batch["x"], torch.stack(column))


@pytest.mark.parametrize("scalar", NUMPY_NUMBERS)
def test_numbers_of_numpy(scalar):
    values = (
        [0, 1]
        if scalar is np.bool_
        else [0, 1, 100, np.nextafter(scalar(0), scalar(1)) if "float" in scalar.__name__ else 7]
    )
    column = [scalar(value) for value in values]
    kind = KINDS.index(np.dtype(scalar).name)
    columns = columns_of(column, _memory.interop())
    assert columns.describe(0) == (ingest.SCALAR, ingest.SCALAR, 1 << kind, 1, 1, len(column))
    batch = columns.run((("x", 0, ingest.NUMBERS, kind),), {}, _memory.interop(), False, 0, 1, False)
    assert batch["x"].tobytes() == np.array(column).tobytes()


def test_numbers_that_float32_may_round_twice():
    """The reference goes by way of float64 or not: told apart by none that float64 holds."""
    steps = (("x", 0, ingest.NUMBERS, KINDS.index("float32")),)
    for value, fits in ((2**53, True), (-(2**53), True), (2**53 + 1, False), (-(2**53) - 1, False)):
        columns = columns_of([np.int64(value)], _memory.interop())
        batch = columns.run(steps, {}, _memory.interop(), False, 0, 1, False)
        assert isinstance(batch, dict) == fits


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("value", OTHERS, ids=[f"{type(value).__name__}-{i}" for i, value in enumerate(OTHERS)])
def test_knows_what_is_no_row(interops, guarded, way, value):
    columns = columns_of([[1, 2], value], interops[way])
    forms, first, kinds, *lengths = columns.describe(0)
    assert (forms, first, kinds, lengths) == (ingest.LIST | ingest.OTHER, ingest.LIST, 1 << INT64, [0, 2, 2])
    out = guarded("int64", 2)
    assert columns.flatten(0, out.address, INT64, 2)[0] == ingest.WRONG_TYPE
    assert columns.pad(0, out.address, INT64, 2, False, 0)[0] == ingest.WRONG_TYPE
    assert out.untouched()


def meta_tensors():
    """Tensors of every make that torch builds here, most without numbers in plain memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    plain = torch.arange(6)
    seen = []
    torch.func.vmap(lambda row: seen.append(row) or row)(plain.reshape(2, 3))
    made = [*seen, torch.empty(3, device="meta"), plain.float().to_sparse(), torch.nn.Parameter(torch.ones(3))]
    made += [torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), torch.empty(0), torch.tensor(3)]
    made += [torch.nested.nested_tensor([plain, plain[:2]]), torch.ones(3) * 1j, torch.ones(2, dtype=torch.complex64)]
    with FakeTensorMode() as mode:
        made += [torch.ones(3), mode.from_tensor(plain)]
    resized = torch.ones(3)
    resized.untyped_storage().resize_(0)
    return [*made, resized]


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning", "ignore:.*[Qq]uantiz.*:UserWarning")
def test_looks_into_tensors_of_every_make(interops):
    """What is asked for ahead of a view changes nothing about the view, and no tensor is too odd to be looked into."""
    interop = _memory.interop()
    assert interop.knows_tensors == interop.has_exchange, "the layout is that of the installed torch"
    assert not interops["exchange"].knows_tensors, "never shown a tensor"
    values = [value for value in meta_tensors() for _ in range(3)] + [torch.arange(9)[2:5]]
    features = [{"ids": value} for value in values]
    names, ahead = _core.collect(features, None, interop)
    _, plainly = _core.collect(features, None, interops["exchange"])
    assert names == ("ids",)
    assert ahead.describe(0) == plainly.describe(0)
    assert ahead.signature(0, 3) == plainly.signature(0, 3)


@pytest.mark.parametrize("off", [(8, 0), (0, 8)])
def test_leaves_tensors_alone_that_lie_otherwise(interops, off):
    tensor = torch.ones(1)
    interop = _core.Interop(np.ndarray, None, torch.Tensor, None, None, None)
    parts = tensor._cdata, tensor.untyped_storage()._cdata
    interop.learn_tensor(tensor, *parts)
    assert interop.knows_tensors == _memory.interop().knows_tensors
    interop.learn_tensor(tensor, parts[0] + off[0], parts[1] + off[1])
    assert not interop.knows_tensors
    interop.learn_tensor([1, 2, 3], *parts)
    assert not interop.knows_tensors


class Row(dict):
    """A dict that adds something, and reads as any dict does."""

    def __missing__(self, key):
        self[key] = []
        return self[key]

    def total(self):
        return sum(self.values())


class Reversed(OrderedDict):
    def __init__(self, row):
        super().__init__(row)
        for key in reversed(list(row)):
            self.move_to_end(key)


class Encoding(BatchEncoding):
    pass


def with_default(row):
    return defaultdict(list, row)


def wrapped_default(row):
    made = BatchEncoding({})
    made.data = with_default(row)
    return made


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


def wrapped_custom(row):
    made = BatchEncoding({})
    made.data = Custom(row)
    return made


READERS = ["__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get"]
PLAIN = [dict, Row, OrderedDict, Reversed, with_default, UserDict, BatchEncoding, Encoding, wrapped_default]
OPAQUE = [
    *(overriding(base, name) for base in (dict, OrderedDict, UserDict) for name in READERS),
    *(Custom, types.MappingProxyType, wrapped_custom, OwnData, BatchFeature, lambda row: None),
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
    assert _core.collect(features, ("ids",), _memory.interop()) is None


@pytest.mark.parametrize("features", [[], (), iter([{"a": [1]}]), {"a": [1]}, "a", None, [None], [[1]], [{"a": 1}, 3]])
def test_collects_nothing_else(features):
    assert ingest.collect(features) is None


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
    collected = _core.collect(features, ("ids",), _memory.interop())
    if collected is None:
        assert moment < count
        assert left < count
    else:
        assert flat(collected[1], 0, guarded) == [i for i in range(count) for _ in range(3)]


def moved(row):
    """Its numbers elsewhere, and others where they were."""
    if isinstance(row, torch.Tensor):
        copy = row.clone()
        row.fill_(1)
        row.set_(copy)
    else:
        state = row.__reduce__()[2]
        row.fill(1)
        row.__setstate__(state)


def test_what_is_asked_of_a_tensor_may_change_the_others(guarded):
    """Where it takes Python code to see a tensor, as in an older torch."""

    def describe(tensor):
        for row in (tensors[0], array):
            moved(row)
        rows.clear()
        return _memory.describe_tensor(tensor)

    interop = _core.Interop(np.ndarray, None, torch.Tensor, None, describe, None)
    tensors, array = [torch.arange(8 * i, 8 * i + 8)[:: i % 3 + 1] for i in range(5)], np.arange(7, 9)
    rows = [[5], array, *tensors]
    expected = [5, 7, 8, *(number for tensor in tensors for number in tensor.tolist())]
    columns, out = columns_of(rows, interop), guarded("int64", len(expected))
    assert rows == []
    for row in (tensors[-1], array):
        moved(row)
    assert columns.flatten(0, out.address, INT64, len(expected)) is None
    assert out.array.tolist() == expected


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("form", [torch.tensor, np.array])
def test_sees_what_has_moved_since_it_was_collected(interops, guarded, form, number):
    kind = KINDS.index("float64")
    rows = [form(0.5 if number else [0.5, 1.5], dtype=(torch if form is torch.tensor else np).float64)] * 3
    if number and form is np.array:
        rows = [np.float64(0.5)] * 3  # which has its number within, for good
    columns, out = columns_of(rows, _memory.interop()), guarded("float64", 6)
    steps = (("x", 0, ingest.NUMBERS if number else ingest.STACK, kind),)

    def run():
        return columns.run(steps, {}, _memory.interop(), False, 2, 1, False)

    expected = np.array([row.tolist() for row in rows])
    assert run()["x"].tobytes() == expected.tobytes()
    if isinstance(rows[0], np.float64):
        return
    moved(rows[0])
    assert run()["x"].tobytes() == expected.tobytes()
    if number:
        return
    moved(rows[0])
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
        columns = columns_of(rows, _memory.interop())
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
    features = [{"ids": [1]}, {raising: 0, "ids": [2]}]
    guard = _core.Guard(((CALL, raising, None, 0),))
    columns = _core.Columns()
    raising.armed = True
    calls = [
        lambda: _core.collect(features, ("ids",), _memory.interop()),
        lambda: columns.add_optional(features, "ids", _memory.interop()) == -1 or None,
        lambda: guard.holds(None) or None,
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
    rows, interop = _core.TableRows(_core.Table(("ids",), [column])), _memory.interop()
    _, columns = _core.collect(rows, None, interop)
    recipe = _core.Recipe((), interop, False)
    steps = (("ids", 0, ingest.STACK, INT64),)
    run = recipe.extended(("ids",), columns.signature(0, 1), steps, {}).runner()
    assert run(None, rows)["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    offsets[1] = 99
    for call in (lambda: _core.collect(rows, None, interop), lambda: run(None, rows)):
        with pytest.raises(ValueError, match="damaged"):
            call()


def nested_batch(data, choices):
    """Features with at least so many rows of tokens in each column but one, which has a number."""
    count, chance = data.draw(st.integers(1, 5) | st.integers(60, 140)), random.Random(data.draw(st.integers(0, 2**32)))

    def column():
        forms = [chance.choice([list, list, tuple, np.array]) for _ in range(choices + chance.randrange(3))]
        rows = [form([chance.randrange(-10, 70000) for _ in range(chance.randrange(5))]) for form in forms]
        return chance.choice([list, tuple])(rows)

    return [{"ids": column(), "plain": chance.randrange(9), "mask": column()} for _ in range(count)]


@given(choices=st.integers(1, 4), container=st.sampled_from([list, tuple]), data=st.data())
def test_collects_the_first_rows_of_each_feature(guarded, choices, container, data):
    rows = nested_batch(data, choices)
    carriers = data.draw(st.lists(st.sampled_from([dict, BatchEncoding]), min_size=1, max_size=3))
    features = container(carriers[at % len(carriers)](row) for at, row in enumerate(rows))
    names, columns = ingest.collect_nested(features, "plain", choices)
    assert names == ("ids", "plain", "mask")
    assert [columns.count(index) for index in range(3)] == [len(rows) * choices, len(rows), len(rows) * choices]
    for index in (0, 2):
        expected = [token for row in rows for tokens in row[names[index]][:choices] for token in tokens]
        assert flat(columns, index, guarded, "float64") == expected
    assert columns.describe(1)[:2] == (ingest.NUMBER, ingest.NUMBER)
    assert ingest.collect_nested(features, "plain", choices + 3) is None


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
    collected = ingest.collect_nested(features, "plain", 2)
    if len(features) == 1 and what in ("a further name", "a name less"):  # then these are the names
        assert len(collected[0]) == (4 if what == "a further name" else 2)
    else:
        assert collected is None


@pytest.mark.parametrize(("carriers", "collected"), [(PLAIN, True), (OPAQUE, False)], ids=["plain", "opaque"])
def test_collects_nested_rows_of_plain_mappings_only(carriers, collected):
    row = {"ids": [[1], [2]], "plain": 0}
    for carrier in carriers:
        assert (ingest.collect_nested([row, carrier(row)], "plain", 2) is not None) == collected
        assert (ingest.collect_nested([carrier(row)], "plain", 2) is not None) == collected


@pytest.mark.parametrize("features", [[], (), iter([{"a": [[1]]}]), {"a": [[1]]}, "a", None, [None], [[1]]])
def test_collects_no_other_nested_features(features):
    assert ingest.collect_nested(features, None, 1) is None
    assert ingest.collect_nested([{"a": [[1]]}], None, 0) is None
