"""special_tokens, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from support.compiled import host
from support.hostile import bit_set

SPECIAL = st.sets(st.integers(0, 200) | st.sampled_from([0, 63, 64, 127, 128]), max_size=20)
IDS = (
    st.integers(0, 260)
    | st.sampled_from([-1, -64, 2**31, 2**32, 2**32 + 3, 2**62, 2**63 - 1, -(2**63)])
    | st.integers(-(2**63), 2**63 - 1)
)


@given(st.lists(IDS, max_size=70), SPECIAL, st.integers(0, 2), st.data())
def test_tells_special_tokens_as_the_oracle(guarded, ids, special, spare, data):
    ids += data.draw(st.lists(st.sampled_from(sorted(special)), max_size=9)) if special else []
    bits = bit_set(special, max(special, default=-1) // 64 + 1 + spare)
    members, source, out = guarded("uint64", len(bits)), guarded("int64", len(ids)), guarded("uint8", len(ids))
    members.array[:] = bits
    source.array[:] = ids
    expected = np.empty(len(ids), np.uint8)
    oracles.special_tokens(source.array, special, expected)
    host.special_tokens(source.address, len(ids), members.address, len(bits), out.address)
    assert np.array_equal(out.array, expected)
    assert out.intact()
