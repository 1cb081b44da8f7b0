"""Which mappings may be looked into: those that do nothing of their own when they are read."""

from __future__ import annotations

import sys
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from types import MappingProxyType

from quadrat import _core

# What reads a mapping. A class that overrides one of these may give other values at each look, or other values by `[]`
# than by `items`, or draw and store them when they are read.
_READERS = frozenset(
    ("__getattribute__", "__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get")
)

# How a mapping may be read: not at all, or as a dict, see csrc/bindings/input/walk.hpp.
_WAYS = _core.WAYS
_EXACT: dict[type, int] = {MappingProxyType: _WAYS.PROXY, ChainMap: _WAYS.CHAIN}


def way_to_read(cls: type) -> int:
    """How mappings of a class are read without calling code of theirs, but `__missing__`."""
    if (way := _EXACT.get(cls)) is not None:
        return way
    wrappers = (*_of_transformers(), UserDict)
    lineage = cls.__mro__
    base = next((one for one in lineage if one in (dict, OrderedDict, defaultdict, *wrappers)), None)
    if base is None or any(not _READERS.isdisjoint(vars(one)) for one in lineage[: lineage.index(base)]):
        return _WAYS.OPAQUE
    if base not in wrappers:
        return _WAYS.DICT
    return _WAYS.OPAQUE if hasattr(cls, "data") else _WAYS.WRAPPER


def _of_transformers() -> tuple[type, ...]:
    """Its mappings, as far as they are loaded: they look up strings in their `data`."""
    encoding = sys.modules.get("transformers.tokenization_utils_base")
    feature = sys.modules.get("transformers.feature_extraction_utils")
    found = getattr(encoding, "BatchEncoding", None), getattr(feature, "BatchFeature", None)
    return tuple(cls for cls in found if cls is not None)
