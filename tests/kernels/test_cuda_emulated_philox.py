"""The CUDA kernels of counter-based masking, compiled as C++: the CPU's results bit for bit, by their common twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference
from support.philox import MASK_ID, Case, cases

emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")

# Few blocks: threads take several rows and elements each, as they would of huge inputs.
blocks = st.sampled_from([1, 2, 3, 7, 65535])
INT64 = np.iinfo(np.int64)
HOSTILE = [INT64.min, INT64.min + 1, -1, INT64.max - 1, INT64.max, 2**31, 2**32 + 3]


def run(guarded: Any, case: Case, offsets: np.ndarray, special: list[int] | None, max_blocks: int) -> tuple[Any, Any]:
    ids, labels, flags = guarded("int64", case.count), guarded("int64", case.count), guarded("uint8", case.count)
    ids.array[:], flags.array[:] = case.ids, case.words
    members, keys, bounds = guarded("uint64", 4), guarded("uint64", case.rows), guarded("int64", case.rows + 1)
    members.array[:], keys.array[:], bounds.array[:] = 0, case.keys, offsets
    for number in special or []:
        members.array[number // 64] |= np.uint64(1 << number % 64)
    emulated.philox_mask(
        **case.odds,
        seed=case.seed,
        epoch=case.epoch,
        mask_id=MASK_ID,
        vocab_size=case.vocab_size,
        row_keys=keys.address,
        offsets=bounds.address,
        rows=case.rows,
        width=case.width,
        left=case.layout == "left",
        flat=case.layout == "flat",
        words=flags.address if special is None else 0,
        set=members.address,
        set_size=4,
        ids=ids.address,
        labels=labels.address,
        out_size=case.count,
        max_blocks=max_blocks,
    )
    assert ids.intact()
    assert labels.intact()
    return ids.array, labels.array


@given(cases, blocks)
def test_philox_mask(guarded: Any, case: Case, max_blocks: int) -> None:
    ids, labels = run(guarded, case, case.offsets + case.numbers % 3, None, max_blocks)
    expected_ids, expected_labels = case.expected()
    assert np.array_equal(ids, expected_ids)
    assert np.array_equal(labels, expected_labels)


@given(cases, blocks, st.lists(st.integers(0, 199), max_size=30))
def test_philox_mask_by_special_ids(guarded: Any, case: Case, max_blocks: int, special: list[int]) -> None:
    case.words = np.where(np.isin(case.ids, special), 2, 1).astype(np.uint8)
    ids, labels = run(guarded, case, case.offsets, special, max_blocks)
    expected_ids, expected_labels = case.expected()
    assert np.array_equal(ids, expected_ids)
    assert np.array_equal(labels, expected_labels)


@given(cases, blocks, st.data())
def test_hostile_offsets_write_nothing_outside(guarded: Any, case: Case, max_blocks: int, data: Any) -> None:
    offset = st.sampled_from(HOSTILE) | st.integers(-3, 300)
    offsets = np.array(data.draw(st.lists(offset, min_size=case.rows + 1, max_size=case.rows + 1)), np.int64)
    run(guarded, case, offsets, None, max_blocks)


rows = st.lists(st.lists(st.integers(0, 30000) | st.sampled_from(HOSTILE), max_size=300), max_size=5)


@given(rows, blocks, st.integers(0, 3))
def test_row_keys(guarded: Any, rows: list[list[int]], max_blocks: int, before: int) -> None:
    flat = [7] * before + [token for tokens in rows for token in tokens]
    values, out = guarded("int64", len(flat)), guarded("uint64", len(rows))
    values.array[:] = flat
    offsets = guarded("int64", len(rows) + 1)
    offsets.array[:] = np.cumsum([before, *map(len, rows)])
    expected = np.empty(len(rows), np.uint64)
    reference.row_keys([np.array(tokens, np.int64) for tokens in rows], expected)
    emulated.row_keys(values.address, len(flat), offsets.address, len(rows), 0, False, True, out.address, max_blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(cases, blocks)
def test_row_keys_of_a_padded_batch(guarded: Any, case: Case, max_blocks: int) -> None:
    values, offsets = guarded("int64", case.count), guarded("int64", case.rows + 1)
    values.array[:], offsets.array[:] = case.ids, case.offsets
    out, expected = guarded("uint64", case.rows), np.empty(case.rows, np.uint64)
    rows = [case.ids[first : first + n] for first, n in zip(case.start, case.lengths, strict=True)]
    reference.row_keys(rows, expected)
    left, flat = case.layout == "left", case.layout == "flat"
    emulated.row_keys(
        values.address, case.count, offsets.address, case.rows, case.width, left, flat, out.address, max_blocks
    )
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(st.lists(st.sampled_from(HOSTILE) | st.integers(-3, 9), min_size=1, max_size=6), blocks, st.booleans())
def test_row_keys_of_hostile_offsets(guarded: Any, offsets: list[int], max_blocks: int, flat: bool) -> None:
    rows = len(offsets) - 1
    count = 5 if flat else 3 * rows
    values, bounds, out = guarded("int64", count), guarded("int64", len(offsets)), guarded("uint64", rows)
    values.array[:], bounds.array[:] = range(count), offsets
    emulated.row_keys(values.address, count, bounds.address, rows, 3, True, flat, out.address, max_blocks)
    assert out.intact()


def test_nothing_to_do() -> None:
    """No rows, and null addresses for what has no elements."""
    for flat in (False, True):
        emulated.row_keys(0, 0, 0, 0, 5, False, flat, 0)
        emulated.philox_mask(0, 0, 0.5, 0.8, 0.1, 3, 9, 0, 0, 0, 5, False, flat, 0, 0, 0, 0, 0, 0)


KEYS = {"values": 64, "values_size": 3, "offsets": 64, "rows": 2, "width": 0, "left": False, "flat": True, "out": 64}
MASK = {
    **{"seed": 0, "epoch": 0, "mlm_probability": 0.15, "mask": 0.8, "random": 0.1, "mask_id": 3, "vocab_size": 9},
    **{"row_keys": 64, "offsets": 64, "rows": 2, "width": 3, "left": False, "flat": False},
    **{"words": 64, "set": 64, "set_size": 2, "ids": 64, "labels": 64, "out_size": 6},
}


@pytest.mark.parametrize(
    ("kernel", "good", "change", "message"),
    [
        *(("row_keys", KEYS, {name: 4}, "not a multiple") for name in ("values", "offsets", "out")),
        *(("row_keys", KEYS, {name: 0}, "null") for name in ("values", "offsets", "out")),
        *(("row_keys", KEYS, {name: -1}, "must not be negative") for name in ("values_size", "rows")),
        *(("row_keys", KEYS, {name: 2**61}, "too large") for name in ("values_size", "rows")),
        ("row_keys", KEYS, {"flat": False}, "must be values_size"),
        *(("philox_mask", MASK, {n: 4}, "not a multiple") for n in ("row_keys", "offsets", "set", "ids", "labels")),
        *(("philox_mask", MASK, {n: 0}, "null") for n in ("row_keys", "offsets", "set", "ids", "labels")),
        *(("philox_mask", MASK, {n: -1}, "must not be negative") for n in ("rows", "width", "set_size", "out_size")),
        *(("philox_mask", MASK, {n: 2**61}, "too large") for n in ("set_size", "out_size")),
        ("philox_mask", MASK, {"out_size": 7}, "must be out_size"),
        ("philox_mask", MASK, {"flat": True, "rows": 0}, "must be empty"),
        ("philox_mask", MASK, {"mlm_probability": 1.5}, "probabilities"),
        ("philox_mask", MASK, {"mask": float("nan")}, "probabilities"),
        ("philox_mask", MASK, {"random": 0.3}, "probabilities"),
        *(("philox_mask", MASK, {"vocab_size": size}, "vocab_size") for size in (0, 2**32)),
    ],
)
def test_arguments_no_kernel_can_take(kernel: str, good: dict[str, Any], change: dict[str, Any], message: str) -> None:
    """Nothing is read or written: the addresses are not real."""
    with pytest.raises(ValueError, match=message):
        getattr(emulated, kernel)(**good | change)
