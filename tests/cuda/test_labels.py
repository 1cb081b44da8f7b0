"""The CUDA kernels for labels and words on a GPU, against reference.py."""

from __future__ import annotations

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

CANARY = 0xA5
MARGIN = 64

sizes = st.integers(0, 9) | st.sampled_from([31, 32, 33, 255, 256, 257, 513, 100_003])
shapes = st.tuples(st.integers(0, 9) | st.just(700), st.integers(0, 9) | st.sampled_from([32, 33, 257, 513]))
seeds = st.integers(0, 2**32 - 1)


class Guarded:
    """Device memory for an output between margins of canary bytes."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self.bytes = torch.full((2 * MARGIN + size,), CANARY, dtype=torch.uint8, device="cuda")
        self.address = self.bytes.data_ptr() + MARGIN

    def result(self) -> np.ndarray:
        """The elements; checks the margins."""
        host = self.bytes.cpu().numpy()
        assert (host[:MARGIN] == CANARY).all()
        assert (host[len(host) - MARGIN :] == CANARY).all()
        return host[MARGIN : len(host) - MARGIN].view(self.dtype).reshape(self.shape)


def where() -> tuple[int, int]:
    """The device and stream that torch works on."""
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream


def numbers(seed: int, low: int, high: int, shape: Any) -> tuple[np.ndarray, Any]:
    """The same integers on the host and on the device."""
    host = np.random.default_rng(seed).integers(low, high, size=shape)
    return host, torch.from_numpy(host).to("cuda")


@given(sizes, seeds, st.integers(-2, 3))
def test_causal_labels(count: int, seed: int, pad_id: int) -> None:
    ids, device_ids = numbers(seed, -2, 4, count)
    labels, expected = Guarded(count, np.int64), np.empty(count, np.int64)
    reference.causal_labels(ids, pad_id, expected)
    _cuda.causal_labels(device_ids.data_ptr(), count, pad_id, labels.address, *where())
    assert np.array_equal(labels.result(), expected)


@given(sizes, seeds, st.sets(st.integers(0, 191)))
def test_special_tokens(count: int, seed: int, special: set[int]) -> None:
    ids, device_ids = numbers(seed, -70, 400, count)
    members = np.zeros(3, np.uint64)
    for number in special:
        members[number // 64] |= np.uint64(1 << number % 64)
    device_members = torch.from_numpy(members.view(np.int64)).to("cuda")
    out, expected = Guarded(count, np.uint8), np.empty(count, np.uint8)
    reference.special_tokens(ids, special, expected)
    _cuda.special_tokens(device_ids.data_ptr(), count, device_members.data_ptr(), 3, out.address, *where())
    assert np.array_equal(out.result(), expected)


@pytest.mark.parametrize("form", ["offsets", "word ids"])
@given(shapes, seeds)
def test_word_starts(form: str, shape: tuple[int, int], seed: int) -> None:
    kernel = _cuda.word_starts if form == "offsets" else _cuda.word_starts_of_ids
    places, device_places = numbers(seed, -2, 3, (*shape, 2) if form == "offsets" else shape)
    special = np.random.default_rng(seed).choice(np.array([0, 0, 0, 1, 2], np.uint8), size=shape)
    device_special = torch.from_numpy(special).to("cuda")
    words, expected = Guarded(shape, np.uint8), np.empty(shape, np.uint8)
    for row in range(shape[0]):
        reference.word_starts(places[row], special[row], expected[row])
    kernel(device_places.data_ptr(), device_special.data_ptr(), *shape, words.address, *where())
    assert np.array_equal(words.result(), expected)
