"""Arrays in lists, tuples and mappings: taken apart, and put together again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.ops._pieces import Like, Pieces, bytes_of_padding, is_joinable, width_of
from quadrat.support.memory import is_tensor, recording

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
        if not (is_joinable(batch) or type(batch) in known) or (is_tensor(batch) and recording()):
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


def likeness(batch: Any) -> Any:
    """What is equal for batches that differ in their rows alone; None unless they are plain arrays.

    Or lists, tuples and dicts of plain arrays.
    """
    own = type(batch)
    if own in PLAIN:
        parts = batch.values() if own is dict else batch
        alike = tuple(map(likeness, parts))
        return None if None in alike else (own, tuple(batch) if own is dict else None, alike)
    if own is np.ndarray:
        plain = not batch.dtype.hasobject and batch.dtype.isnative
        return (own, batch.shape[1:], batch.dtype) if plain and batch.shape else None
    torch = sys.modules.get("torch")
    if torch is None or own is not torch.Tensor or batch.requires_grad or not batch.shape:
        return None
    plain = batch.layout is torch.strided and not (batch.is_nested or batch.is_quantized)
    return (own, batch.shape[1:], batch.dtype, batch.device) if plain else None


def joins(first: Any, other: Any, padding: Any) -> bool:
    """Whether `concatenated` joins batches of these likenesses: they are equal, or arrays that differ in width."""
    if first == other:
        return first is not None
    if first is None or other is None or first[0] is not other[0] or first[0] in PLAIN or first[2:] != other[2:]:
        return False
    one, two = first[1], other[1]
    alike = bool(one and two) and one[1:] == two[1:] and not recording()
    return alike and bytes_of_padding(first[2], padding) is not None


def concatenated(batches: Sequence[Any], padding: Any) -> Any:
    """Batches that can be joined as one batch; arrays get the width of the widest."""
    first = batches[0]
    own = type(first)
    if own is dict:
        return {key: concatenated([batch[key] for batch in batches], padding) for key in first}
    if own in PLAIN:
        return own(concatenated(parts, padding) for parts in zip(*batches, strict=True))
    if len({batch.shape[1:] for batch in batches}) > 1:
        widest = max(width_of(batch.shape) for batch in batches)
        return Pieces(Like(first, padding), list(batches), len(batches), widest, clones=False).joined()
    return np.concatenate(batches) if own is np.ndarray else sys.modules["torch"].cat(batches)


def cloned(batch: Any) -> Any:
    """A batch that has a likeness, in memory of its own."""
    own = type(batch)
    if own is dict:
        return {key: cloned(part) for key, part in batch.items()}
    if own in PLAIN:
        return own(map(cloned, batch))
    return batch.copy(order="K") if own is np.ndarray else batch.clone()


def bytes_in(batch: Any) -> int:
    """The size of a batch that has a likeness."""
    own = type(batch)
    if own in PLAIN:
        return sum(map(bytes_in, batch.values() if own is dict else batch))
    return int(batch.nbytes)
