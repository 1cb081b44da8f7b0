"""The CUDA kernels of labels and masking, compiled as C++: the CPU's results bit for bit, by their common oracles."""

import dataclasses
import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import oracles
from support.compiled import emulated
from support.emulated import BLOCKS, address
from support.hostile import FAR, HOSTILE, SIDES, bit_set, cut_lengths, cut_rows, pad_rows
from support.philox import HOW, Case, cases

SIZES = st.integers(0, 9) | st.sampled_from([31, 32, 33, 64, 255, 256, 257, 300, 513, 1025])
SPECIAL = st.sets(st.integers(0, 191), max_size=30)
SEEDS = st.integers(0, 2**32 - 1)
# Whole words are masked on the CPU alone.
SINGLE = cases.filter(lambda case: not case.whole_words)


def hostile_ids(seed: int, low: int, high: int, shape: Any) -> np.ndarray:
    """Integers of a range, and now and then one far outside."""
    rng = np.random.default_rng(seed)
    usual, far = rng.integers(low, high, size=shape), rng.choice(np.array(FAR, np.int64), size=shape)
    return np.where(rng.random(shape) < 0.05, far, usual)


def words_of(ids: np.ndarray, special: Any) -> np.ndarray:
    """special_tokens, as words: one of its own for each token, or none."""
    flags = np.empty(len(ids), np.uint8)
    oracles.special_tokens(ids, special, flags)
    return flags + np.uint8(1)


@given(SIZES, SEEDS, st.integers(-2, 3) | st.sampled_from(FAR), BLOCKS)
def test_causal_labels(guarded: Any, count: int, seed: int, pad_id: int, blocks: int) -> None:
    ids, labels, expected = guarded("int64", count), guarded("int64", count), np.empty(count, np.int64)
    ids.array[:] = hostile_ids(seed, -2, 4, count)
    oracles.causal_labels(ids.array, pad_id, expected)
    emulated.causal_labels(ids.address, count, pad_id, labels.address, blocks)
    assert labels.holds(expected)


IN_PLACE = {"pads": False, "values": 0, "values_size": 0, "fill": 0, "attention_mask": 0}


def mask(guarded: Any, case: Case, offsets: np.ndarray, members: np.ndarray | None, blocks: int) -> tuple[Any, Any]:
    """(ids, labels) by philox_mask: of these words, or where members are given, of the ids that are not among them."""
    ids, labels, flags = guarded("int64", case.count), guarded("int64", case.count), guarded("uint8", case.count)
    ids.array[:], flags.array[:] = case.ids, case.words
    keys, bounds = guarded("uint64", case.rows), guarded("int64", case.rows + 1)
    keys.array[:], bounds.array[:] = case.keys, offsets
    size = 0 if members is None else len(members)
    special = guarded("uint64", size)
    special.array[:] = members if size else 0
    emulated.philox_mask(
        case.options,
        row_keys=keys.address,
        offsets=bounds.address,
        rows=case.rows,
        width=case.width,
        left=case.layout == "left",
        flat=case.layout == "flat",
        words=flags.address if members is None else 0,
        set=special.address if size else 0,
        set_size=size,
        ids=ids.address,
        labels=labels.address,
        out_size=case.count,
        **IN_PLACE,
        max_blocks=blocks,
    )
    assert ids.intact()
    assert labels.intact()
    return ids.array, labels.array


@given(SINGLE, BLOCKS, st.none() | SPECIAL, st.integers(0, 3))
def test_philox_mask(guarded: Any, case: Case, blocks: int, special: set[int] | None, spare: int) -> None:
    """By words, or by special ids: ids may be negative, or far beyond the set; the set may be empty."""
    members = None
    if special is not None:
        case.ids = hostile_ids(case.numbers, -70, 400, case.count)
        case.words, members = words_of(case.ids, special), bit_set(special, spare)
    masked = mask(guarded, case, case.offsets + case.numbers % 3, members, blocks)
    assert all(map(np.array_equal, masked, case.expected()))


@given(cases, BLOCKS, st.data())
def test_philox_mask_with_hostile_offsets(guarded: Any, case: Case, blocks: int, data: Any) -> None:
    """Nothing outside is written."""
    offset = HOSTILE | st.integers(-3, 300)
    offsets = np.array(data.draw(st.lists(offset, min_size=case.rows + 1, max_size=case.rows + 1)), np.int64)
    mask(guarded, case, offsets, None, blocks)


