"""causal_labels, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core

IDS = st.integers(-3, 6) | st.integers(-(2**63), 2**63 - 1)
PAD_IDS = st.integers(-101, -99) | IDS


@given(st.lists(IDS, max_size=70), PAD_IDS)
def test_labels_as_the_oracle(guarded, ids, pad_id):
    source, out, expected = guarded("int64", len(ids)), guarded("int64", len(ids)), np.empty(len(ids), np.int64)
    source.array[:] = ids
    oracles.causal_labels(source.array, pad_id, expected)
    _core.CausalLabels(pad_id).write(source.address, len(ids), out.address)
    assert np.array_equal(out.array, expected)
    assert source.array.tolist() == ids
    assert source.intact()
    assert out.intact()
