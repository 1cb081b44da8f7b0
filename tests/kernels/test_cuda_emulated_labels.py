"""The CUDA kernels of labels and masking, compiled as C++: the CPU's results bit for bit, by their common oracles."""

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from quadrat.ops._philox import PhiloxOptions
from support.compiled import emulated, host
from support.emulated import BLOCKS, address
from support.hostile import FAR, HOSTILE, SIDES, bit_set, cut_lengths, cut_rows, pad_rows
from support.philox import Case, cases

SIZES = st.integers(0, 9) | st.sampled_from([31, 32, 33, 64, 255, 256, 257, 300, 513, 1025])
SPECIAL = st.sets(st.integers(0, 191), max_size=30)
SEEDS = st.integers(0, 2**32 - 1)


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
        max_blocks=blocks,
    )
    assert ids.intact()
    assert labels.intact()
    return ids.array, labels.array


@given(cases, BLOCKS)
def test_philox_mask(guarded: Any, case: Case, blocks: int) -> None:
    ids, labels = mask(guarded, case, case.offsets + case.numbers % 3, None, blocks)
    expected_ids, expected_labels = case.expected()
    assert np.array_equal(ids, expected_ids)
    assert np.array_equal(labels, expected_labels)


@given(cases, BLOCKS, SPECIAL, st.integers(0, 3))
def test_philox_mask_by_special_ids(guarded: Any, case: Case, blocks: int, special: set[int], spare: int) -> None:
    """Ids may be negative, or far beyond the set; the set may be empty."""
    case.ids = hostile_ids(case.numbers, -70, 400, case.count)
    case.words = words_of(case.ids, special)
    members = bit_set(special, spare)
    ids, labels = mask(guarded, case, case.offsets, members, blocks)
    expected_ids, expected_labels = case.expected()
    assert np.array_equal(ids, expected_ids)
    assert np.array_equal(labels, expected_labels)


@given(cases, BLOCKS, st.data())
def test_philox_mask_with_hostile_offsets(guarded: Any, case: Case, blocks: int, data: Any) -> None:
    """Nothing outside is written."""
    offset = HOSTILE | st.integers(-3, 300)
    offsets = np.array(data.draw(st.lists(offset, min_size=case.rows + 1, max_size=case.rows + 1)), np.int64)
    mask(guarded, case, offsets, None, blocks)


