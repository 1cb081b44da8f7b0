"""The CUDA kernels on a GPU, against the oracles. What they do to hostile input is tested by emulation as well."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from quadrat.ops._device import column_of
from quadrat.support.gpu import pad_columns
from support.gpu import DEVICE, NEEDS_GPU, GuardedOnDevice, Memory, _cuda, torch, where
from support.guarded import CANARY
from support.hostile import FAR, HOSTILE, LENGTHS, SIDES, bit_set, cut_lengths, cut_rows, pad_rows
from support.philox import Case, cases

pytestmark = NEEDS_GPU

DTYPES = st.sampled_from(["u1", "u2", "u4", "u8"]).map(np.dtype)
SIZES = st.integers(0, 9) | st.sampled_from([31, 32, 33, 255, 256, 257, 513, 100_003])
COPIED, SEPARATED = _core.FLAT_VALUES, _core.FLAT_SEPARATED
POSITIONS, SEQUENCES, BOUNDS = _core.FLAT_POSITIONS, _core.FLAT_SEQUENCES, _core.FLAT_BOUNDS


@dataclass
class Rows:
    lengths: list[int]
    values: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        memory = Memory()
        self.source = memory.address(self.values), self.values.size
        self.places = memory.address(self.offsets)
        self.memory = memory
        self.rows = [self.values[a:b] for a, b in itertools.pairwise(self.offsets)]


@st.composite
def ragged(draw: st.DrawFn) -> Rows:
    lengths = draw(LENGTHS)
    offsets = draw(st.integers(0, 5)) + np.cumsum([0, *lengths], dtype=np.int64)
    values = (np.arange(int(offsets[-1]) + draw(st.integers(0, 5))) * 7919).astype(draw(DTYPES))
    return Rows(lengths, values, offsets)


@given(ragged(), st.integers(0, 300), SIDES)
def test_pad_columns(case: Rows, extra: int, side: str) -> None:
    shape, dtype = (len(case.lengths), max(case.lengths, default=0) + extra), case.values.dtype
    out, mask, attended = GuardedOnDevice(shape, dtype), GuardedOnDevice(shape, dtype), np.empty(shape, dtype)
    layout = case.places, shape[1], side == "left", dtype.itemsize, 1
    _cuda.pad_columns(
        [(*case.source, *layout, 0, 9, out.address), (0, 0, *layout, 1, 0, mask.address)], shape[0], *where()
    )
    oracles.attention_mask(case.lengths, side, attended)
    assert np.array_equal(out.result(), pad_rows(case.rows, shape[1], side, 9, dtype))
    assert np.array_equal(mask.result(), attended)


@given(ragged(), st.integers(0, 300), st.integers(-5, 5))
def test_flatten_columns(case: Rows, extra: int, start: int) -> None:
    rows, dtype, before = len(case.lengths), case.values.dtype, int(case.offsets[0])
    total = sum(case.lengths) + (extra if any(case.lengths) else 0)
    expected = {
        COPIED: np.full(total, 9, dtype), SEPARATED: np.full(total, 9, dtype), POSITIONS: np.empty(total, np.int64),
        SEQUENCES: np.empty(total, np.int32), BOUNDS: np.empty(rows + 1, np.int32),
    }  # fmt: skip
    starts = [int(offset) - before for offset in case.offsets[:-1]]
    for copied in (expected[COPIED], expected[SEPARATED]):
        oracles.copy_rows(case.rows, starts, copied)
    filled = [first for first, length in zip(starts, case.lengths, strict=True) if length]
    oracles.separate_rows(filled, 9, expected[SEPARATED])
    oracles.position_ids(case.lengths, start, expected[POSITIONS])
    oracles.seq_idx(case.lengths, expected[SEQUENCES])
    oracles.cu_seqlens(case.lengths, expected[BOUNDS])
    outs = {source: GuardedOnDevice(array.shape, array.dtype) for source, array in expected.items()}
    numbers = {POSITIONS: (start % 2**64, 0), SEQUENCES: (0, 2**64 - 1), BOUNDS: (0, 0)}
    columns = [
        (source, *(case.source if source in (COPIED, SEPARATED) else (0, 0)), 1, out.dtype.itemsize,
         *numbers.get(source, (0, 9)), out.address)
        for source, out in outs.items()
    ]  # fmt: skip
    _cuda.flatten_columns(columns, case.places, rows, total, *where())
    for source, out in outs.items():
        assert np.array_equal(out.result(), expected[source]), source


@given(ragged(), st.integers(-30, 300), st.integers(0, 9), SIDES)
def test_unpad(case: Rows, extra: int, after: int, side: str) -> None:
    rows, width, memory = len(case.lengths), max(max(case.lengths, default=0) + extra, 0), Memory()
    batch = (np.arange(rows * width) * 7919).astype(case.values.dtype).reshape(rows, width)
    size = int(case.offsets[-1]) + after if rows else 0
    out, expected = GuardedOnDevice(size, batch.dtype), np.empty(size, batch.dtype)
    oracles.unpad(batch, case.offsets, side, expected)
    place = memory.address(batch), case.places, rows, width, side == "left", batch.itemsize, 1
    _cuda.unpad(*place, out.address, size, *where())
    assert np.array_equal(out.result(), expected)


@given(ragged(), st.integers(0, 40))
def test_copy_rows(case: Rows, space: int) -> None:
    starts = np.cumsum([space, *(length + space for length in case.lengths)], dtype=np.int64)
    out, memory = GuardedOnDevice(int(starts[-1]), case.values.dtype), Memory()
    expected = out.before()
    oracles.copy_rows(case.rows, starts[:-1].tolist(), expected)
    place = memory.address(starts), out.dtype.itemsize, out.address, out.size
    _cuda.copy_rows(*case.source, case.places, len(case.lengths), *place, *where())
    assert np.array_equal(out.result(), expected)


@given(st.lists(HOSTILE, max_size=12), st.integers(0, 40), DTYPES)
def test_separate_rows(starts: list[int], size: int, dtype: np.dtype[Any]) -> None:
    out, memory = GuardedOnDevice(size, dtype), Memory()
    expected = out.before()
    oracles.separate_rows([start for start in starts if 0 <= start < size], 1, expected)
    place = memory.address(np.array(starts, np.int64)), len(starts), dtype.itemsize, 1
    _cuda.separate_rows(*place, out.address, size, *where())
    assert np.array_equal(out.result(), expected)


@given(SIZES, st.integers(0, 2**32 - 1), st.integers(-2, 3) | st.sampled_from(FAR))
def test_causal_labels(count: int, seed: int, pad_id: int) -> None:
    ids, memory = np.random.default_rng(seed).integers(-2, 4, size=count), Memory()
    labels, expected = GuardedOnDevice(count, np.int64), np.empty(count, np.int64)
    oracles.causal_labels(ids, pad_id, expected)
    _cuda.causal_labels(memory.address(ids), count, pad_id, labels.address, *where())
    assert np.array_equal(labels.result(), expected)


@given(cases, st.none() | st.sets(st.integers(0, 191), max_size=30))
def test_philox_mask(case: Case, special: set[int] | None) -> None:
    memory, members = Memory(), bit_set(special or [], 1)
    if special is not None:
        case.words = np.empty(case.count, np.uint8)
        oracles.special_tokens(case.ids, special, case.words)
        case.words += np.uint8(1)
    expected = case.expected()
    ids, labels = torch.from_numpy(case.ids).to(DEVICE), GuardedOnDevice(case.count, np.int64)
    _cuda.philox_mask(
        case.options, row_keys=memory.address(case.keys), offsets=memory.address(case.offsets), rows=case.rows,
        width=case.width, left=case.layout == "left", flat=case.layout == "flat",
        words=memory.address(case.words) if special is None else 0, set=memory.address(members), set_size=len(members),
        ids=ids.data_ptr(), labels=labels.address, out_size=case.count, device=where()[0], stream=where()[1],
    )  # fmt: skip
    assert np.array_equal(ids.cpu().numpy(), expected[0])
    assert np.array_equal(labels.result(), expected[1])


@given(cases)
def test_row_keys(case: Case) -> None:
    memory, out, expected = Memory(), GuardedOnDevice(case.rows, np.uint64), np.empty(case.rows, np.uint64)
    oracles.row_keys([case.ids[a : a + n] for a, n in zip(case.start, case.lengths, strict=True)], expected)
    layout = case.rows, case.width, case.layout == "left", case.layout == "flat"
    _cuda.row_keys(memory.address(case.ids), case.count, memory.address(case.offsets), *layout, out.address, *where())
    assert np.array_equal(out.result(), expected)


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), DTYPES, SIDES)
def test_hostile_offsets_change_nothing_outside(
    offsets: list[int], size: int, width: int, dtype: np.dtype[Any], side: str
) -> None:
    rows, left, item = len(offsets) - 1, side == "left", dtype.itemsize
    case = Rows([], np.full(size, 5, dtype), np.array(offsets, np.int64))
    out, mask = GuardedOnDevice((rows, width), dtype), GuardedOnDevice((rows, width), dtype)
    layout = case.places, width, left, item, 1
    columns = [(*case.source, *layout, 0, 9, out.address), (0, 0, *layout, 1, 9, mask.address)]
    if not size:
        columns[0] = (case.places, 0, *columns[0][2:])
    _cuda.pad_columns(columns, rows, *where())
    assert np.array_equal(out.result(), pad_rows(cut_rows(case.values, offsets, width), width, side, 9, dtype))
    attended = np.empty((rows, width), dtype)
    oracles.attention_mask(cut_lengths(offsets, width), side, attended)
    assert np.array_equal(mask.result(), np.where(attended == 1, dtype.type(1), dtype.type(9)))
    total, untouched, memory = size if rows else 0, np.full(1, CANARY, np.uint8).repeat(item).view(dtype)[0], Memory()
    flat = GuardedOnDevice(total, dtype)
    batch = memory.address(np.full(max(rows * width, 1), 5, dtype))
    _cuda.unpad(batch, case.places, rows, width, left, item, 1, flat.address, total, *where())
    assert np.isin(flat.result(), [0, 5, untouched]).all()
    for source in (COPIED, SEPARATED):
        flat = GuardedOnDevice(total, dtype)
        column = (source, case.source[0] or case.places, size, 1, item, 0, 0, flat.address)
        _cuda.flatten_columns([column], case.places, rows, total, *where())
        assert np.isin(flat.result(), [0, 5, untouched]).all()
    positions, sequences, bounds = (
        GuardedOnDevice(n, kind) for n, kind in ((total, "i8"), (total, "i4"), (rows + 1, "i8"))
    )
    columns = [
        (POSITIONS, 0, 0, 1, 8, 0, 0, positions.address), (SEQUENCES, 0, 0, 1, 4, 0, 2**64 - 1, sequences.address),
        (BOUNDS, 0, 0, 1, 8, 0, 0, bounds.address),
    ]  # fmt: skip
    _cuda.flatten_columns(columns, case.places, rows, total, *where())
    positions.result()
    assert np.isin(sequences.result(), [-1, *range(rows), sequences.before()[0] if total else 0]).all()
    assert np.array_equal(bounds.result().view("u8"), case.offsets.view("u8") - case.offsets.view("u8")[0])
    copied = GuardedOnDevice(rows * width, dtype)
    # The offsets are hostile starts as well.
    _cuda.copy_rows(*case.source, case.places, rows, case.places, item, copied.address, copied.size, *where())
    assert np.isin(copied.result(), [5, untouched]).all()


def test_more_rows_than_blocks() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 1_000_003)
    offsets = torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int64)).to(DEVICE)
    out = torch.full((len(lengths), 4), 7, dtype=torch.int32, device=DEVICE)
    column = (0, 0, offsets.data_ptr(), 4, False, 4, 1, 1, 0, out.data_ptr())
    _cuda.pad_columns([column], len(lengths), *where())
    expected = np.arange(4) < lengths[:, None]
    assert np.array_equal(out.cpu().numpy(), expected)


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_more_columns_than_a_launch_takes(count: int) -> None:
    dtypes = [torch.int64, torch.bool, torch.bfloat16, torch.int32]
    lengths = torch.tensor([3, 0, 5, 2])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(DEVICE)
    columns, outs = [], []
    for i in range(count):
        dtype = dtypes[i % 4]
        values = None if i % 5 == 4 else torch.full((10, 1 + i % 3), 1, device=DEVICE).to(dtype)
        out = torch.full((4, 5 + i, *(() if values is None else values.shape[1:])), 9, device=DEVICE).to(dtype)
        columns.append(column_of(values, offsets, 5 + i, left=i % 2 == 1, fill=0, out=out))
        outs.append((out, values))  # a column has addresses only
    pad_columns(columns, 4, offsets.device)
    for i, (out, _) in enumerate(outs):
        places = torch.arange(5 + i)
        kept = places >= 5 + i - lengths[:, None] if i % 2 else places < lengths[:, None]
        shown = out.cpu().reshape(4, 5 + i, -1)
        assert torch.equal(shown, kept[:, :, None].expand_as(shown).to(shown.dtype)), i


def test_more_than_2_to_the_32_elements() -> None:
    rows, width = 3, 2**31 - 5
    if torch.cuda.mem_get_info()[0] < rows * width + 2**28:
        pytest.skip("needs 7 GB of free GPU memory")
    offsets = torch.tensor([0, width, 2 * width, 3 * width - 3], device=DEVICE)
    out = torch.full((rows, width), 7, dtype=torch.uint8, device=DEVICE)
    column = (0, 0, offsets.data_ptr(), width, False, 1, 1, 1, 9, out.data_ptr())
    _cuda.pad_columns([column], rows, *where())
    assert (out[:, [0, 1, width - 4]] == 1).all()
    assert out[:, width - 3 :].tolist() == [[1, 1, 1], [1, 1, 1], [9, 9, 9]]
    assert out[2, width - 5 :].tolist() == [1, 1, 9, 9, 9]
    # From beyond 2**32 to beyond 2**32.
    flat = out.reshape(-1)
    picked = torch.tensor([3 * width - 5, 3 * width], device=DEVICE)
    start = torch.tensor([3 * width - 12], device=DEVICE)
    memory = flat.data_ptr(), flat.numel()
    _cuda.copy_rows(*memory, picked.data_ptr(), 1, start.data_ptr(), 1, *memory, *where())
    assert flat[-13:].tolist() == [1, 1, 1, 9, 9, 9, 1, 1, 1, 1, 9, 9, 9]


def test_another_stream_and_a_graph() -> None:
    offsets = torch.tensor([0, 2, 2, 5], device=DEVICE)
    values = torch.arange(1, 6, device=DEVICE)
    out = torch.empty((3, 4), dtype=torch.int64, device=DEVICE)
    flat, starts = torch.zeros(9, dtype=torch.int64, device=DEVICE), torch.tensor([6, 6, 1], device=DEVICE)

    def launches() -> None:
        column = (values.data_ptr(), 5, offsets.data_ptr(), 4, True, 8, 1, 0, 0, out.data_ptr())
        _cuda.pad_columns([column], 3, *where())
        place = values.data_ptr(), 5, offsets.data_ptr(), 3, starts.data_ptr(), 8
        _cuda.copy_rows(*place, flat.data_ptr(), 9, *where())

    launches()  # loads the kernels, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # on a stream of its own; fails if anything waits or allocates
        launches()
    out.fill_(-1)
    flat.fill_(0)
    graph.replay()
    assert out.tolist() == [[0, 0, 1, 2], [0, 0, 0, 0], [0, 3, 4, 5]]
    assert flat.tolist() == [0, 3, 4, 5, 0, 0, 1, 2, 0]
    # Other rows, same graph.
    offsets.copy_(torch.tensor([0, 1, 4, 5]))
    graph.replay()
    assert out.tolist() == [[0, 0, 0, 1], [0, 2, 3, 4], [0, 0, 0, 5]]


def test_errors_name_their_cause() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        _cuda.separate_rows(0, 0, 1, 0, 0, 0, device=10_000, stream=0)
    with pytest.raises(ValueError, match="not a multiple"):
        _cuda.separate_rows(4, 1, 1, 0, 8, 1, device=0, stream=0)
