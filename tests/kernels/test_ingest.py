"""Columns to rows: what is recognised, read from Python numbers, or refused; rows of more dimensions."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from quadrat import _core
from quadrat.support import columns as ingest
from quadrat.support import memory
from quadrat.support.columns import BatchLayout
from support.ingest import INT64, KINDS, columns_of, flat

LENGTHS = st.integers(0, 40) | st.sampled_from([63, 64, 65, 80, 255, 256, 257, 513])
EDGES = [-(2**63), -(2**62), -(2**31), -(2**30), 1 - 2**30, -6, -5, -1, 0, 1, 255, 256, 257, 2**30 - 1, 2**30, 2**31,
         2**62, 2**63 - 1]  # fmt: skip


class Number(int):
    """An int that is not exactly one."""


FOREIGN = {
    int: [None, "1", [1], (), {}, 1.0, True, np.int64(1), Number(1), 1j, object()],
    float: [None, "1", [1.0], True, np.float64(1), 1j],
    bool: [None, 0, 1, 1.0, np.True_],
}


@given(rows=st.lists(st.lists(st.sampled_from(EDGES) | st.integers(-8, 260), max_size=100), max_size=5))
def test_ints_of_every_size(interops, guarded, rows):
    assert flat(columns_of(rows, interops["exchange"]), 0, guarded) == [number for row in rows for number in row]


@given(
    row=st.lists(st.sampled_from([*range(-2, 3), 256, 257, *EDGES[-4:], 2**63, 2**64 - 1, 2**64]), max_size=40),
    stream=st.booleans(),
)
def test_ints_beyond_int64_where_uint64_is_wanted(interops, guarded, row, stream):
    size = (1 << 20) if stream else len(row)  # of 8 MiB and more, see csrc/kernels/bytes.hpp
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
    None, "text", {}, [[1]], [[]], ["a"], [None], np.zeros((1, 1)), np.zeros((2, 2)).T, np.longdouble(1),
    np.array(1), np.zeros(2, ">i4"), np.zeros(2, complex), np.array(["a"]), torch.zeros(1, 1), torch.zeros(2, 2).T,
    torch.zeros(2, dtype=torch.float8_e5m2), torch.zeros(2, device="meta"), torch.ones(2).to_sparse(),
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
    assert first[:6] == (*columns.describe(0)[:3], len(set(lengths)) <= 1, aligned[0], extremes[0] >= width)
    assert second[3:6] == (True, aligned[1], (1 if rows else 0) >= width)
    assert first[6:8] == (bool(lengths and lengths[0]), extremes[0] == 0)
    assert second[6:] == (bool(rows), not rows, *[False] * 6)
    assert second.forms == (ingest.NUMBER if rows else 0)


NUMPY_NUMBERS = [np.dtype(name).type for name in KINDS]
TORCH_NUMBERS = [name for name in KINDS if hasattr(torch, name)]


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("name", TORCH_NUMBERS)
def test_tensors_of_no_dimension(interops, guarded, way, name):
    column = [torch.tensor(value, dtype=getattr(torch, name)) for value in (0, 1, 1, 0)]
    columns = columns_of(column, interops[way])
    assert columns.describe(0) == (ingest.TENSOR_NUMBER, ingest.TENSOR_NUMBER, 1 << KINDS.index(name), 1, 1, 4)
    batch = columns.run((("x", 0, ingest.NUMBERS, KINDS.index(name)),), {}, memory.interop(), True, BatchLayout())
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
    columns = columns_of(column, memory.interop())
    assert columns.describe(0) == (ingest.SCALAR, ingest.SCALAR, 1 << kind, 1, 1, len(column))
    batch = columns.run((("x", 0, ingest.NUMBERS, kind),), {}, memory.interop(), False, BatchLayout())
    assert batch["x"].tobytes() == np.array(column).tobytes()


def test_numbers_that_float32_may_round_twice():
    """The reference goes by way of float64 or not: told apart by none that float64 holds."""
    steps = (("x", 0, ingest.NUMBERS, KINDS.index("float32")),)
    for value, fits in ((2**53, True), (-(2**53), True), (2**53 + 1, False), (-(2**53) - 1, False)):
        columns = columns_of([np.int64(value)], memory.interop())
        batch = columns.run(steps, {}, memory.interop(), False, BatchLayout())
        assert isinstance(batch, dict) == fits


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("value", OTHERS, ids=[f"{type(value).__name__}-{i}" for i, value in enumerate(OTHERS)])
def test_knows_what_is_no_row(interops, guarded, way, value):
    columns = columns_of([[1, 2], value], interops[way])
    forms, first, kinds, *lengths = columns.describe(0)
    assert (forms, first, lengths) == (ingest.LIST | ingest.OTHER, ingest.LIST, [0, 2, 2])
    assert ingest.column_shapes(columns.signature(0, 1))[0].shaped or kinds == 1 << INT64
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
    tensors = [*seen, torch.empty(3, device="meta"), plain.float().to_sparse(), torch.nn.Parameter(torch.ones(3))]
    tensors += [torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), torch.empty(0), torch.tensor(3)]
    tensors += [
        torch.nested.nested_tensor([plain, plain[:2]]),
        torch.ones(3) * 1j,
        torch.ones(2, dtype=torch.complex64),
    ]
    with FakeTensorMode() as mode:
        tensors += [torch.ones(3), mode.from_tensor(plain)]
    resized = torch.ones(3)
    resized.untyped_storage().resize_(0)
    return [*tensors, resized]


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning", "ignore:.*[Qq]uantiz.*:UserWarning")
def test_looks_into_tensors_of_every_make(interops):
    """What is asked for ahead of a view changes nothing about the view, and no tensor is too odd to be looked into."""
    interop = memory.interop()
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
    interop = _core.Interop(memory.Libraries(np.ndarray, None, torch.Tensor, None, None, None))
    parts = tensor._cdata, tensor.untyped_storage()._cdata
    interop.learn_tensor(tensor, *parts)
    assert interop.knows_tensors == memory.interop().knows_tensors
    interop.learn_tensor(tensor, parts[0] + off[0], parts[1] + off[1])
    assert not interop.knows_tensors
    interop.learn_tensor([1, 2, 3], *parts)
    assert not interop.knows_tensors


NUMBERS = st.sampled_from([kind for kind in KINDS if hasattr(torch, kind)])
TRAILING = st.lists(st.integers(0, 4), min_size=1, max_size=3)
LIBRARIES = st.sampled_from(["np", "pt"])
SIZES = st.lists(st.integers(0, 5) | st.just(70), min_size=1, max_size=5)


def rows_of(lengths, trailing, kind, library):
    shapes = [(length, *trailing) for length in lengths]
    arrays = [(i + np.arange(np.prod(shape)).reshape(shape)).astype(kind) for i, shape in enumerate(shapes)]
    return arrays if library == "np" else [torch.from_numpy(array) for array in arrays]


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@given(
    lengths=SIZES,
    trailing=TRAILING,
    kind=NUMBERS,
    library=LIBRARIES,
    extra=st.integers(0, 3),
    left=st.booleans(),
)
def test_padded_and_flattened(interops, guarded, way, *, lengths, trailing, kind, library, extra, left):
    library = library if all(trailing) else "np"  # a tensor without elements has no address
    rows = rows_of(lengths, trailing, kind, library)
    columns = columns_of(rows, interops[way])
    form = ingest.DEEP | (ingest.ARRAY if library == "np" else ingest.TENSOR)
    seen = 1 << KINDS.index(kind) if any(lengths) and all(trailing) else 0
    assert columns.describe(0) == (form, form, seen, min(lengths), max(lengths), sum(lengths))
    assert columns.trailing(0) == tuple(trailing)
    assert ingest.column_shapes(columns.signature(0, 1))[0].forms == form
    width, value = max(lengths) + extra, True if kind == "bool" else 7
    out, expected = guarded(kind, (len(rows), width, *trailing)), np.full((len(rows), width, *trailing), value, kind)
    for place, row in zip(expected, rows, strict=True):
        place[width - len(row) if left else 0 :][: len(row)] = row
    assert columns.pad(0, out.address, KINDS.index(kind), width, left, value) is None
    assert out.holds(expected)
    joined = guarded(kind, (sum(lengths), *trailing))
    assert columns.flatten(0, joined.address, KINDS.index(kind), sum(lengths)) is None
    assert joined.holds(np.concatenate([np.asarray(row) for row in rows]))


@given(
    lengths=SIZES,
    trailing=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    kind=st.sampled_from(["int64", "float64", "bool"]),
    rows=st.sampled_from([list, tuple]),
    data=st.data(),
)
def test_lists_of_lists(interops, guarded, *, lengths, trailing, kind, rows, data):
    """As arrays of these numbers; an empty list fits in. What is in a row and has another length is named."""
    arrays = rows_of(lengths, trailing, kind, "np")
    values = [rows(array.tolist()) for array in arrays]
    columns = columns_of(values, interops["exchange"])
    form = ingest.LIST if rows is list else ingest.TUPLE
    if any(lengths):
        assert columns.describe(0)[0] == form | ingest.DEEP
        assert columns.trailing(0) == tuple(trailing)
        assert columns.describe(0)[2] == 1 << KINDS.index(kind)
        width = max(lengths)
        out, expected = guarded(kind, (len(values), width, *trailing)), np.zeros((len(values), width, *trailing), kind)
        for place, array in zip(expected, arrays, strict=True):
            place[: len(array)] = array
        assert columns.pad(0, out.address, KINDS.index(kind), width, False, False if kind == "bool" else 0) is None
        assert out.holds(expected)
        wide = guarded("float64", (sum(lengths), *trailing))
        if kind != "bool":
            assert columns.flatten(0, wide.address, KINDS.index("float64"), sum(lengths)) is None
            assert wide.holds(np.concatenate(arrays).astype("float64"))
        row = data.draw(st.sampled_from([at for at, length in enumerate(lengths) if length]))
        at = data.draw(st.integers(0, lengths[row] - 1))
        if (row, at) != (lengths.index(next(filter(None, lengths))), 0):
            odd = data.draw(st.sampled_from([values[row][at][:-1], [*values[row][at], 1], 1, None, np.ones(trailing)]))
            values[row] = rows([*values[row][:at], odd, *values[row][at + 1 :]])
            columns = columns_of(values, interops["exchange"])
            out = guarded(kind, (len(values), width, *trailing))
            failure = columns.pad(0, out.address, KINDS.index(kind), width, False, False if kind == "bool" else 0)
            assert failure == ((ingest.WRONG_TYPE, -1, -1) if at == 0 else (_core.CODES.UNEVEN, row, at))


def test_a_list_that_holds_itself(interops):
    row: list = [1]
    row[0] = row
    assert columns_of([row], interops["exchange"]).describe(0)[0] == ingest.OTHER


@pytest.mark.parametrize("depth", [1, 3, 4, 5])
def test_lists_of_more_numbers_than_memory_holds(interops, depth):
    """A list may hold another one many times. From 2**64 numbers on, sizes are none."""
    row = [1] * 2**16
    for _ in range(depth):
        row = [row] * 2**16
    columns = columns_of([row], interops["exchange"])
    assert columns.describe(0)[0] == (ingest.LIST | ingest.DEEP if depth < 3 else ingest.OTHER)
    assert columns.pad(0, 0, INT64, 2**62, False, 0) is not None


@given(lengths=SIZES, trailing=TRAILING, kind=NUMBERS)
def test_pieces(interops, guarded, *, lengths, trailing, kind):
    values = np.concatenate(rows_of(lengths, trailing, kind, "np"))
    offsets = np.cumsum([0, *lengths])
    columns = columns_of([], interops["exchange"])
    place = values.ctypes.data, KINDS.index(kind), len(values), offsets.ctypes.data, len(lengths)
    columns.add_ragged(*place, trailing)
    starts, sizes = np.array([length // 2 for length in lengths]), np.array([length // 3 for length in lengths])
    columns.cut(1, starts.ctypes.data, sizes.ctypes.data)
    out = guarded(kind, (int(sizes.sum()), *trailing))
    assert columns.flatten(1, out.address, KINDS.index(kind), int(sizes.sum())) is None
    where = offsets[:-1] + starts
    assert out.holds(np.concatenate([values[first : first + size] for first, size in zip(where, sizes, strict=True)]))


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize(
    "other",
    [
        np.zeros((2, 4)), np.zeros((2, 3, 1)), np.zeros(3), np.zeros((3, 2)).T, np.zeros((2, 6))[:, ::2], [], 1.0,
        torch.zeros(2, 4), torch.zeros(3, 2).T, torch.zeros(2, 6)[:, ::2], torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3).to_sparse(), torch.empty(2, 3, device="meta"), np.zeros((2, 3), complex), [[0.0] * 2] * 2,
        [[[0.0]] * 3] * 2,
    ],
)  # fmt: skip
def test_a_row_of_other_dimensions_is_no_row_of_the_column(interops, guarded, way, other):
    columns = columns_of([np.ones((2, 3)), other], interops[way])
    assert columns.describe(0)[0] & ingest.OTHER
    assert columns.count(0) == 2
    out = guarded("float64", (2, 2, 3))
    assert columns.pad(0, out.address, KINDS.index("float64"), 2, False, 0)[0] == ingest.WRONG_TYPE
    assert out.untouched()


def test_a_row_that_is_reshaped_after_the_look_is_refused(interops, guarded):
    array = np.ones((2, 6))
    columns = columns_of([array, np.ones((2, 6))], interops["exchange"])
    array.resize((4, 3), refcheck=False)
    out = guarded("float64", (4, 6))
    assert columns.flatten(0, out.address, KINDS.index("float64"), 4)[0] == ingest.CHANGED
    assert out.untouched()


def test_tokens_without_elements_of_any_size(interops):
    columns = columns_of([torch.empty_strided((0, 2**40, 2**30), (9, 2**30, 1))], interops["exchange"])
    assert columns.describe(0)[0] == ingest.OTHER
    with pytest.raises(ValueError, match="no memory"):
        columns.add_ragged(0, 0, 0, np.zeros(1, np.int64).ctypes.data, 0, (2**40, 2**30))