@given(cases, st.integers(0, 5), SPECIAL, st.integers(-200, 200), st.booleans(), BLOCKS)
def test_pad_masked(guarded, case, before, special, fill, with_mask, blocks):  # noqa: PLR0917
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
    emulated.pad_masked(
        case.options, row_keys=address(case.keys), values=address(values), values_size=len(values),
        offsets=address(offsets), rows=case.rows, width=width, left=left,
        set=address(members) if len(members) else 0, set_size=len(members), fill=fill, ids=outs[0].address,
        labels=outs[1].address, attention_mask=outs[2].address if with_mask else 0, max_blocks=blocks,
    )  # fmt: skip
    for out, other in list(zip(outs, expected, strict=True))[: 2 + with_mask]:
        assert np.array_equal(out.array, other)
    assert all(out.intact() for out in outs)
    assert with_mask or outs[2].untouched()


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), SIDES, BLOCKS)
def test_pad_masked_with_hostile_offsets(guarded, offsets, size, width, side, blocks):  # noqa: PLR0917
    """Rows are cut; every element is written, and none outside."""
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    values, keys = np.arange(size) + 50, np.zeros(rows, np.uint64)
    outs = [guarded("int64", (rows, width)) for _ in range(3)]
    emulated.pad_masked(
        (0, 0, 0.5, 1.0, 0.0, 5, 9), address(keys), address(values), size, address(source), rows, width, side == "left",
        0, 0, 7, *(out.address for out in outs), blocks,
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
        emulated.philox_mask(HOW, 0, 0, 0, 5, False, flat, 0, 0, 0, 0, 0, 0)
    emulated.pad_masked(HOW, 0, 0, 0, 0, 0, 5, False, 0, 0, 7, 0, 0, 0)


LABELS = {"ids": 64, "count": 3, "pad_id": 0, "labels": 64}
KEYS = {"values": 64, "values_size": 3, "offsets": 64, "rows": 2, "width": 0, "left": False, "flat": True, "out": 64}
HOW = PhiloxOptions(seed=0, epoch=0, mlm_probability=0.15, mask=0.8, random=0.1, mask_id=3, vocab_size=9)
MASK = {
    **{"options": HOW},
    **{"row_keys": 64, "offsets": 64, "rows": 2, "width": 3, "left": False, "flat": False},
    **{"words": 64, "set": 64, "set_size": 2, "ids": 64, "labels": 64, "out_size": 6},
}
PAD = {
    **{"options": HOW},
    **{"row_keys": 64, "values": 64, "values_size": 4, "offsets": 64, "rows": 2, "width": 3, "left": False},
    **{"set": 64, "set_size": 2, "fill": 0, "ids": 64, "labels": 64, "attention_mask": 64},
}


@pytest.mark.parametrize(
    ("kernel", "good", "change", "message"),
    [
        *(("causal_labels", LABELS, {name: 4}, "not a multiple") for name in ("ids", "labels")),
        *(("causal_labels", LABELS, {name: 0}, "null") for name in ("ids", "labels")),
        ("causal_labels", LABELS, {"count": -1}, "must not be negative"),
        ("causal_labels", LABELS, {"count": 2**61}, "too large"),
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
        *(
            ("pad_masked", PAD, {name: 4}, "not a multiple")
            for name in ("row_keys", "values", "offsets", "set", "ids", "labels", "attention_mask")
        ),
        *(("pad_masked", PAD, {n: 0}, "null") for n in ("row_keys", "values", "offsets", "set", "ids", "labels")),
        *(("pad_masked", PAD, {n: -1}, "must not be negative") for n in ("values_size", "rows", "width", "set_size")),
        *(("pad_masked", PAD, {n: 2**61}, "too large") for n in ("values_size", "rows", "width", "set_size")),
    ],
)
def test_arguments_no_kernel_can_take(kernel: str, good: dict[str, Any], change: dict[str, Any], message: str) -> None:
    """Nothing is read or written: the addresses are not real."""
    with pytest.raises(ValueError, match=message):
        getattr(emulated, kernel)(**good | change)


HOST = {"row_keys": 0, "start": 0, "lengths": 0, "rows": 0, "words": 0, "ids": 0, "labels": 0, "count": 0}
TAKE_OPTIONS = {
    "the host's kernel": lambda options: host.philox_mask(options, **HOST),
    "the collators": lambda options: _core.PhiloxLabels(options, []),
    "philox_mask": lambda options: emulated.philox_mask(**MASK | {"options": options, "rows": 0, "out_size": 0}),
    "pad_masked": lambda options: emulated.pad_masked(**PAD | {"options": options, "rows": 0}),
}


@pytest.mark.parametrize("take", TAKE_OPTIONS.values(), ids=TAKE_OPTIONS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"mlm_probability": 1.5}, "mlm_probability must be between 0 and 1, not 1.5"),
        ({"mask": float("nan")}, "mask_replace_prob must be between 0 and 1, not nan"),
        ({"random": -0.1}, "random_replace_prob must be between 0 and 1, not -0.1"),
        ({"random": 0.3}, "mask_replace_prob and random_replace_prob must not exceed 1 together: 0.8 + 0.3"),
        ({"mask": 0.9, "random": 0.1}, None),
        ({"vocab_size": 0}, "vocab_size must be between 1 and 268435455, not 0"),
        ({"vocab_size": 2**28}, "vocab_size must be between 1 and 268435455, not 268435456"),
        ({"vocab_size": 2**28 - 1}, None),
        ({"seed": 2**64 - 1, "epoch": 2**32 - 1}, None),
    ],
)
def test_host_and_device_take_the_same_options(take: Any, change: dict[str, Any], message: str | None) -> None:
    if message is None:
        take(HOW._replace(**change))
        return
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        take(HOW._replace(**change))


@pytest.mark.parametrize("take", TAKE_OPTIONS.values(), ids=TAKE_OPTIONS)
@pytest.mark.parametrize("change", [{"seed": 2**64}, {"seed": -1}, {"epoch": 2**32}, {"mask_id": None}, {"mask": "1"}])
def test_host_and_device_take_no_other_numbers(take: Any, change: dict[str, Any]) -> None:
    for options in (HOW._replace(**change), HOW[:-1]):
        with pytest.raises(TypeError, match="incompatible"):
            take(options)
