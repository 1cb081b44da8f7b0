"""The CUDA kernels for labels and words, compiled as C++ and run on the CPU, against reference.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference

emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")

MOST_BLOCKS = 65535

# Around the sizes of a warp and a block (32 and 256), where shares of threads begin and end.
sizes = st.integers(0, 9) | st.sampled_from([31, 32, 33, 64, 255, 256, 257, 300, 513, 1025])
# Few blocks: threads take several rows and elements each, as they would of huge inputs.
blocks = st.sampled_from([1, 2, 3, 7, MOST_BLOCKS])
shapes = st.tuples(st.integers(0, 9) | st.sampled_from([33, 70]), sizes)
seeds = st.integers(0, 2**32 - 1)
INT64 = np.iinfo(np.int64)
HOSTILE = np.array([INT64.min, INT64.min + 1, -1, INT64.max - 1, INT64.max, 2**31, 2**32 + 3], np.int64)


def numbers(seed: int, low: int, high: int, shape: Any) -> np.ndarray:
    """Integers of a range, and now and then one far outside."""
    generator = np.random.default_rng(seed)
    usual, far = generator.integers(low, high, size=shape), generator.choice(HOSTILE, size=shape)
    return np.where(generator.random(shape) < 0.05, far, usual)


@given(sizes, seeds, st.integers(-2, 3) | st.sampled_from(HOSTILE.tolist()), blocks)
def test_causal_labels(guarded: Any, count: int, seed: int, pad_id: int, max_blocks: int) -> None:
    ids, labels, expected = guarded("int64", count), guarded("int64", count), np.empty(count, np.int64)
    ids.array[:] = numbers(seed, -2, 4, count)
    reference.causal_labels(ids.array, pad_id, expected)
    emulated.causal_labels(ids.address, count, pad_id, labels.address, max_blocks)
    assert np.array_equal(labels.array, expected)
    assert labels.intact()


@given(sizes, seeds, st.sets(st.integers(0, 191)), blocks)
def test_special_tokens(guarded: Any, count: int, seed: int, special: set[int], max_blocks: int) -> None:
    words = max(special, default=-1) // 64 + 1 + seed % 3
    members, ids, out = guarded("uint64", words), guarded("int64", count), guarded("uint8", count)
    members.array[:] = 0
    for number in special:
        members.array[number // 64] |= np.uint64(1 << number % 64)
    ids.array[:] = numbers(seed, -70, 400, count)
    expected = np.empty(count, np.uint8)
    reference.special_tokens(ids.array, special, expected)
    emulated.special_tokens(ids.address, count, members.address, words, out.address, max_blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize("form", ["offsets", "word ids"])
@given(shapes, seeds, blocks)
def test_word_starts(guarded: Any, form: str, shape: tuple[int, int], seed: int, max_blocks: int) -> None:
    kernel = emulated.word_starts if form == "offsets" else emulated.word_starts_of_ids
    places = guarded("int64", (*shape, 2) if form == "offsets" else shape)
    special, words = guarded("uint8", shape), guarded("uint8", shape)
    places.array[:] = numbers(seed, -2, 3, places.array.shape)
    special.array[:] = np.random.default_rng(seed).choice(np.array([0, 0, 0, 1, 2, 255], np.uint8), size=shape)
    expected = np.empty(shape, np.uint8)
    for row in range(shape[0]):
        reference.word_starts(places.array[row], special.array[row], expected[row])
    kernel(places.address, special.address, *shape, words.address, max_blocks)
    assert np.array_equal(words.array, expected)
    assert words.intact()


def test_nothing_to_do() -> None:
    """No tokens, and null addresses for what has no elements."""
    emulated.causal_labels(0, 0, 3, 0)
    emulated.special_tokens(0, 0, 0, 0, 0)
    for kernel in (emulated.word_starts, emulated.word_starts_of_ids):
        kernel(0, 0, 0, 5, 0)
        kernel(0, 0, 5, 0, 0)


LABELS = {"ids": 64, "count": 3, "pad_id": 0, "labels": 64}
SPECIAL = {"ids": 64, "count": 3, "set": 64, "set_size": 2, "out": 64}
WORDS = {"special": 64, "rows": 2, "width": 3, "words": 64}


@pytest.mark.parametrize(
    ("kernel", "good", "change", "message"),
    [
        *(("causal_labels", LABELS, {name: 4}, "not a multiple") for name in ("ids", "labels")),
        *(("causal_labels", LABELS, {name: 0}, "null") for name in ("ids", "labels")),
        ("causal_labels", LABELS, {"count": -1}, "must not be negative"),
        ("causal_labels", LABELS, {"count": 2**61}, "too large"),
        *(("special_tokens", SPECIAL, {name: 4}, "not a multiple") for name in ("ids", "set")),
        *(("special_tokens", SPECIAL, {name: 0}, "null") for name in ("ids", "set", "out")),
        *(("special_tokens", SPECIAL, {name: -1}, "must not be negative") for name in ("count", "set_size")),
        *(("special_tokens", SPECIAL, {name: 2**61}, "too large") for name in ("count", "set_size")),
        *(
            (kernel, WORDS | {places: 64}, change, message)
            for kernel, places in (("word_starts", "offsets"), ("word_starts_of_ids", "word_ids"))
            for change, message in (
                ({places: 4}, "not a multiple"),
                ({places: 0}, "null"),
                ({"special": 0}, "null"),
                ({"words": 0}, "null"),
                ({"rows": -1}, "must not be negative"),
                ({"width": -1}, "must not be negative"),
                ({"rows": 2**31, "width": 2**31}, "too large"),
                ({"rows": 0, "width": INT64.max}, "too large"),
            )
        ),
        ("word_starts", WORDS | {"offsets": 64}, {"rows": 2, "width": 2**58}, "too large"),
    ],
)
def test_arguments_no_kernel_can_take(kernel: str, good: dict[str, int], change: dict[str, int], message: str) -> None:
    """Nothing is read or written: the addresses are not real."""
    arguments = {name: int(value) for name, value in (good | change).items()}
    with pytest.raises(ValueError, match=message):
        getattr(emulated, kernel)(**arguments)
