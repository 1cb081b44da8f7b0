"""The CUDA kernels on a GPU, against reference.py. What they do to hostile input is tested by emulation as well."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference

_cuda = pytest.importorskip("quadrat._cuda", reason="needs a GPU")
torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(_cuda.device_count() == 0, reason="needs a GPU"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a torch with CUDA"),
]

DEVICE = "cuda"
INT64 = np.iinfo(np.int64)
CANARY = 0xA5
MARGIN = 64

lengths_lists = st.lists(
    st.one_of(st.integers(0, 9), st.sampled_from([31, 32, 33, 64, 255, 256, 257, 300, 513])), max_size=12
)
dtypes = st.sampled_from(["bool", "uint8", "int16", "int32", "float32", "int64", "float64"]).map(np.dtype)
sides = st.sampled_from(["right", "left"])
hostile = st.one_of(
    st.integers(-3, 40), st.sampled_from([INT64.min, INT64.max, 2**31, 2**32 + 5]), st.integers(INT64.min, INT64.max)
)


class Guarded:
    """Device memory between margins of canary bytes, filled with them itself."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.size = int(np.prod(shape, dtype=np.int64))
        self.bytes = torch.full((2 * MARGIN + self.size * dtype.itemsize,), CANARY, dtype=torch.uint8, device=DEVICE)
        self.address = self.bytes.data_ptr() + MARGIN

    def before(self) -> np.ndarray:
        return np.full(self.size * self.dtype.itemsize, CANARY, np.uint8).view(self.unsigned).reshape(self.shape)

    def result(self) -> np.ndarray:
        """The elements as unsigned integers; checks the margins."""
        host = self.bytes.cpu().numpy()
        assert (host[:MARGIN] == CANARY).all()
        assert (host[len(host) - MARGIN :] == CANARY).all()
        return host[MARGIN : len(host) - MARGIN].view(self.unsigned).reshape(self.shape)

    @property
    def unsigned(self) -> str:
        return f"u{self.dtype.itemsize}"


