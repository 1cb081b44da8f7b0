"""philox_mask, row_keys, philox_order, compiled, against their oracles; the generator against published numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import host
from support.philox import Case, cases

# (counter, key, words) for Philox4x32-10, from `kat_vectors` of Random123 (Salmon, Moraes, Dror and Shaw, 2011).
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
words = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(("counter", "key", "expected"), PUBLISHED)
def test_published_numbers(counter: Any, key: Any, expected: Any) -> None:
    assert host.philox(counter, key, 0)[0] == expected
    assert tuple(oracles.draws._philox(counter, key)) == expected


@given(st.tuples(words, words, words, words), st.tuples(words, words), st.integers(0, 128))
def test_every_place_has_its_own_word(counter: Any, key: Any, n: int) -> None:
    words, run = host.philox(counter, key, n)
    assert list(words) == oracles.draws._philox(counter, key)
    blocks = [oracles.draws._philox([(counter[0] + i) % 2**32, *counter[1:]], key) for i in range(32)]
    assert run == [blocks[place // 32 * 8 + place % 8][place // 8 % 4] for place in range(n)]


@given(cases)
def test_masks_as_its_oracle(guarded: Any, case: Case) -> None:
    ids, labels, flags = guarded("int64", case.count), guarded("int64", case.count), guarded("uint8", case.count)
    ids.array[:], flags.array[:] = case.ids, case.words
    start, lengths = (np.array(numbers, np.int64) for numbers in (case.start, case.lengths))
    failed = host.philox_mask(
        case.options,
        row_keys=_core.address(case.keys),
        start=_core.address(start),
        lengths=_core.address(lengths),
        rows=case.rows,
        words=flags.address,
        ids=ids.address,
        labels=labels.address,
        count=case.count,
    )
    assert failed is None
    expected_ids, expected_labels = case.expected()
    assert ids.holds(expected_ids)
    assert labels.holds(expected_labels)
    assert flags.holds(case.words)


@pytest.mark.parametrize("change", [{"special_ids": [2, -1]}, {"epoch": np.zeros(2, np.uint32)}])
def test_refuses_what_cannot_be_drawn(change: dict[str, Any]) -> None:
    """The options are refused like those of the CUDA kernels: see test_cuda_emulated_labels.py."""
    good = {"options": (0, 0, 0.15, 0.8, 0.1, 3, 9), "special_ids": [2], "epoch": np.zeros(1, np.uint32)}
    _core.PhiloxLabels(**good)
    with pytest.raises(ValueError, match=next(iter(change))):
        _core.PhiloxLabels(**good | change)


INT64 = st.integers(-(2**63), 2**63 - 1)
row = st.lists(st.integers(0, 30000) | INT64, max_size=40)


def keys_of(values: np.ndarray, start: list[int], lengths: list[int], out: Any) -> Any:
    starts, sizes = np.array(start, np.int64), np.array(lengths, np.int64)
    where = _core.address(starts), len(start)
    return host.row_keys((_core.address(values), len(values)), where, _core.address(sizes), out)


@given(st.lists(row, max_size=5), st.integers(0, 3))
def test_row_keys_as_the_oracle(guarded: Any, rows: list[list[int]], gap: int) -> None:
    values = np.array([token for tokens in rows for token in [*tokens, *[7] * gap]], np.int64)
    lengths = [len(tokens) for tokens in rows]
    start = [sum(lengths[:i]) + gap * i for i in range(len(rows))]
    out, expected = guarded("uint64", len(rows)), np.empty(len(rows), np.uint64)
    assert keys_of(values, start, lengths, out.address) is None
    oracles.row_keys([np.array(tokens, np.int64) for tokens in rows], expected)
    assert out.holds(expected)


def test_tells_rows_apart() -> None:
    """Rows that differ by little: a token, two that changed places, one more zero at the end."""
    rows = [[token] for token in range(300)] + [[0] * n for n in range(300)]
    rows += [[a, b, c] for a in range(12) for b in range(12) for c in range(12)]
    rows += [[5] * i + [6] + [5] * (40 - i) for i in range(41)]
    different = {tuple(tokens) for tokens in rows}
    keys = np.empty(len(rows), np.uint64)
    values = np.array([token for tokens in rows for token in tokens], np.int64)
    lengths = [len(tokens) for tokens in rows]
    assert keys_of(values, np.cumsum([0, *lengths[:-1]]).tolist(), lengths, _core.address(keys)) is None
    assert len(set(keys.tolist())) == len(different)


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (3, 3), (0, -1), (6, 0), (0, 2**62), (2**62, 2**62)])
def test_rows_outside_the_batch(start: int, length: int) -> None:
    ids, labels, flags, keys = np.arange(5), np.arange(5), np.ones(5, np.uint8), np.zeros(2, np.uint64)
    starts, lengths = np.array([0, start]), np.array([5, length])
    options, places = (0, 0, 0.0, 0.8, 0.1, 0, 9), [*map(_core.address, (keys, starts, lengths))]
    masked = host.philox_mask(options, *places, 2, *map(_core.address, (flags, ids, labels)), 5)
    assert [masked[1], keys_of(ids, [0, start], [5, length], _core.address(keys))[1]] == [1, 1]


SEEDS, EPOCHS = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


@given(SEEDS, EPOCHS, EPOCHS, st.integers(0, 300))
def test_orders_as_the_oracle(guarded, seed, epoch, stream, rows):
    out = guarded("int64", rows)
    assert _core.philox_order(seed, epoch, stream, out.array)
    assert out.holds(oracles.philox_order(seed, epoch, stream, rows))
    assert sorted(out.array.tolist()) == list(range(rows))


def test_all_orders_are_as_frequent():
    """Of 24 orders of four rows, each comes 1,000 times in 24,000, give or take five standard deviations."""
    orders = np.empty((24000, 4), np.int64)
    assert all(_core.philox_order(3, epoch, 0, order) for epoch, order in enumerate(orders))
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 5 * 1000**0.5


def test_too_many_rows(tmp_path):
    rows = np.memmap(tmp_path / "rows", np.int64, "w+", shape=2**32)  # takes no room on the disk
    assert not _core.philox_order(0, 0, 0, rows)
