"""Kernels and functions given nothing: an array or a tensor without elements may have no address.

That a null pointer is passed to memcpy or memset, which the language forbids even for no bytes, is found by `make
sanitize` alone; here and there the results are compared.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat import _core
from support.compiled import host

INT64 = _core.kinds.index("int64")
OFFSETS, STEPS = np.zeros(4, np.int64), np.arange(4)
EMPTY = _core.address(OFFSETS), 4  # three rows without a token
ONES = _core.address(STEPS), 4  # of one token each
MASK = np.ones((3, 1), np.uint8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: host.special_tokens(0, 0, (0, 0), 0),
        *(lambda offsets=offsets: host.word_starts(0, offsets, 0, 0, 0) for offsets in (False, True)),
        lambda: host.causal_labels(0, 0, 0, 0),
        lambda: host.position_ids(EMPTY, 0, 0, 0),
        lambda: host.seq_idx(EMPTY, EMPTY[0], 0, -1, False, 0, 0),
        lambda: host.separate_rows((0, 0), INT64, 0, 0, 0),
        lambda: _core.unpad(0, 0, False, EMPTY, 8, 0, 0),
        lambda: _core.unpad(0, 5, True, EMPTY, 0, 0, 0),
        lambda: _core.unpad(0, 5, False, ONES, 0, 0, 3),  # tokens of no bytes
        lambda: _core.unpad_masked(0, _core.address(MASK), 1, 0, ONES, 0),
        lambda: _core.unpad_masked(0, 0, 0, 8, EMPTY, 0),
        lambda: _core.take_tokens(0, 4, 0, ONES, 0),
        lambda: _core.put_tokens(0, 0, ONES, 0, 4),
        lambda: _core.mask_indices(0, 1, 0, (0, 0)),
        lambda: host.row_keys((0, 0), (0, 0), 0, 0),
        lambda: host.philox_mask((0, 0, 0.5, 0.8, 0.1, 1, 9), 0, 0, 0, 0, 0, 0, 0, 0),
        lambda: _core.permutation_mask(torch.Generator(), None, [5], [1], 3, 0, 0, 0, 0, 0, 0, 0),
        lambda: _core.permutation_mask(torch.Generator(), None, [5], [1], 3, 4, 0, 0, 0, 0, 0, 0),
        lambda: _core.permutation_mask(torch.Generator(), None, [5], [1], 3, 0, 4, 0, 0, 0, 0, 0),
    ],
)  # fmt: skip
def test_kernels_need_no_address_for_nothing(call):
    assert call() is None


SIZES = st.integers(0, 2)


def as_library(array, library):
    return torch.from_numpy(array) if library == "torch" else array


@given(rows=SIZES, width=SIZES, inner=st.lists(SIZES, max_size=2), library=st.sampled_from(["numpy", "torch"]))
def test_functions_of_arrays_without_elements(*, rows, width, inner, library):
    padded = np.arange(rows * width * int(np.prod(inner)), dtype=np.int64).reshape(rows, width, *inner)
    lengths = [width] * rows
    whole = padded.reshape(rows * width, *inner)
    for ragged in (
        quadrat.unpad(as_library(padded, library), lengths=lengths),
        quadrat.unpad(as_library(padded, library), mask=as_library(np.ones((rows, width), np.int64), library)),
    ):
        assert np.array_equal(np.asarray(ragged.values), whole)
        assert np.array_equal(np.asarray(ragged.to_padded(max_length=width)), padded)
    flat = quadrat.flatten([as_library(row, library) for row in padded]) if rows and not inner else None
    assert flat is None or np.array_equal(np.asarray(flat.values), whole)
    joined = quadrat.evaluation.concat_padded([as_library(padded, library)] * 3)
    assert np.array_equal(np.asarray(joined), np.concatenate([padded] * 3))
