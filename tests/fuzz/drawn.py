"""What the property tests use of hypothesis, drawn from bytes: fast, and an input can be repeated.

`install` puts it in the place of hypothesis, before the tests are imported. A byte string says everything about an
input: where it ends, everything drawn is the simplest there is. So any change to the bytes gives another input, a
shorter string a simpler one.
"""

from __future__ import annotations

import enum
import importlib.machinery
import inspect
import math
import random
import struct
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

_TRIES = 30  # of a filter, before the input counts as none


class Invalid(Exception):  # noqa: N818 - no error: the bytes say nothing that the test takes
    """The bytes give no input."""


class Source:
    """Bytes, read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        if limit <= 1:
            return 0
        size = 1 if limit <= 256 else (limit.bit_length() + 7) // 8
        taken = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(taken, "little") % limit

    def draw(self, strategy: Strategy, label: Any = None) -> Any:
        """One of the strategy's values."""
        return strategy.drawn(self)


class Strategy:
    """Values, by a function that draws one."""

    def __init__(self, drawn: Callable[[Source], Any]) -> None:
        self.drawn = drawn

    def __or__(self, other: Strategy) -> Strategy:
        return one_of(self, other)

    def map(self, change: Callable[[Any], Any]) -> Strategy:
        return Strategy(lambda source: change(self.drawn(source)))

    def flatmap(self, then: Callable[[Any], Strategy]) -> Strategy:
        return Strategy(lambda source: then(self.drawn(source)).drawn(source))

    def filter(self, holds: Callable[[Any], Any]) -> Strategy:
        def drawn(source: Source) -> Any:
            for _ in range(_TRIES):
                value = self.drawn(source)
                if holds(value):
                    return value
            raise Invalid

        return Strategy(drawn)


class _OneOf(Strategy):
    def __init__(self, parts: list[Strategy]) -> None:
        self.parts = [one for part in parts for one in (part.parts if isinstance(part, _OneOf) else [part])]
        super().__init__(lambda source: self.parts[source.below(len(self.parts))].drawn(source))


def one_of(*parts: Any) -> Strategy:
    return _OneOf(list(parts[0] if len(parts) == 1 and not isinstance(parts[0], Strategy) else parts))


def just(value: Any) -> Strategy:
    return Strategy(lambda source: value)


def none() -> Strategy:
    return just(None)


def sampled_from(values: Any) -> Strategy:
    some = list(values) if isinstance(values, (type, enum.EnumMeta)) else values
    some = some if isinstance(some, Sequence) else list(some)
    return Strategy(lambda source: some[source.below(len(some))])


def booleans() -> Strategy:
    return Strategy(lambda source: source.below(2) == 1)


