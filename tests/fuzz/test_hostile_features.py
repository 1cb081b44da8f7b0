"""Features whose objects lie, raise, or change others while they are read: the reference's outcome, whatever it is."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import samples
from support.compare import assert_same_outcome, seeded
from support.hostile_features import batches, changes_itself, make

pytestmark = pytest.mark.filterwarnings("ignore")  # what NumPy and torch say of such objects


def text_of(error: Exception) -> str:
    """What an error says, but for addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", str(error.args[0]) if error.args else "")


def left(features: Any, depth: int = 5) -> Any:
    """What is left in lists, tuples and dicts, without a look at objects of other kinds."""
    if depth == 0 or type(features) not in (list, tuple, dict):
        return repr(features) if type(features) in (int, float, str, type(None)) else type(features).__name__
    if type(features) is dict:
        return [(name, left(value, depth - 1)) for name, value in features.items()]
    return [left(value, depth - 1) for value in features]


@given(st.sampled_from(samples.BATCHES), batches(), st.booleans())
def test_as_the_reference(collators, batch, known):
    name, framework = collators
    reference, collator = samples.pair(name, return_tensors=framework)
    if known:
        for collate in (reference, collator):
            collate(samples.batch(name))
    for _ in range(2):
        theirs, ours = make(batch), make(batch)
        expected, expected_states = seeded(reference, theirs)
        got, states = seeded(collator, ours)
        if changes_itself(batch):
            continue
        assert_same_outcome(expected, got)
        assert states == expected_states
        if expected[0] == "raised":
            assert text_of(expected[1]) in text_of(got[1])
        if name != "DataCollatorForMultipleChoice":  # where transformers 4.x takes the labels out of the features
            assert left(ours) == left(theirs)
