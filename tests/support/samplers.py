"""Samplers of transformers and quadrat's: what is given to both, and what is seen of each."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

# Ten times as many as elsewhere: a case is small.
MANY = settings(max_examples=10 * settings().max_examples)
# What the reference takes just as well, though it is no list of plain integers.
ODD = st.one_of(
    st.lists(st.floats(0, 9) | st.integers(0, 9), min_size=1, max_size=30),
    st.lists(st.booleans() | st.integers(0, 2), min_size=1, max_size=9),
    st.lists(st.integers(0, 2**70), min_size=1, max_size=30),
    st.lists(st.integers(0, 9).map(np.int16), min_size=1, max_size=30),
    st.lists(st.integers(0, 30_000).map(np.int16), min_size=1, max_size=30),  # costs overflow, and warn
    st.lists(st.integers(0, 2**40).map(np.int64), min_size=1, max_size=30),
    st.lists(st.integers(0, 9).map(torch.tensor), min_size=1, max_size=9),
    st.lists(st.integers(0, 9), max_size=30).map(tuple),
    st.lists(st.integers(0, 9), max_size=30).map(np.array),
    st.lists(st.integers(0, 9), max_size=30).map(lambda some: np.array(some, np.uint8)),
    st.lists(st.integers(0, 9), max_size=30).map(lambda some: np.repeat(np.array(some, np.int32), 2)[::2]),
    st.lists(st.integers(0, 9), max_size=30).map(torch.tensor),
    st.just([]),
    st.just(["a", "bb"]),
    st.just([[1], [2]]),
    st.just(range(7)),
)


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What a call returns, or the type and words of what it raises; and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result: tuple[Any, ...] = "returned", call(*arguments, **options)
        except Exception as error:
            result = "raised", type(error), str(error)
    return *result, {str(one.message) for one in warned}


def attributes(sampler: Any) -> dict[str, str]:
    return {name: repr(getattr(sampler, name)) for name in vars(sampler) if name != "generator"}