def integers(min_value: int | None = None, max_value: int | None = None) -> Strategy:
    """Small ones and those at the ends more often, where there are many."""
    if min_value is not None and max_value is not None and max_value - min_value < 2**16:
        count = max_value - min_value + 1
        return Strategy(lambda source: min_value + source.below(count))
    least = -(2**70) if min_value is None else min_value
    most = 2**70 if max_value is None else max_value
    middle = min(max(0, least), most)

    def drawn(source: Source) -> int:
        kind = source.below(16)
        if kind >= 14:
            return most - source.below(3) if kind == 14 else least + source.below(3)
        if kind >= 12:
            return least + source.below(most - least + 1)
        size = source.below(1 << (4, 8, 12, 16, 33, 65)[kind // 2])
        return min(max(middle - size if kind % 2 else middle + size, least), most)

    return Strategy(drawn)


_FLOATS = [0.0, 1.0, -1.0, 0.5, -0.0, 0.1, 1 / 3, 255.0, 2.0**24 + 1, 2.0**53, 1e30, -1e300, 5e-324, 65504.0, 1e-40]


def floats(
    min_value: float | None = None,
    max_value: float | None = None,
    *,
    allow_nan: bool | None = None,
    allow_infinity: bool | None = None,
    width: int = 64,
) -> Strategy:
    bounded = min_value is not None and max_value is not None
    nan = allow_nan if allow_nan is not None else min_value is None and max_value is None
    infinity = allow_infinity if allow_infinity is not None else not bounded
    least, most = -math.inf if min_value is None else min_value, math.inf if max_value is None else max_value
    rounded = {16: np.float16, 32: np.float32, 64: np.float64}[width]

    def value(source: Source) -> float:
        kind = source.below(8)
        if kind == 7 and (nan or infinity):
            return (math.nan, math.inf, -math.inf)[source.below(3)]
        if bounded and kind > 1:
            return float(least + (most - least) * source.below(1 + 2**16) / 2**16)
        if kind < 4:
            return _FLOATS[source.below(len(_FLOATS))]
        if kind < 6:
            return source.below(2**20) / 64 * (-1) ** kind
        return float(struct.unpack("<d", source.below(2**64).to_bytes(8, "little"))[0])

    def drawn(source: Source) -> float:
        for _ in range(_TRIES):
            with np.errstate(all="ignore"):
                made = float(rounded(value(source)))
            if (math.isnan(made) and nan) or (math.isinf(made) and infinity and least <= made <= most):
                return made
            if math.isfinite(made) and least <= made <= most:
                return made
        raise Invalid

    return Strategy(drawn)


def _size(source: Source, least: int, most: int | None) -> int:
    """A size, more often a small one where there is room for many."""
    room = 40 if most is None else most - least
    if room > 10 and source.below(4):
        room = 7
    return least + source.below(room + 1)


def lists(
    elements: Strategy, *, min_size: int = 0, max_size: int | None = None, unique: bool = False, unique_by: Any = None
) -> Strategy:
    key = unique_by or (lambda value: value)

    def drawn(source: Source) -> list[Any]:
        count = _size(source, min_size, max_size)
        if not (unique or unique_by):
            return [elements.drawn(source) for _ in range(count)]
        made: dict[Any, Any] = {}
        for _ in range(_TRIES + count):
            if len(made) >= count:
                break
            value = elements.drawn(source)
            made.setdefault(key(value), value)
        if len(made) < min_size:
            raise Invalid
        return list(made.values())

    return Strategy(drawn)


def sets(elements: Strategy, *, min_size: int = 0, max_size: int | None = None) -> Strategy:
    return lists(elements, min_size=min_size, max_size=max_size, unique=True).map(set)


def dictionaries(keys: Strategy, values: Strategy, *, min_size: int = 0, max_size: int | None = None) -> Strategy:
    pairs = lists(tuples(keys, values), min_size=min_size, max_size=max_size, unique_by=lambda pair: pair[0])
    return pairs.map(dict)


def tuples(*parts: Strategy) -> Strategy:
    return Strategy(lambda source: tuple(part.drawn(source) for part in parts))


def fixed_dictionaries(mapping: dict[Any, Strategy], *, optional: dict[Any, Strategy] | None = None) -> Strategy:
    def drawn(source: Source) -> dict[Any, Any]:
        made = {name: part.drawn(source) for name, part in mapping.items()}
        return made | {name: part.drawn(source) for name, part in (optional or {}).items() if source.below(2)}

    return Strategy(drawn)


def permutations(values: Iterable[Any]) -> Strategy:
    some = list(values)

    def drawn(source: Source) -> list[Any]:
        left = list(some)
        return [left.pop(source.below(len(left))) for _ in some]

    return Strategy(drawn)


def builds(target: Callable[..., Any], *arguments: Strategy, **named: Strategy) -> Strategy:
    return Strategy(
        lambda source: target(
            *(part.drawn(source) for part in arguments), **{name: part.drawn(source) for name, part in named.items()}
        )
    )


def text(*, min_size: int = 0, max_size: int | None = None) -> Strategy:
    letters = sampled_from("abz _-.\n\t\x00\x1b[é\u4e2d\u202e\U0001f600")
    return lists(letters, min_size=min_size, max_size=max_size).map("".join)


def binary(*, min_size: int = 0, max_size: int | None = None) -> Strategy:
    return lists(integers(0, 255), min_size=min_size, max_size=max_size).map(bytes)


def recursive(base: Strategy, extend: Callable[[Strategy], Strategy], *, max_leaves: int = 8) -> Strategy:
    levels = [base]
    for _ in range(3):
        levels.append(one_of(base, extend(levels[-1])))
    return Strategy(lambda source: levels[source.below(len(levels))].drawn(source))


def randoms(*, use_true_random: bool = True, note_method_calls: bool = False) -> Strategy:
    return Strategy(lambda source: random.Random(source.below(2**32)))


def data() -> Strategy:
    return Strategy(lambda source: source)


def composite(function: Callable[..., Any]) -> Callable[..., Strategy]:
    return lambda *arguments, **named: Strategy(lambda source: function(source.draw, *arguments, **named))


def given(*strategies: Strategy, **named: Strategy) -> Callable[[Any], Any]:
    """Note what a test is given; the test itself stays as it is."""

    def decorate(test: Any) -> Any:
        names = list(inspect.signature(test).parameters)
        test.given = dict(zip(names[len(names) - len(strategies) :], strategies, strict=True)) | named
        return test

    return decorate


class Settings:
    """Of no effect."""

    def __init__(self, *_: Any, **options: Any) -> None:
        self.max_examples = options.get("max_examples", 100)

    def __call__(self, test: Any) -> Any:
        return test


def example(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda test: test


def assume(condition: Any) -> bool:
    if not condition:
        raise Invalid
    return True


def install() -> None:
    """Tests that are imported from now on take this for hypothesis."""
    module, strategies = types.ModuleType("hypothesis"), types.ModuleType("hypothesis.strategies")
    for name, value in globals().items():
        if inspect.isfunction(value) and value.__module__ == __name__:
            setattr(module if name in ("given", "example", "assume") else strategies, name, value)
    strategies.SearchStrategy = strategies.DrawFn = Strategy  # type: ignore[attr-defined]
    Strategy.__class_getitem__ = classmethod(lambda cls, _: cls)  # type: ignore[attr-defined]
    module.strategies, module.settings = strategies, Settings  # type: ignore[attr-defined]
    for one in (module, strategies):
        one.__spec__ = importlib.machinery.ModuleSpec(one.__name__, None)  # which other libraries look for
        sys.modules[one.__name__] = one
