"""row_keys, compiled, against its oracle, and what a key must tell apart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import host

INT64 = st.integers(-(2**63), 2**63 - 1)
row = st.lists(st.integers(0, 30000) | INT64, max_size=40)


def keys_of(values: np.ndarray, start: list[int], lengths: list[int], out: Any) -> Any:
    starts, sizes = np.array(start, np.int64), np.array(lengths, np.int64)
    return host.row_keys(
        _core.address(values), len(values), _core.address(starts), _core.address(sizes), len(start), out
    )


@given(st.lists(row, max_size=5), st.integers(0, 3))
def test_as_its_oracle(guarded: Any, rows: list[list[int]], gap: int) -> None:
    values = np.array([token for tokens in rows for token in [*tokens, *[7] * gap]], np.int64)
    lengths = [len(tokens) for tokens in rows]
    start = [sum(lengths[:i]) + gap * i for i in range(len(rows))]
    out, expected = guarded("uint64", len(rows)), np.empty(len(rows), np.uint64)
    assert keys_of(values, start, lengths, out.address) is None
    oracles.row_keys([np.array(tokens, np.int64) for tokens in rows], expected)
    assert np.array_equal(out.array, expected)
    assert out.intact()


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
def test_rows_outside_the_values(start: int, length: int) -> None:
    out = np.empty(2, np.uint64)
    failed = keys_of(np.arange(5), [0, start], [5, length], _core.address(out))
    assert failed is not None
    assert failed[1] == 1
