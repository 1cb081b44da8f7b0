"""philox_order, compiled, against its oracle, and what an order must be."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core

SEEDS, EPOCHS = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


@given(SEEDS, EPOCHS, EPOCHS, st.integers(0, 300))
def test_as_the_oracle(guarded, seed, epoch, stream, rows):
    out = guarded("int64", rows)
    assert _core.philox_order(seed, epoch, stream, out.array)
    assert out.array.tolist() == oracles.philox_order(seed, epoch, stream, rows)
    assert sorted(out.array.tolist()) == list(range(rows))
    assert out.intact()


def order_of(seed, epoch, stream, rows=5):
    out = np.empty(rows, np.int64)
    assert _core.philox_order(seed, epoch, stream, out)
    return tuple(out.tolist())


def test_all_orders_are_as_frequent():
    """Of 24 orders of four rows, each comes 1,000 times in 24,000, give or take five standard deviations."""
    orders = [order_of(3, epoch, 0, 4) for epoch in range(24000)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 5 * 1000**0.5


def test_another_seed_epoch_or_stream_is_another_order():
    orders = {order_of(*key, rows=60) for key in [(0, 0, 0), (1, 0, 0), (2**32, 0, 0), (0, 1, 0), (0, 0, 1)]}
    assert len(orders) == 5


def test_too_many_rows(tmp_path):
    rows = np.memmap(tmp_path / "rows", np.int64, "w+", shape=2**32)  # takes no room on the disk
    assert not _core.philox_order(0, 0, 0, rows)