@dataclass
class Case:
    lengths: list[int]
    values: np.ndarray
    offsets: np.ndarray
    width: int
    side: str

    def __post_init__(self) -> None:
        self.device_offsets = torch.from_numpy(self.offsets).to(DEVICE)
        self.device_values = torch.from_numpy(self.values).to(DEVICE)

    @property
    def layout(self) -> tuple[int, int, int, bool]:
        return self.device_offsets.data_ptr(), len(self.lengths), self.width, self.side == "left"

    @property
    def source(self) -> tuple[int, int]:
        return self.device_values.data_ptr(), self.values.size

    @property
    def rows(self) -> list[np.ndarray]:
        unsigned = self.values.view(f"u{self.values.itemsize}")
        return [unsigned[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(lengths_lists)
    offsets = draw(st.integers(0, 5)) + np.cumsum([0, *lengths], dtype=np.int64)
    values = (np.arange(int(offsets[-1]) + draw(st.integers(0, 5))) * 7919).astype(draw(dtypes))
    width = max(lengths, default=0) + draw(st.one_of(st.just(0), st.integers(0, 300)))
    return Case(lengths, values, offsets, width, draw(sides))


def where() -> tuple[int, int]:
    """The device and stream that torch works on."""
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream


def bits_of(value: Any, dtype: np.dtype[Any]) -> int:
    return int(np.array([value], dtype).view(f"u{dtype.itemsize}")[0])


@given(cases())
def test_copy_rows_padded(case: Case) -> None:
    out = Guarded((len(case.lengths), case.width), case.values.dtype)
    expected = out.before()
    gap = [case.width - length if case.side == "left" else 0 for length in case.lengths]
    reference.copy_rows(case.rows, [row * case.width + g for row, g in enumerate(gap)], expected.reshape(-1))
    offsets, rows, width, left = case.layout
    _cuda.copy_rows(*case.source, offsets, rows, 0, width, left, case.values.itemsize, out.address, out.size, *where())
    assert np.array_equal(out.result(), expected)


@given(cases(), st.integers(0, 40))
def test_copy_rows_to_given_starts(case: Case, space: int) -> None:
    starts = np.cumsum([space, *(length + space for length in case.lengths)], dtype=np.int64)
    out = Guarded((int(starts[-1]),), case.values.dtype)
    expected = out.before()
    reference.copy_rows(case.rows, starts[:-1].tolist(), expected)
    device_starts = torch.from_numpy(starts).to(DEVICE)
    offsets, rows, _, _ = case.layout
    item = case.values.itemsize
    _cuda.copy_rows(
        *case.source, offsets, rows, device_starts.data_ptr(), 0, False, item, out.address, out.size, *where()
    )
    assert np.array_equal(out.result(), expected)


@given(cases())
def test_fill_gaps(case: Case) -> None:
    dtype = case.values.dtype
    out = Guarded((len(case.lengths), case.width), dtype)
    expected = out.before()
    reference.fill_gaps(case.lengths, case.side, bits_of(1, dtype), expected)
    _cuda.fill_gaps(*case.layout, dtype.itemsize, bits_of(1, dtype), out.address, *where())
    assert np.array_equal(out.result(), expected)


@given(cases())
def test_attention_mask(case: Case) -> None:
    dtype = case.values.dtype
    out = Guarded((len(case.lengths), case.width), dtype)
    expected = np.empty(out.shape, dtype)
    reference.attention_mask(case.lengths, case.side, expected)
    _cuda.attention_mask(*case.layout, dtype.itemsize, bits_of(1, dtype), out.address, *where())
    assert np.array_equal(out.result().view(dtype), expected)


@given(cases(), st.integers(0, 300), st.integers(-5, 5))
def test_flat_batch(case: Case, extra: int, start: int) -> None:
    total = sum(case.lengths) + (extra if any(case.lengths) else 0)
    address, rows, _, _ = case.layout
    positions, sequences = Guarded((total,), np.dtype(np.int64)), Guarded((total,), np.dtype(np.int32))
    bounds = Guarded((rows + 1,), np.dtype(np.int32))
    expected = np.empty(total, np.int64), np.empty(total, np.int32), np.empty(rows + 1, np.int32)
    reference.position_ids(case.lengths, start, expected[0])
    reference.seq_idx(case.lengths, expected[1])
    reference.cu_seqlens(case.lengths, expected[2])
    _cuda.position_ids(address, rows, start, positions.address, total, *where())
    _cuda.seq_idx(address, rows, sequences.address, total, *where())
    _cuda.cu_seqlens(address, rows, 4, bounds.address, *where())
    for got, one in zip((positions, sequences, bounds), expected, strict=True):
        assert np.array_equal(got.result().view(one.dtype), one)


@given(st.lists(hostile, max_size=12), st.integers(0, 40), dtypes)
def test_separate_rows(starts: list[int], size: int, dtype: np.dtype[Any]) -> None:
    out = Guarded((size,), dtype)
    expected = out.before()
    reference.separate_rows([start for start in starts if 0 <= start < size], bits_of(1, dtype), expected)
    device_starts = torch.tensor(starts, dtype=torch.int64, device=DEVICE)
    item = dtype.itemsize
    _cuda.separate_rows(device_starts.data_ptr(), len(starts), item, bits_of(1, dtype), out.address, size, *where())
    assert np.array_equal(out.result(), expected)


@given(st.lists(hostile, min_size=2, max_size=8), st.integers(0, 40))
def test_hostile_offsets_of_a_flat_batch_change_nothing_outside(offsets: list[int], size: int) -> None:
    source = torch.tensor(offsets, dtype=torch.int64, device=DEVICE)
    rows = len(offsets) - 1
    positions, sequences = Guarded((size,), np.dtype(np.int64)), Guarded((size,), np.dtype(np.int32))
    _cuda.position_ids(source.data_ptr(), rows, 0, positions.address, size, *where())
    _cuda.seq_idx(source.data_ptr(), rows, sequences.address, size, *where())
    positions.result()
    unchanged = int(sequences.before()[0]) if size else 0
    assert np.isin(sequences.result(), [*range(rows), 2**32 - 1, unchanged]).all()


@given(
    offsets=st.lists(hostile, min_size=1, max_size=8),
    size=st.integers(0, 40),
    width=st.integers(0, 40),
    dtype=dtypes,
    side=sides,
    padded=st.booleans(),
)
def test_hostile_offsets_change_nothing_outside(
    *, offsets: list[int], size: int, width: int, dtype: np.dtype[Any], side: str, padded: bool
) -> None:
    lengths = [min(max(b - a, 0), width) for a, b in itertools.pairwise(offsets)]
    case = Case(lengths, np.zeros(size, dtype), np.array(offsets, np.int64), width, side)
    out = Guarded((len(lengths), width), dtype)
    address, rows, width, left = case.layout
    start = 0 if padded else address  # the offsets are hostile starts as well
    _cuda.copy_rows(*case.source, address, rows, start, width, left, dtype.itemsize, out.address, out.size, *where())
    # Only zeros are among the values.
    assert np.isin(out.result(), [0, out.before().reshape(-1)[0]] if out.size else []).all()
    filled = Guarded(out.shape, dtype)
    expected = filled.before()
    reference.fill_gaps(lengths, side, 1, expected)
    _cuda.fill_gaps(*case.layout, dtype.itemsize, 1, filled.address, *where())
    assert np.array_equal(filled.result(), expected)


def test_more_rows_than_blocks() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 1_000_003)
    offsets = torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int64)).to(DEVICE)
    out = torch.full((len(lengths), 4), 7, dtype=torch.int32, device=DEVICE)
    _cuda.attention_mask(offsets.data_ptr(), len(lengths), 4, False, 4, 1, out.data_ptr(), *where())
    expected = np.arange(4) < lengths[:, None]
    assert np.array_equal(out.cpu().numpy(), expected)


