"""Arrays in lists, tuples and mappings, and whether batches of them differ in their rows alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from quadrat.support.tensors import is_tensor, recording


def tree_map(function: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """The structure of a batch, with what a function makes of each leaf, and of those of others in its place."""
    make: Any = type(batch)
    if isinstance(batch, (list, tuple)):
        return make(tree_map(function, *parts) for parts in zip(batch, *others, strict=False))
    if isinstance(batch, Mapping):
        return make({key: tree_map(function, part, *(other[key] for other in others)) for key, part in batch.items()})
    return function(batch, *others)


def leaves_of(batch: Any) -> Iterator[Any]:
    if isinstance(batch, (list, tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves_of(part)
    else:
        yield batch


def leaves_like(model: Any, batch: Any) -> list[Any] | None:
    """A batch's values in the places of a model's leaves, and nothing else; None where a place is missing."""
    if not isinstance(model, (list, tuple, Mapping)):
        return [batch]
    if type(batch) is not type(model) or len(batch) < len(model):
        return None
    parts: Iterable[Any] = batch
    if isinstance(model, Mapping):
        if not all(key in batch for key in model):
            return None
        model, parts = model.values(), [batch[key] for key in model]
    found = list(map(leaves_like, model, parts))
    return None if any(leaves is None for leaves in found) else [leaf for leaves in found for leaf in leaves or []]


def types_of(batch: Any) -> set[type]:
    if not isinstance(batch, (list, tuple, Mapping)):
        return set()
    return {type(batch)}.union(*map(types_of, batch.values() if isinstance(batch, Mapping) else batch))


def is_array(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, np.ndarray)


def likeness(batch: Any) -> Any:
    """A key, equal for batches that differ in their rows alone; None unless they are plain arrays in containers."""
    own = type(batch)
    if own is np.ndarray:
        plain = not batch.dtype.hasobject and batch.dtype.isnative
        return (own, batch.shape[1:], batch.dtype) if plain and batch.shape else None
    torch = sys.modules.get("torch")
    if torch is not None and own is torch.Tensor:
        plain = batch.layout is torch.strided and not (batch.requires_grad or batch.is_nested or batch.is_quantized)
        return (own, batch.shape[1:], batch.dtype, batch.device) if plain and batch.shape else None
    if not isinstance(batch, (list, tuple, Mapping)):
        return None
    keys, parts = (tuple(batch), batch.values()) if isinstance(batch, Mapping) else (None, batch)
    alike = tuple(map(likeness, parts))
    return None if None in alike else (own, keys, alike)


def joins(first: Any, other: Any, padding: Any) -> bool:
    """True if batches of these likenesses are joined by bytes: they are equal, or their arrays differ in width."""
    if first == other:
        return first is not None
    if first is None or other is None or first[0] is not other[0]:
        return False
    if type(first[2]) is tuple:
        same = first[1] == other[1] and len(first[2]) == len(other[2])
        return same and all(joins(*pair, padding) for pair in zip(first[2], other[2], strict=True))
    one, two = first[1], other[1]
    alike = bool(one and two) and one[1:] == two[1:] and first[2:] == other[2:]
    return alike and not recording() and bytes_of_padding(first[2], padding) is not None


def bytes_of_padding(dtype: Any, padding: Any) -> bytes | None:
    """The bytes of the padding in arrays of a dtype of torch or NumPy; None where it is not a number of the dtype."""
    made = _bytes_of_int if type(padding) is int else _bytes_of_int.__wrapped__  # 0.0 and -0.0 are equal keys
    return made(dtype, padding)


@functools.lru_cache(maxsize=64)
def _bytes_of_int(dtype: Any, padding: Any) -> bytes | None:
    try:
        if isinstance(dtype, np.dtype):
            return np.full(1, padding, dtype).tobytes()
        torch = sys.modules["torch"]
        two = torch.full((2,), padding, dtype=dtype, device="cpu")  # of one number, torch lets small floats overflow
        return two[:1].view(torch.uint8).numpy().tobytes()  # type: ignore[no-any-return]
    except (RuntimeError, OverflowError, TypeError, ValueError):
        return None
