"""Arrays in lists, tuples and mappings: what such a batch is made of, and how its like is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from quadrat.ops._pieces import is_joinable
from quadrat.support.memory import is_tensor

PLAIN: frozenset[type] = frozenset({list, tuple, dict})


class Nested(NamedTuple):
    """A list, tuple or mapping. In place of an array there is None."""

    type: type
    keys: list[Any] | None
    children: list[Nested | None]


class Unusual(Exception):  # noqa: N818 - says what is, and is not raised to users
    """A batch is not made of plain arrays in known containers."""


def opened(batch: Any, arrays: list[Any], known: frozenset[type] = PLAIN) -> Nested | None:
    """The structure of a batch; its arrays, and what else is known, go to `arrays`, in order.

    Raises:
        Unusual: where it holds something else than plain arrays, or a container whose type is not known.
    """
    if isinstance(batch, (list, tuple, Mapping)):
        if type(batch) not in known:
            raise Unusual
        keys = list(batch) if isinstance(batch, Mapping) else None
        parts = batch if keys is None else [batch[key] for key in keys]
        return Nested(type(batch), keys, [opened(part, arrays, known) for part in parts])
    if not (is_joinable(batch) or type(batch) in known):
        raise Unusual
    arrays.append(batch)
    return None


def matches(structure: Nested | None, batch: Any, parts: list[Any]) -> bool:
    """Whether a batch has all of this structure. What stands for the arrays goes to `parts`; more is left out."""
    if structure is None:
        parts.append(batch)
        return True
    if type(batch) is not structure.type:
        return False
    container: Any = batch
    if structure.keys is None:
        if len(container) < len(structure.children):
            return False
        inner = list(container)
    elif all(key in container for key in structure.keys):
        inner = [container[key] for key in structure.keys]
    else:
        return False
    return all(matches(child, part, parts) for child, part in zip(structure.children, inner, strict=False))


def made(structure: Nested | None, arrays: Iterator[Any]) -> Any:
    """A batch of this structure."""
    if structure is None:
        return next(arrays)
    parts = [made(child, arrays) for child in structure.children]
    make: Any = structure.type
    return make(parts) if structure.keys is None else make(dict(zip(structure.keys, parts, strict=True)))


def types_of(batch: Any) -> frozenset[type]:
    """Those of the containers of a batch."""
    if not isinstance(batch, (list, tuple, Mapping)):
        return frozenset()
    parts = batch.values() if isinstance(batch, Mapping) else batch
    return frozenset({type(batch)}).union(*map(types_of, parts))


def arrays_in(batch: Any) -> list[Any]:
    """The arrays and tensors of a batch, in order; what else it holds is left out."""
    if isinstance(batch, (list, tuple, Mapping)):
        parts = batch.values() if isinstance(batch, Mapping) else batch
        return [array for part in parts for array in arrays_in(part)]
    return [batch] if is_array(batch) else []


def is_array(value: Any) -> bool:
    """Whether this is a NumPy array or a tensor."""
    return is_tensor(value) or isinstance(value, np.ndarray)
