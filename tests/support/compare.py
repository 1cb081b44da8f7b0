"""Two collators on the same features: same outcome, to the bit."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def outcome(call: Callable[[Any], Any], features: Any) -> tuple[str, Any]:
    """("returned", batch) or ("raised", exception)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "returned", call(features)
        except Exception as error:
            return "raised", error


def assert_same_batch(expected: Any, got: Any) -> None:
    assert type(got) is type(expected)
    if not isinstance(expected, Mapping):
        assert frozen(got) == frozen(expected)
        return
    assert list(got.keys()) == list(expected.keys())
    for name, value in expected.items():
        assert_same_value(name, value, got[name])


def assert_same_value(name: str, expected: Any, got: Any) -> None:
    assert type(got) is type(expected), name
    if isinstance(expected, torch.Tensor):
        assert (got.dtype, got.shape, got.device) == (expected.dtype, expected.shape, expected.device), name
        assert got.is_contiguous() == expected.is_contiguous(), name
        assert got.requires_grad == expected.requires_grad, name
        expected, got = expected.detach().contiguous().numpy(), got.detach().contiguous().numpy()
    if isinstance(expected, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        if expected.dtype == object:
            assert frozen(got.tolist()) == frozen(expected.tolist()), name
        else:
            assert got.tobytes() == expected.tobytes(), name
    else:
        assert frozen(got) == frozen(expected), name


def generator_states() -> tuple[Any, ...]:
    numpy_state = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state[1].tolist(), numpy_state[2:]


def frozen(value: Any) -> Any:
    """A comparable picture of a feature: types, keys in order, numbers."""
    if isinstance(value, Mapping):
        return type(value), [(name, frozen(value[name])) for name in value.keys()]  # noqa: SIM118 - any Mapping
    if isinstance(value, (list, tuple)):
        return type(value), [frozen(item) for item in value]
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.shape, value.detach().contiguous().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.strides, value.tobytes()
    return type(value), repr(value)


def assert_identical(reference: Callable[[Any], Any], collator: Callable[[Any], Any], features: Any) -> None:
    """Same outputs or same error, for two calls in a row; generators and features left as the reference leaves them."""
    ours = copy.deepcopy(features)
    for _ in range(2):
        expected_kind, expected = outcome(reference, copy.deepcopy(features))
        after_reference = generator_states()
        before = frozen(ours)
        kind, got = outcome(collator, ours)
        assert generator_states() == after_reference
        assert frozen(ours) == before, "features were changed"
        assert kind == expected_kind, f"expected {expected!r}, got {got!r}"
        if kind == "raised":
            assert type(got) is type(expected), f"expected {expected!r}, got {got!r}"
        else:
            assert_same_batch(expected, got)
