"""default_data_collator and DefaultDataCollator == those of the installed transformers."""

from __future__ import annotations

from types import SimpleNamespace

import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_identical
from support.strategies import features

FRAMEWORKS = st.sampled_from(["pt", "np"])
BATCHES = features(equal=True) | features(equal=True, labels="label_ids") | features()


@given(BATCHES, FRAMEWORKS)
def test_function(batch, framework):
    assert_identical(
        lambda rows: transformers.default_data_collator(rows, framework),
        lambda rows: quadrat.default_data_collator(rows, framework),
        batch,
    )


@given(BATCHES, FRAMEWORKS, st.sampled_from([None, "pt", "np", "wrong"]))
def test_class(batch, framework, override):
    reference = transformers.DefaultDataCollator(return_tensors=framework)
    collator = quadrat.DefaultDataCollator(return_tensors=framework)
    assert_identical(lambda rows: reference(rows, override), lambda rows: collator(rows, override), batch)


@given(features(equal=True), FRAMEWORKS)
def test_objects_with_attributes(batch, framework):
    objects = [SimpleNamespace(**dict(row.items())) for row in batch]
    assert_identical(
        lambda rows: transformers.default_data_collator(rows, framework),
        lambda rows: quadrat.default_data_collator(rows, framework),
        objects,
    )
