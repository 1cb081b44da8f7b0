"""attention_mask, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.ingest import columns_of

KINDS = _core.kinds
FILLS = {"bool": False}
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 128, 257]), max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=LENGTHS, extra=st.integers(0, 70), side=st.sampled_from(["right", "left"]))
def test_masks_as_the_oracle(interops, guarded, kind, *, lengths, extra, side):
    width = max(lengths, default=0) + extra
    out, expected = guarded(kind, (len(lengths), width)), np.empty((len(lengths), width), kind)
    oracles.attention_mask(lengths, side, expected)
    columns = columns_of([[0] * length for length in lengths], interops["exchange"])
    assert columns.attention_mask(0, out.address, KINDS.index(kind), width, side == "left") is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()


@given(kind=st.sampled_from(KINDS), lengths=LENGTHS, left=st.booleans())
def test_counts_the_tokens_that_pad_writes(interops, guarded, *, kind, lengths, left):
    width = max(lengths, default=0) + 3
    columns = columns_of([np.ones(length, kind) for length in lengths], interops["exchange"])
    mask, padded = (guarded(kind, (len(lengths), width)) for _ in range(2))
    assert columns.attention_mask(0, mask.address, KINDS.index(kind), width, left) is None
    assert columns.pad(0, padded.address, KINDS.index(kind), width, left, FILLS.get(kind, 0)) is None
    assert mask.bytes.tobytes() == padded.bytes.tobytes()


@given(kind=st.sampled_from(KINDS), lengths=LENGTHS.filter(any), left=st.booleans(), data=st.data())
def test_refuses_a_width_below_a_row(interops, guarded, *, kind, lengths, left, data):
    width = data.draw(st.integers(0, max(lengths) - 1))
    out = guarded(kind, (len(lengths), width))
    first = next(row for row, length in enumerate(lengths) if length > width)
    columns = columns_of([[0] * length for length in lengths], interops["exchange"])
    assert columns.attention_mask(0, out.address, KINDS.index(kind), width, left) == (1, first, -1)
    written = out.array[:first]
    assert np.array_equal(written.sum(axis=1, dtype=int), lengths[:first])
    assert bool((out.array[first:].view(np.uint8) == 0xA5).all())
    assert out.intact()


@pytest.mark.parametrize("width", [-1, -(2**63)])
def test_refuses_a_negative_width(interops, guarded, width):
    out = guarded("int8", (1, 1))
    assert columns_of([[1]], interops["exchange"]).attention_mask(0, out.address, 1, width, False) == (7, -1, -1)
    assert out.untouched()


def test_knows_its_columns(interops, guarded):
    out = guarded("int8", (1, 1))
    with pytest.raises(IndexError):
        columns_of([[1]], interops["exchange"]).attention_mask(1, out.address, 1, 1, False)
    assert out.untouched()
