"""Two collators on the same features: same outcome, to the bit."""

import contextlib
import copy
import functools
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from quadrat.support.differences import bytes_seen, first_difference, has_numbers, text_of


def outcome(call: Callable[[Any], Any], features: Any) -> tuple[str, Any]:
    """("returned", batch) or ("raised", exception)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "returned", call(features)
        except Exception as error:
            return "raised", error


def assert_same_batch(expected: Any, got: Any, name: str = "batch") -> None:
    difference = first_difference(expected, got, name, skips=False)
    assert difference is None, difference


def assert_close(result: Any, expected: Any) -> None:
    """The same structure, types and shapes, and numbers that are equal to rounding."""
    assert type(result) is type(expected)
    if isinstance(expected, dict):
        assert list(result) == list(expected)
        assert_close(list(result.values()), list(expected.values()))
    elif isinstance(expected, list):
        assert len(result) == len(expected)
        for value, other in zip(result, expected, strict=True):
            assert_close(value, other)
    elif isinstance(expected, (float, np.floating, np.ndarray, torch.Tensor)):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    else:
        assert result == expected


def assert_same_outcome(expected: tuple[str, Any], got: tuple[str, Any]) -> None:
    """Two of `outcome`: the same batch, or errors of one type."""
    assert got[0] == expected[0], f"expected {expected[1]!r}, got {got[1]!r}"
    if expected[0] == "raised":
        assert type(got[1]) is type(expected[1]), f"expected {expected[1]!r}, got {got[1]!r}"
    else:
        assert_same_batch(expected[1], got[1])


def check_error(expected: Exception | None, got: tuple[str, Any], parts: list[str]) -> str:
    """Returns quadrat's line. expected: the reference's error, None where it makes no such batches. got: an outcome."""
    kind, error = got
    assert kind == "raised", f"expected {expected!r}"
    message = str(error.args[0])
    if expected is not None:
        assert type(error) is type(expected), f"expected {expected!r}, got {error!r}"
        assert str(expected.args[0] if expected.args else expected) in message
    assert message.count("quadrat: ") == 1, message
    line = message.partition("quadrat: ")[2]
    missing = [words for words in parts if words not in line]
    assert not missing, f"{missing} not in: {line}"
    assert error.__cause__ is not None
    return line


def both(name: str, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """(the reference's collator, quadrat's)."""
    return getattr(transformers, name)(*arguments, **options), getattr(quadrat, name)(*arguments, **options)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What torch makes of floats, meanwhile."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    random.gauss(0, 1)  # the second half of a pair is kept


def generator_states() -> tuple[Any, ...]:
    numpy_state = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy_state[1].tobytes(), numpy_state[2:]


def state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return None if generator is None else generator.bit_generator.state


def own_state(collator: Any) -> Any:
    """A comparable picture of the state of a collator's own generator."""
    return frozen(state_of(getattr(getattr(collator, "func", collator), "generator", None)))


def seeded(call: Callable[[Any], Any], features: Any, seed: int = 5) -> tuple[tuple[str, Any], Any]:
    """An outcome from generators of this seed, and their states afterwards."""
    seed_everything(seed)
    return outcome(call, features), generator_states()


def assert_seeded_alike(reference: Any, collator: Any, theirs: Any, ours: Any) -> None:
    """The same outcomes, and the same states of the generators afterwards."""
    (expected, expected_states), (got, states) = seeded(reference, theirs), seeded(collator, ours)
    assert_same_outcome(expected, got)
    assert states == expected_states


def frozen(value: Any, *, strides: bool = True) -> Any:
    """A comparable picture of a feature: types, keys in order, numbers; and strides, which a view may have."""
    inner = functools.partial(frozen, strides=strides)
    if isinstance(value, Mapping):
        return type(value), [(name, inner(value[name])) for name in value.keys()]  # noqa: SIM118 - any Mapping
    if isinstance(value, (list, tuple)):
        return type(value), [inner(item) for item in value]
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.shape, bytes_seen(value).tobytes()
    if isinstance(value, np.ndarray):
        numbers = bytes_seen(value).tobytes() if has_numbers(value) else inner(value.tolist())
        return "array", value.dtype, value.shape, value.strides if strides else None, numbers
    return type(value), text_of(value)


picture = functools.partial(frozen, strides=False)


def assert_identical(
    reference: Callable[[Any], Any],
    collator: Callable[[Any], Any],
    features: Any,
    *,
    given: Any = None,
    calls: int = 2,
    seed: int = 5,
    same: Callable[[tuple[str, Any], tuple[str, Any]], None] = assert_same_outcome,
) -> None:
    """The same outcomes, call after call, and the same states of every generator after each; features left alone.

    given: the features of `collator` in another form, not looked at here.
    """
    ours = copy.deepcopy(features) if given is None else given
    before = frozen(ours) if given is None else None
    seed_everything(seed)
    for _ in range(calls):
        start = torch.get_rng_state(), np.random.get_state(), random.getstate()
        expected = outcome(reference, copy.deepcopy(features))
        after = generator_states()
        torch.set_rng_state(start[0]), np.random.set_state(start[1]), random.setstate(start[2])
        got = outcome(collator, ours)
        assert generator_states() == after
        assert own_state(collator) == own_state(reference)
        assert given is not None or frozen(ours) == before, "features were changed"
        same(expected, got)