def test_more_than_2_to_the_32_elements() -> None:
    rows, width = 3, 2**31 - 5
    if torch.cuda.mem_get_info()[0] < rows * width + 2**28:
        pytest.skip("needs 7 GB of free GPU memory")
    offsets = torch.tensor([0, width, 2 * width, 3 * width - 3], device=DEVICE)
    out = torch.full((rows, width), 7, dtype=torch.uint8, device=DEVICE)
    _cuda.attention_mask(offsets.data_ptr(), rows, width, False, 1, 1, out.data_ptr(), *where())
    assert out[:, [0, 1, width - 4]].all()
    assert out[:, width - 3 :].tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    _cuda.fill_gaps(offsets.data_ptr(), rows, width, False, 1, 9, out.data_ptr(), *where())
    assert out[2, width - 5 :].tolist() == [1, 1, 9, 9, 9]
    # From beyond 2**32 to beyond 2**32.
    flat = out.reshape(-1)
    picked = torch.tensor([3 * width - 5, 3 * width], device=DEVICE)
    start = torch.tensor([3 * width - 12], device=DEVICE)
    memory = flat.data_ptr(), flat.numel()
    _cuda.copy_rows(*memory, picked.data_ptr(), 1, start.data_ptr(), 0, False, 1, *memory, *where())
    assert flat[-13:].tolist() == [1, 1, 1, 9, 9, 9, 1, 1, 1, 1, 9, 9, 9]


def test_another_stream_and_a_graph() -> None:
    offsets = torch.tensor([0, 2, 2, 5], device=DEVICE)
    values = torch.arange(1, 6, device=DEVICE)
    out = torch.empty((3, 4), dtype=torch.int64, device=DEVICE)

    def pad() -> None:
        layout = (offsets.data_ptr(), 3)
        _cuda.copy_rows(values.data_ptr(), 5, *layout, 0, 4, True, 8, out.data_ptr(), 12, *where())
        _cuda.fill_gaps(*layout, 4, True, 8, 0, out.data_ptr(), *where())

    pad()  # loads the kernels, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # on a stream of its own; fails if anything waits or allocates
        pad()
    out.fill_(-1)
    graph.replay()
    assert out.tolist() == [[0, 0, 1, 2], [0, 0, 0, 0], [0, 3, 4, 5]]
    # Other rows, same graph.
    offsets.copy_(torch.tensor([0, 1, 4, 5]))
    graph.replay()
    assert out.tolist() == [[0, 0, 0, 1], [0, 2, 3, 4], [0, 0, 0, 5]]


def test_errors_name_their_cause() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        _cuda.fill_gaps(0, 0, 0, False, 1, 0, 0, device=10_000, stream=0)
    with pytest.raises(ValueError, match="not a multiple"):
        _cuda.fill_gaps(4, 1, 1, False, 1, 0, 8, device=0, stream=0)
