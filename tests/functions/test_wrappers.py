"""Collators around other ones: copies and pickles are of the wrapper, whatever methods the inner one has."""

import copy
import pickle

import pytest

from quadrat.support.wrappers import CollatorWrapper

pytestmark = pytest.mark.same_everywhere


class Inner:
    """A collator that copies and pickles itself in its own way."""

    name = "inner"

    def __deepcopy__(self, memo):
        return Inner()

    def __copy__(self):
        return Inner()

    def __getstate__(self):
        return {}

    def __getnewargs_ex__(self):
        return (), {}


class Wrapper(CollatorWrapper):
    def __init__(self, collator):
        self.collator = collator


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda wrapper: pickle.loads(pickle.dumps(wrapper))])
def test_copies(again):
    wrapper = again(Wrapper(Inner()))
    assert (type(wrapper), type(wrapper.collator), wrapper.name) == (Wrapper, Inner, "inner")
    with pytest.raises(AttributeError, match="_private"):
        _ = wrapper._private
