"""Features whose objects lie, raise, or change others while they are read: what they are, and how they are made.

A feature is described by plain data, so that the same can be made twice, for the reference and for quadrat.
"""

import array
import random
from collections import UserList, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from support.mappings import Wrapped

ERRORS = [ValueError, TypeError, IndexError, KeyError, AttributeError, StopIteration, RuntimeError, LookupError]


class Hostile(Exception):  # noqa: N818 - its name is what is looked for
    """What no library expects."""


class Description:
    """What a value, a mapping or a batch is made of: the name of its kind, numbers, and what it does."""

    def __init__(self, kind: str, values: Any, number: int, error: type[Exception]) -> None:
        self.kind, self.values, self.number, self.error = kind, values, number, error

    def __repr__(self) -> str:
        return f"{self.kind}({self.values!r}, {self.number}, {self.error.__name__})"


class Acting(int):
    """A number that acts when it is looked at as one."""

    act: Callable[[], Any]

    def __index__(self) -> int:
        self.act()
        return int.__int__(self)

    __int__ = __index__

    def __float__(self) -> float:
        self.act()
        return 1.0

    def __bool__(self) -> bool:
        self.act()
        return True


class Index:
    """No number, but something that says it can be one."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def __index__(self) -> int:
        self._act()
        return 3

    def __repr__(self) -> str:
        return "Index"


class LyingList(list):  # type: ignore[type-arg]
    """A list that says it has another length."""

    length = 0

    def __len__(self) -> int:
        return self.length


class Own(Sequence[Any]):
    """A sequence that raises where it is told to."""

    def __init__(self, values: Any, where: int, error: type[Exception], length: int) -> None:
        self._values, self._where, self._error, self._length = values, where, error, length

    def __len__(self) -> int:
        if self._where == 0:
            raise self._error("no length")
        return self._length

    def __getitem__(self, at: Any) -> Any:
        if self._where == 1:
            raise self._error("no item")
        return self._values[at]

    def __iter__(self) -> Iterator[Any]:
        if self._where == 2:
            raise self._error("no iterator")
        return iter(self._values)


class ArrayLike:
    """Says that it is an array, in one of the ways to say it, and is none."""

    def __init__(self, values: Any, where: int, error: type[Exception]) -> None:
        self._values, self._where, self._error = values, where, error

    def __getattr__(self, name: str) -> Any:
        ways = ("__array_interface__", "__array_struct__", "__array__", "__dlpack__", "__cuda_array_interface__")
        if name == ways[self._where % len(ways)]:
            raise self._error(name)
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self._values[at]


def raising(error: type[Exception]) -> Callable[[], Any]:
    def act() -> Any:
        raise error("hostile")

    return act


def _acting_list(values: list[Any], number: int, make: Callable[[list[Any]], Callable[[], Any]]) -> list[Any]:
    items = list(values)
    actor = Acting(3)
    items.insert(number % (len(items) + 1), actor)
    actor.act = make(items)
    return items


def _with(values: list[Any], number: int, odd: Any) -> list[Any]:
    items = list(values)
    items.insert(number % (len(items) + 1), odd)
    return items


def _lying(values: list[Any], number: int) -> list[Any]:
    items = LyingList(values)
    items.length = abs(number) % 50  # the reference would pad the others to it
    return items


def _itself(values: list[Any]) -> list[Any]:
    items: list[Any] = list(values)
    items.append(items)
    return items


def _generator(values: list[Any], error: type[Exception]) -> Iterator[Any]:
    yield from values
    raise error("no more")


def _view(values: list[Any], number: int) -> Any:
    wide = np.repeat(np.array(values, np.int64), 3)
    return (wide[::3], wide[::3][::-1], wide.astype(">i8")[::3], wide.reshape(-1, 3), wide[:0].reshape(0, 3))[
        number % 5
    ]


def _tensor(values: list[Any], number: int) -> Any:
    tensor = torch.tensor(values, dtype=torch.int64)
    kinds: list[Callable[[], Any]] = [
        lambda: tensor.float().requires_grad_(), tensor.to_sparse, lambda: tensor.to("meta"),
        lambda: tensor.to(torch.bfloat16), lambda: tensor.to(torch.complex64).conj(), lambda: tensor[None],
        lambda: tensor.expand(2, -1)[1], lambda: torch._neg_view(tensor), lambda: torch.nn.Parameter(tensor.float()),
        lambda: tensor.as_subclass(_Subclass),
    ]  # fmt: skip
    return kinds[number % len(kinds)]()


class _Subclass(torch.Tensor):
    pass


def _objects(values: list[Any], odd: Any) -> Any:
    objects = np.empty(len(values) + 1, object)
    objects[:] = [*values, odd]
    return objects


VALUES: dict[str, Callable[[list[Any], int, type[Exception]], Any]] = {
    "list": lambda values, number, error: list(values),
    "tuple": lambda values, number, error: tuple(values),
    "lying list": lambda values, number, error: _lying(values, number),
    "own": lambda values, number, error: Own(values, abs(number) % 4, error, len(values)),
    "lying own": lambda values, number, error: Own(values, 3, error, number % 50),
    "array-like": lambda values, number, error: ArrayLike(values, abs(number), error),
    "raising number": lambda values, number, error: _acting_list(values, number, lambda items: raising(error)),
    "clears": lambda values, number, error: _acting_list(values, number, lambda items: items.clear),
    "grows": lambda values, number, error: _acting_list(
        values, number, lambda items: lambda: items.append(7) if len(items) < 40 else None
    ),
    "shrinks": lambda values, number, error: _acting_list(values, number, lambda items: lambda: items.__delitem__(0)),
    "index": lambda values, number, error: _with(values, number, Index(lambda: 3)),
    "raising index": lambda values, number, error: _with(values, number, Index(raising(error))),
    "huge": lambda values, number, error: _with(values, number, 2**70),
    "nan": lambda values, number, error: _with(values, number, float("nan")),
    "none": lambda values, number, error: _with(values, number, None),
    "text": lambda values, number, error: _with(values, number, "w3"),
    "true": lambda values, number, error: _with(values, number, True),
    "scalar": lambda values, number, error: _with(values, number, np.int16(number % 99)),
    "nested": lambda values, number, error: [list(values), list(values)],
    "ragged": lambda values, number, error: [list(values), []],
    "tensors": lambda values, number, error: [torch.tensor(value) for value in values],
    "itself": lambda values, number, error: _itself(values),
    "iterator": lambda values, number, error: iter(values),
    "generator": lambda values, number, error: _generator(values, error),
    "mapping": lambda values, number, error: dict(enumerate(values)),
    "set": lambda values, number, error: set(values),
    "string": lambda values, number, error: "w" * len(values),
    "bytes": lambda values, number, error: bytes(value % 256 for value in values),
    "view": lambda values, number, error: _view(values, abs(number)),
    "tensor": lambda values, number, error: _tensor(values, abs(number)),
    "buffer": lambda values, number, error: memoryview(array.array("q", values)),
    "array.array": lambda values, number, error: array.array("q", values),
    "deque": lambda values, number, error: deque(values),
    "user list": lambda values, number, error: UserList(values),
    "range": lambda values, number, error: range(number % 9),
    "objects": lambda values, number, error: _objects(values, Index(raising(error))),
    "structured": lambda values, number, error: np.zeros(len(values), "i4,f4"),
    "masked": lambda values, number, error: np.ma.masked_equal(np.array(values, np.int64), 5),
    "number": lambda values, number, error: number,
    "nothing": lambda values, number, error: None,
    "class": lambda values, number, error: list,
}


class Liar(Wrapped):
    """A mapping that raises, says it has more, or less, or draws a number at each look."""

    def __init__(self, held: Any, where: int, error: type[Exception]) -> None:
        super().__init__(held)
        self._where, self._error = where, error

    def __getitem__(self, name: str) -> Any:
        if self._where == 0:
            raise self._error(name)
        if self._where == 1:
            random.random()
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        if self._where == 2:
            raise self._error("no iterator")
        return iter([*self.held, "more"] if self._where == 3 else self.held)

    def __len__(self) -> int:
        return len(self.held) + (self._where == 4)

    def __contains__(self, name: object) -> bool:
        if self._where == 5:
            raise self._error("no membership")
        return self._where != 6 and name in self.held


class Emptying(Wrapped):
    """A mapping that changes the whole batch at a look."""

    batch: list[Any]
    number = 0

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        what = self.number % 3
        if what == 0:
            self.batch.clear()
        elif what == 1 and 0 < len(self.batch) < 9:
            self.batch.append(self.batch[0])
        elif isinstance(value, list):
            value.clear()
        return value


def make(batch: Description) -> Any:
    """New features of a description."""
    rows: list[Any] = []
    for row in batch.values:
        held = {name: VALUES[value.kind](value.values, value.number, value.error) for name, value in row.values.items()}
        if row.kind == "liar":
            rows.append(Liar(held, abs(row.number) % 7, row.error))
        elif row.kind == "emptying":
            rows.append(Emptying(held))
            rows[-1].batch, rows[-1].number = rows, abs(row.number)
        elif row.kind == "bare":
            rows.append(held["input_ids"])
        else:
            rows.append({"dict": dict, "Mapping": Wrapped}[row.kind](held))
    containers: dict[str, Callable[[], Any]] = {
        "list": lambda: rows,
        "tuple": lambda: tuple(rows),
        "lying": lambda: _lying(rows, batch.number),
        "own": lambda: Own(rows, abs(batch.number) % 4, batch.error, len(rows)),
        "generator": lambda: _generator(rows, batch.error),
        "objects": lambda: _objects(rows, None),
    }
    return containers[batch.kind]()


def changes_itself(batch: Description) -> bool:
    """Whether a value changes when its numbers are read.

    A column that is converted, refused and then left to the reference is read twice, so that such a value may become
    something else than by the reference alone.
    """
    return any(value.kind in ("clears", "grows", "shrinks") for row in batch.values for value in row.values.values())


_NUMBERS = st.integers(-3, 40) | st.sampled_from([2**31, 2**62, -(2**63)])
_RAISED = st.sampled_from([Hostile, *ERRORS])
_COLUMNS = ("input_ids", "attention_mask", "labels", "label", "extra")


@st.composite
def batches(draw: Any) -> Description:
    """Batches that are mostly usual, with a few hostile objects in them."""
    count, length = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    equal = draw(st.integers(0, 3)) > 0
    names = [name for name in _COLUMNS if name == "input_ids" or draw(st.integers(0, 2)) == 0]
    rows = []
    for _ in range(count):
        size = length if equal else draw(st.integers(0, length))
        row = {}
        for name in names:
            values = draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
            usual = "number" if name == "label" else "list"
            kind = draw(st.sampled_from(sorted(VALUES))) if draw(st.integers(0, 5)) == 0 else usual
            number = draw(st.integers(0, 9)) if kind == usual else draw(_NUMBERS)
            row[name] = Description(kind, values, number, draw(_RAISED) if kind != usual else Hostile)
        kind = draw(st.sampled_from(["dict"] * 9 + ["Mapping", "bare", "liar", "emptying"]))
        rows.append(Description(kind, row, draw(_NUMBERS), draw(_RAISED)))
    kind = draw(st.sampled_from(["list"] * 9 + ["tuple", "lying", "own", "generator", "objects"]))
    return Description(kind, rows, draw(st.integers(0, 6)), draw(_RAISED))


@st.composite
def rows_of_values(draw: Any) -> list[Description]:
    """Rows without names around them, some of them hostile."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        values = draw(st.lists(st.integers(0, 30), max_size=9))
        kind = draw(st.sampled_from(sorted(VALUES))) if draw(st.integers(0, 1)) == 0 else "list"
        rows.append(Description(kind, values, draw(_NUMBERS), draw(_RAISED)))
    return rows
