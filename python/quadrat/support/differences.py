"""Where two values differ first: what a user sees of batches, features and states of generators."""

import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from quadrat.support.tensors import is_tensor

PLAIN = frozenset((int, str, bool, type(None)))  # of these, two that are equal look the same
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def first_difference(expected: Any, got: Any, name: str = "batch", *, skips: bool = True) -> str | None:
    """Where two values differ first, with types, dtypes, the order of keys and the bits of numbers; None if nowhere.

    skips: what cannot be compared does not differ: objects without `__eq__`, and values that raise an error meanwhile.
    Without it, such objects are compared by their text, and the error is raised.
    """
    if type(expected) is not type(got):
        return f"{name} is a {type(expected).__name__} of the reference and a {type(got).__name__} of quadrat"
    try:
        return None if expected is got else _first_difference(expected, got, name, skips)
    except Exception:
        if not skips:
            raise
        return None


def bytes_seen(array: Any) -> Any:
    """The bytes of the numbers of an array or tensor that a user sees, `[numbers, bytes]`, wherever they lie."""
    if not is_tensor(array):
        return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
    torch = sys.modules["torch"]
    if array.is_meta:
        return np.empty((0, 1), np.uint8)
    array = array.detach() if array.layout is torch.strided else array.detach().to_dense()
    # A copy: a tensor of one element is contiguous whatever its stride, and such bytes have no view.
    array = array.resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format)
    return array.reshape(-1, 1).view(torch.uint8).numpy()


def text_of(value: Any) -> str:
    """The `repr` of a value, without addresses."""
    return _ADDRESS.sub("", repr(value))


def has_numbers(array: np.ndarray[Any, Any]) -> bool:
    """False for arrays of objects, and of long doubles, between whose bytes lies anything."""
    return not array.dtype.hasobject and array.dtype.char not in "gG"


def _first_difference(expected: Any, got: Any, name: str, skips: bool) -> str | None:
    if isinstance(expected, Mapping):
        if list(expected) != list(got):
            return f"{name} has the keys {list(expected)} of the reference and {list(got)} of quadrat"
        parts: Any = ((f"{name}[{key!r}]", expected[key], got[key]) for key in list(expected))
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(got):
            return f"{name} has {len(expected)} items of the reference and {len(got)} of quadrat"
        kinds = list(map(type, expected))
        if PLAIN.issuperset(kinds) and kinds == list(map(type, got)) and expected == got:
            return None
        parts = ((f"{name}[{at}]", *pair) for at, pair in enumerate(zip(expected, got, strict=True)))
    elif is_tensor(expected) or isinstance(expected, np.ndarray):
        return _of_arrays(expected, got, name, skips)
    else:
        return _of_objects(expected, got, name, skips)
    differences = (first_difference(left, right, part, skips=skips) for part, left, right in parts)
    return next((difference for difference in differences if difference is not None), None)


def _of_objects(expected: Any, got: Any, name: str, skips: bool) -> str | None:
    compares = any("__eq__" in vars(cls) for cls in type(expected).__mro__[:-1])
    if not compares and skips:
        return None
    is_number = isinstance(expected, (float, complex, np.generic))  # nan is not equal to itself, and 0.0 to -0.0
    same = (compares and not is_number and expected == got) or text_of(expected) == text_of(got)
    return None if same else f"{name} is {expected!r} of the reference and {got!r} of quadrat"


def _of_arrays(expected: Any, got: Any, name: str, skips: bool) -> str | None:
    facts, others = _facts_of(expected), _facts_of(got)
    for what, fact in facts.items():
        if fact != others.get(what):
            return f"{name} has the {what} {fact} of the reference and {others.get(what)} of quadrat"
    if "shape" not in facts:
        return first_difference([*expected.detach().unbind()], [*got.detach().unbind()], name, skips=skips)
    if isinstance(expected, np.ndarray) and not has_numbers(expected):
        return first_difference(expected.tolist(), got.tolist(), name, skips=skips)
    places = np.flatnonzero((bytes_seen(expected) != bytes_seen(got)).any(1))
    if not len(places):
        return None
    at = tuple(map(int, np.unravel_index(int(places[0]), tuple(expected.shape))))
    return f"{name}{list(at)} is {expected[at]} of the reference and {got[at]} of quadrat"


def _facts_of(array: Any) -> dict[str, Any]:
    if not is_tensor(array):
        return {"dtype": array.dtype, "shape": array.shape}
    facts = {name: getattr(array, name) for name in ("dtype", "layout", "device", "requires_grad")}
    if array.is_nested:  # it has no shape
        return facts
    strided = array.layout is sys.modules["torch"].strided
    return facts | {"shape": array.shape, "memory format": strided and array.is_contiguous()}
