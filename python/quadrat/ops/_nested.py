"""Arrays in lists, tuples and mappings: taken apart, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


class Unusual(Exception):  # noqa: N818 - not raised to users
    """A batch does not consist of plain arrays in known containers."""


def tree_flatten(batch: Any, known: frozenset[type] = PLAIN) -> tuple[list[Any], Nested | None]:
    """The leaves of a batch, in order: arrays and objects of known types; and its structure.

    Raises:
        Unusual: where it holds something else, or a container of an unknown type.
    """
    if not isinstance(batch, (list, tuple, Mapping)):
        if not (is_joinable(batch) or type(batch) in known):
            raise Unusual
        return [batch], None
    if type(batch) not in known:
        raise Unusual
    keys = list(batch) if isinstance(batch, Mapping) else None
    found = [tree_flatten(part, known) for part in (batch if keys is None else [batch[key] for key in keys])]
    return [leaf for leaves, _ in found for leaf in leaves], Nested(type(batch), keys, [child for _, child in found])


def tree_unflatten(structure: Nested | None, leaves: Iterable[Any]) -> Any:
    """A batch of this structure."""
    rest = iter(leaves)
    if structure is None:
        return next(rest)
    parts = [tree_unflatten(child, rest) for child in structure.children]
    make: Any = structure.type
    return make(parts) if structure.keys is None else make(dict(zip(structure.keys, parts, strict=True)))


def leaves_like(structure: Nested | None, batch: Any) -> list[Any] | None:
    """What a batch holds in the places of a structure's arrays, and nothing else; None where a place is missing."""
    if structure is None:
        return [batch]
    if type(batch) is not structure.type:
        return None
    parts: Any = batch
    if structure.keys is not None:
        if not all(key in parts for key in structure.keys):
            return None
        parts = [parts[key] for key in structure.keys]
    if len(parts) < len(structure.children):
        return None
    leaves: list[Any] = []
    for child, part in zip(structure.children, parts, strict=False):
        inner = leaves_like(child, part)
        if inner is None:
            return None
        leaves += inner
    return leaves


def tree_map(function: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """The structure of a batch, with what a function makes of each leaf, and of those of others in its place."""
    make: Any = type(batch)
    if isinstance(batch, (list, tuple)):
        return make(tree_map(function, *parts) for parts in zip(batch, *others, strict=False))
    if isinstance(batch, Mapping):
        return make({key: tree_map(function, part, *(other[key] for other in others)) for key, part in batch.items()})
    return function(batch, *others)


def _parts(batch: Any) -> Iterable[Any] | None:
    """What a list, tuple or mapping holds; None for all else."""
    if isinstance(batch, Mapping):
        return batch.values()
    return batch if isinstance(batch, (list, tuple)) else None


def types_of(batch: Any) -> frozenset[type]:
    """The types of the containers in a batch."""
    parts = _parts(batch)
    return frozenset() if parts is None else frozenset({type(batch)}).union(*map(types_of, parts))


def arrays_in(batch: Any) -> list[Any]:
    """The arrays and tensors of a batch, in order; what else it holds is left out."""
    parts = _parts(batch)
    if parts is None:
        return [batch] if is_array(batch) else []
    return [array for part in parts for array in arrays_in(part)]


def is_array(value: Any) -> bool:
    """Whether this is a NumPy array or a tensor."""
    return is_tensor(value) or isinstance(value, np.ndarray)
