"""copy_rows, compiled, against its oracle: every kind of row and element that converts, packed and padded."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
from quadrat import _core
from support.ingest import columns_of

KINDS = _core.kinds
FLOATS = ("float16", "float32", "float64")
STREAM_THRESHOLD = 8 << 20  # bytes, as in csrc/kernels/bytes.hpp
LENGTHS = st.integers(0, 20) | st.sampled_from([31, 32, 33, 63, 64, 65, 80, 81, 255, 256, 257, 511, 513, 600])
CARRIERS = (
    "plain", "strided", "reversed", "misaligned", "column", "read-only", "broadcast",
    "tensor", "strided tensor", "misaligned tensor", "expanded tensor", "list", "tuple",
)  # fmt: skip


def converts(source, target):
    """No float becomes an integer, and only a bool a bool."""
    return source == target or (target != "bool" and (source not in FLOATS or target in FLOATS))


def bounds(source, target):
    """The range of integers that both kinds hold."""
    infos = [np.iinfo(kind) for kind in (source, target) if kind not in FLOATS]
    return max(int(info.min) for info in infos), min(int(info.max) for info in infos)


def numbers(rng, source, target, length):
    """Random elements of the source kind that fit the target kind, its extremes often among them."""
    if source == "bool":
        return rng.integers(0, 2, length).astype(bool)
    if source in FLOATS:
        scale = 6 if "float16" in (source, target) else 30
        with np.errstate(over="ignore"):
            values = (rng.standard_normal(length) * 10.0 ** rng.integers(-scale, scale, length)).astype(source)
        extremes = [np.nan, np.inf, -np.inf, -0.0, np.finfo(source).max, np.finfo(source).smallest_subnormal]
    else:
        low, high = bounds(source, target)
        values = rng.integers(low, high, length, source, endpoint=True)
        extremes = [low, high, low + 1, high - 1, 0, 1]
    chosen = rng.random(length) < 0.2
    values[chosen] = rng.choice(np.array(extremes, source), int(chosen.sum()))
    return values


def misaligned(values):
    raw = np.zeros(values.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(values.tobytes(), np.uint8)
    return raw, 1


def carry(values, carrier):
    """The row that shows these values, and the values it shows (a broadcast one repeats the first)."""
    if carrier in ("broadcast", "expanded tensor"):
        values = np.repeat(values[:1], len(values))
    if carrier in ("list", "tuple"):
        values = values & np.uint64(2**63 - 1) if values.dtype == np.uint64 else values
        return (list if carrier == "list" else tuple)(values.tolist()), values
    if "tensor" in carrier:
        return carry_tensor(values, carrier), values
    if carrier == "strided":
        row = np.repeat(values, 3)[::3]
    elif carrier == "reversed":
        row = values[::-1].copy()[::-1]
    elif carrier == "misaligned":
        raw, offset = misaligned(values)
        row = raw[offset:].view(values.dtype)
    elif carrier == "column":
        row = np.stack([values, values[::-1]], axis=1)[:, 0]
    elif carrier == "broadcast":
        row = np.broadcast_to(values[:1], values.shape) if len(values) else values
    else:
        row = values.copy()
        row.flags.writeable = carrier != "read-only"
    return row, values


def carry_tensor(values, carrier):
    tensor = torch.from_numpy(values.copy())
    if carrier == "strided tensor":
        return torch.stack([tensor, tensor], dim=1)[:, 0]
    if carrier == "misaligned tensor" and len(values):
        raw, offset = misaligned(values)
        return torch.frombuffer(raw, dtype=tensor.dtype, offset=offset)
    if carrier == "expanded tensor" and len(values):
        return tensor[:1].expand(len(values))
    return tensor


@st.composite
def batches(draw, target):
    """Rows of any carriers and kinds that convert to the target, and the values they show."""
    sources = [kind for kind in KINDS if converts(kind, target)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, shown = [], []
    for _ in range(draw(st.integers(0, 6))):
        source, length, carrier = draw(st.sampled_from(sources)), draw(LENGTHS), draw(st.sampled_from(CARRIERS))
        row, values = carry(numbers(rng, source, target, length), carrier)
        rows.append(row)
        shown.append(values)
    return draw(st.sampled_from([list, tuple]))(rows), shown


def oracle(shown, start, out):
    with np.errstate(over="ignore"):  # a float64 beyond float32 is infinite in both
        oracles.copy_rows(shown, start, out)


@pytest.mark.parametrize("target", KINDS)
@given(data=st.data())
def test_packs_as_the_oracle(interops, guarded, target, data):
    rows, shown = data.draw(batches(target))
    interop = interops[data.draw(st.sampled_from(sorted(interops)))]
    total = sum(map(len, shown))
    out, expected = guarded(target, total), np.empty(total, target)
    start = np.cumsum([0, *map(len, shown)])[:-1].tolist()
    oracle(shown, start, expected)
    assert columns_of(rows, interop).flatten(0, out.address, KINDS.index(target), total) is None
    assert out.holds(expected)


def values_for(kind):
    """Python numbers that the kind holds."""
    if kind == "bool":
        return st.booleans()
    if kind.startswith("float"):
        most = 65504 if kind == "float16" else 2**63 - 1
        return st.floats(width=int(kind[5:])) | st.integers(-most, most) | st.booleans()
    low, high = int(np.iinfo(kind).min), min(int(np.iinfo(kind).max), 2**63 - 1)
    return st.sampled_from([low, high, 0, 1]) | st.integers(low, high) | st.booleans()


@pytest.mark.parametrize("target", KINDS)
@given(data=st.data(), left=st.booleans(), extra=st.integers(0, 20))
def test_pads_as_the_oracle(interops, guarded, target, *, data, left, extra):
    rows, shown = data.draw(batches(target))
    interop = interops[data.draw(st.sampled_from(sorted(interops)))]
    lengths = [len(row) for row in shown]
    width = max(lengths, default=0) + extra
    value = data.draw(values_for(target))
    expected = np.empty((len(rows), width), target)
    start = [i * width + (width - length if left else 0) for i, length in enumerate(lengths)]
    oracle(shown, start, expected.reshape(-1))
    oracles.fill_gaps(lengths, "left" if left else "right", value, expected)
    out = guarded(target, (len(rows), width))
    assert columns_of(rows, interop).pad(0, out.address, KINDS.index(target), width, left, value) is None
    assert out.holds(expected)


@given(target=st.sampled_from(KINDS), data=st.data(), short=st.integers(0, 1))
def test_streams_as_the_oracle(interops, guarded, target, data, short):
    # The size of the output decides whether stores go past the caches: rows need not be long.
    rows, shown = data.draw(batches(target))
    size = STREAM_THRESHOLD // np.dtype(target).itemsize - short
    out, total = guarded(target, size), sum(map(len, shown))
    expected = np.empty(total, target)
    oracle(shown, np.cumsum([0, *map(len, shown)])[:-1].tolist(), expected)
    assert columns_of(rows, interops["exchange"]).flatten(0, out.address, KINDS.index(target), size) is None
    assert out.array[:total].tobytes() == expected.tobytes()
    assert bool((out.array[total:].view(np.uint8) == 0xA5).all())
    assert out.intact()


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_converts_only_what_keeps_its_meaning(interops, guarded, source, target):
    out = guarded(target, 4)
    columns = columns_of([np.ones(0, source), np.ones(4, source)], interops["exchange"])
    failure = columns.flatten(0, out.address, KINDS.index(target), 4)
    if converts(source, target):
        assert failure is None
        assert out.array.tolist() == [1] * 4
    else:
        assert failure == (3, 1, -1)
        assert out.untouched()


@pytest.mark.parametrize("target", [kind for kind in KINDS if kind != "bool"])
def test_long_columns_release_the_lock_and_stay_right(interops, guarded, target):
    values = np.arange((1 << 16) + 37) % 100
    rows = [values, values[::-1], values.astype(np.int8), torch.from_numpy(values), values.astype(bool)]
    shown = np.concatenate([np.asarray(row) for row in rows])
    out = guarded(target, len(shown))
    assert columns_of(rows, interops["exchange"]).flatten(0, out.address, KINDS.index(target), len(shown)) is None
    assert out.holds(shown.astype(target))


def misfits(source, target):
    """Extremes of the source kind that the target kind does not hold."""
    low, high = bounds(source, target)
    info = np.iinfo(source)
    near = (int(info.min), low - 1, high + 1, int(info.max))
    return [value for value in near if info.min <= value <= info.max and not low <= value <= high]


INTS = [kind for kind in KINDS if "int" in kind]
NARROWING = [(source, target) for source in INTS for target in INTS if misfits(source, target)]


@pytest.mark.parametrize(("source", "target"), NARROWING)
def test_refuses_values_that_do_not_fit(interops, guarded, source, target):
    rng = np.random.default_rng(len(source) * 100 + len(target))
    carriers = [carrier for carrier in CARRIERS if source == "int64" or carrier not in ("list", "tuple")]
    for value in misfits(source, target):
        for carrier in carriers:
            values = numbers(rng, source, target, int(rng.integers(1, 600)))
            values[0 if carrier in ("broadcast", "expanded tensor") else rng.integers(len(values))] = value
            row, _ = carry(values, carrier)
            rows = [np.ones(3, source), row, np.ones(2, source)]
            total = sum(map(len, rows))
            out = guarded(target, total)
            failure = columns_of(rows, interops["exchange"]).flatten(0, out.address, KINDS.index(target), total)
            assert failure is not None, (value, carrier)
            assert failure[:2] == (4, 1), (value, carrier)
            assert failure[2] in (-1, list(values).index(value)), (value, carrier)  # Python ints are known one by one
            assert out.array[:3].tolist() == [1] * 3
            assert out.intact()
            assert bool((out.array[-2:].view(np.uint8) == 0xA5).all()), "rows after the failure are not written"


@given(lengths=st.lists(LENGTHS, max_size=6), lists=st.booleans(), short=st.integers(1, 700), left=st.booleans())
def test_writes_no_row_that_does_not_fit(interops, guarded, *, lengths, lists, short, left):
    rows = [[3] * length if lists else np.full(length, 3) for length in lengths]
    columns = columns_of(rows, interops["exchange"])
    ends = np.cumsum(lengths).tolist()
    size = max(sum(lengths) - short, 0)
    out = guarded("int64", size)
    failure = columns.flatten(0, out.address, KINDS.index("int64"), size)
    first = next((i for i, (n, end) in enumerate(zip(lengths, ends, strict=True)) if n and end > size), None)
    assert failure == (None if first is None else (1, first, -1))
    written = size if first is None else ends[first] - lengths[first]
    assert out.array[:written].tolist() == [3] * written
    assert bool((out.bytes[8 * written :] == 0xA5).all())
    assert out.intact()
    width = max(max(lengths, default=0) - short, 0)
    padded = guarded("int64", (len(lengths), width))
    failure = columns.pad(0, padded.address, KINDS.index("int64"), width, left, 0)
    longer = [i for i, length in enumerate(lengths) if length > width]
    assert failure == ((1, longer[0], -1) if longer else None)
    assert padded.untouched() if longer else padded.intact()


@given(
    lengths=st.lists(LENGTHS, min_size=1, max_size=20),
    kind=st.sampled_from(KINDS),
    shift=st.integers(0, 3),
    data=st.data(),
)
def test_rows_of_flat_values_by_their_numbers(guarded, lengths, kind, shift, data):
    bounds = np.append(0, np.cumsum(lengths)) + shift
    values = np.arange(bounds[-1] + shift).astype(kind)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=30)), np.int64)
    rows = [values[bounds[row] : bounds[row + 1]] for row in chosen]
    start = np.append(0, np.cumsum([len(row) for row in rows])).astype(np.int64)
    expected = np.zeros(start[-1], kind)
    oracles.copy_rows(rows, start[:-1].tolist(), expected)
    out = guarded(kind, len(expected))
    failure = _core.copy_rows(*flat(values, bounds, chosen), out.address, len(expected))
    assert failure is None
    assert out.holds(expected)


def flat(values, bounds, chosen):
    """Arguments of the binding."""
    return _core.address(values), len(values), KINDS.index(str(values.dtype)), bounds, chosen


@pytest.mark.parametrize(
    ("bounds", "chosen", "code", "row"),
    [
        ([0, 2, 4], [0, 2], _core.CODES.BAD_ARGUMENT, 1),
        ([0, 2, 4], [-1], _core.CODES.BAD_ARGUMENT, 0),
        ([0], [0], _core.CODES.BAD_ARGUMENT, 0),
        ([], [0], _core.CODES.BAD_ARGUMENT, 0),
        ([0, 2, 1], [0, 1], _core.CODES.BAD_START, 1),
        ([-1, 2], [0], _core.CODES.BAD_START, 0),
        ([0, 9], [0], _core.CODES.BAD_START, 0),
        ([9, 9], [0], _core.CODES.BAD_START, 0),
        ([0, 2, 4], [0, 1, 1], _core.CODES.ROW_TOO_LONG, 2),
    ],
)
def test_refuses_numbers_and_bounds_outside(guarded, bounds, chosen, code, row):
    values, out = np.arange(5), guarded("int64", 4)
    arrays = values, np.array(bounds, np.int64), np.array(chosen, np.int64)
    assert _core.copy_rows(*flat(*arrays), out.address, 4) == (code, row, -1)
    assert out.untouched()


@pytest.mark.parametrize("wrong", [np.array([0, 2], np.int32), np.array([0, 1, 2])[::2], [0, 2], 0])
def test_takes_no_other_numbers_than_int64_side_by_side(guarded, wrong):
    values, right, out = np.arange(5), np.array([0, 2]), guarded("int64", 4)
    for bounds, chosen in ((wrong, right[:1]), (right, wrong)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _core.copy_rows(*flat(values, bounds, chosen), out.address, 4)
    assert out.untouched()
