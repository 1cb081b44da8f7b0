"""default_data_collator and DefaultDataCollator == those of the installed transformers."""

from types import SimpleNamespace

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_identical, both
from support.strategies import features

FRAMEWORKS = st.sampled_from(["pt", "np"])
BATCHES = features(equal=True) | features(equal=True, labels="label_ids") | features()


def assert_function_is_alike(batch, framework):
    assert_identical(
        lambda rows: transformers.default_data_collator(rows, framework),
        lambda rows: quadrat.default_data_collator(rows, framework),
        batch,
    )


@given(BATCHES, FRAMEWORKS)
def test_function(batch, framework):
    assert_function_is_alike(batch, framework)


@given(BATCHES, FRAMEWORKS, st.sampled_from([None, "pt", "np", "wrong"]))
def test_class(batch, framework, override):
    reference, collator = both("DefaultDataCollator", return_tensors=framework)
    assert_identical(lambda rows: reference(rows, override), lambda rows: collator(rows, override), batch)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float16", "bool"])
@pytest.mark.parametrize("name", ["score", "labels"])
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_numpy_numbers(dtype, name, framework):
    """torch takes some as they are, and refuses others."""
    rows = [{"input_ids": [1, 2], name: np.dtype(dtype).type(number)} for number in (0, 1)]
    for _ in range(2):
        assert_function_is_alike(rows, framework)


@given(features(equal=True), FRAMEWORKS)
def test_objects_with_attributes(batch, framework):
    assert_function_is_alike([SimpleNamespace(**dict(row.items())) for row in batch], framework)