@given(cases, st.integers(0, 5), SPECIAL, st.integers(-200, 200), st.booleans(), BLOCKS)
def test_philox_mask_of_rows_that_it_pads(guarded, case, before, special, fill, with_mask, blocks):  # noqa: PLR0917
    """copy_rows, fill_gaps, attention_mask and philox_mask, one after the other."""
    offsets, left = before + case.offsets, case.layout == "left"
    width = max(case.lengths, default=0) + case.gap
    values = hostile_ids(case.numbers, -70, 400, int(offsets[-1]) + 2)
    side = "left" if left else "right"
    padded = dataclasses.replace(case, layout=side)
    rows = [values[a:b] for a, b in itertools.pairwise(offsets)]
    padded.ids = pad_rows(rows, width, side, fill, np.int64).reshape(-1)
    padded.words, padded.keys = words_of(padded.ids, special), case.keys
    attended = np.empty(padded.count, np.int64)
    oracles.attention_mask(case.lengths, side, attended.reshape(case.rows, width))
    expected = [array.reshape(case.rows, width) for array in (*padded.expected(), attended)]
    outs, members = [guarded("int64", (case.rows, width)) for _ in range(3)], bit_set(special, case.numbers % 3)
    emulated.philox_mask(
        case.options, address(case.keys), address(offsets), case.rows, width, left, False, 0,
        address(members) if len(members) else 0, len(members), outs[0].address, outs[1].address, case.rows * width,
        True, address(values), len(values), fill, outs[2].address if with_mask else 0, blocks,
    )  # fmt: skip
    for out, other in list(zip(outs, expected, strict=True))[: 2 + with_mask]:
        assert np.array_equal(out.array, other)
    assert all(out.intact() for out in outs)
    assert with_mask or outs[2].untouched()


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), SIDES, BLOCKS)
def test_philox_mask_pads_rows_with_hostile_offsets(guarded, offsets, size, width, side, blocks):  # noqa: PLR0917
    """Rows are cut; every element is written, and none outside."""
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    values, keys = np.arange(size) + 50, np.zeros(rows, np.uint64)
    outs = [guarded("int64", (rows, width)) for _ in range(3)]
    emulated.philox_mask(
        (0, 0, 0.5, 1.0, 0.0, 5, 9), address(keys), address(source), rows, width, side == "left", False, 0, 0, 0,
        outs[0].address, outs[1].address, rows * width, True, address(values), size, 7, outs[2].address, blocks,
    )  # fmt: skip
    assert all(out.intact() for out in outs)
    ids, labels, kept = (out.array for out in outs)
    cut = cut_rows(values, offsets, width)
    expected, attended = pad_rows(cut, width, side, 7, np.int64), np.empty((rows, width), np.int64)
    oracles.attention_mask([len(row) for row in cut], side, attended)
    assert np.array_equal(kept, attended)
    masked = labels != -100
    assert np.array_equal(ids, np.where(masked, 5, expected))
    assert np.array_equal(labels[masked], expected[masked])
    assert not masked[kept == 0].any()


ROWS = st.lists(st.lists(st.integers(0, 30000) | st.sampled_from(FAR), max_size=300), max_size=5)


@given(ROWS, BLOCKS, st.integers(0, 3))
def test_row_keys(guarded: Any, rows: list[list[int]], blocks: int, before: int) -> None:
    flat = [7] * before + [token for tokens in rows for token in tokens]
    values, out = guarded("int64", len(flat)), guarded("uint64", len(rows))
    values.array[:] = flat
    offsets = guarded("int64", len(rows) + 1)
    offsets.array[:] = np.cumsum([before, *map(len, rows)])
    expected = np.empty(len(rows), np.uint64)
    oracles.row_keys([np.array(tokens, np.int64) for tokens in rows], expected)
    emulated.row_keys(values.address, len(flat), offsets.address, len(rows), 0, False, True, out.address, blocks)
    assert out.holds(expected)


@given(cases, BLOCKS)
def test_row_keys_of_a_padded_batch(guarded: Any, case: Case, blocks: int) -> None:
    values, offsets = guarded("int64", case.count), guarded("int64", case.rows + 1)
    values.array[:], offsets.array[:] = case.ids, case.offsets
    out, expected = guarded("uint64", case.rows), np.empty(case.rows, np.uint64)
    rows = [case.ids[first : first + n] for first, n in zip(case.start, case.lengths, strict=True)]
    oracles.row_keys(rows, expected)
    left, flat = case.layout == "left", case.layout == "flat"
    emulated.row_keys(
        values.address, case.count, offsets.address, case.rows, case.width, left, flat, out.address, blocks
    )
    assert out.holds(expected)


@given(st.lists(HOSTILE, min_size=1, max_size=6), BLOCKS, st.booleans())
def test_row_keys_with_hostile_offsets(guarded: Any, offsets: list[int], blocks: int, flat: bool) -> None:
    """The keys of what there is of the rows."""
    rows = len(offsets) - 1
    count = 5 if flat else 3 * rows
    values, bounds, out = guarded("int64", count), guarded("int64", len(offsets)), guarded("uint64", rows)
    values.array[:], bounds.array[:] = range(count), offsets
    emulated.row_keys(values.address, count, bounds.address, rows, 3, True, flat, out.address, blocks)
    ends = zip(range(3, count + 1, 3), cut_lengths(offsets, 3), strict=False)
    tokens = cut_rows(values.array, offsets, count) if flat else [values.array[end - n : end] for end, n in ends]
    expected = np.empty(rows, np.uint64)
    oracles.row_keys(tokens, expected)
    assert out.holds(expected)


def test_nothing_to_do() -> None:
    """No rows or tokens, and null addresses for what has no elements."""
    emulated.causal_labels(0, 0, 3, 0)
    for flat in (False, True):
        emulated.row_keys(0, 0, 0, 0, 5, False, flat, 0)
        emulated.philox_mask(HOW, 0, 0, 0, 5, False, flat, 0, 0, 0, 0, 0, 0, not flat, 0, 0, 7, 0)
