"""Which mappings may be looked into: those that do nothing of their own when they are read."""

import sys
from collections import ChainMap, OrderedDict, UserDict, defaultdict

from quadrat import _core

# What reads a mapping. A class that overrides one of these may give other values at each look, or other values by `[]`
# than by `items`, or draw and store them when they are read.
_READERS = frozenset(
    ("__getattribute__", "__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get")
)

# Mappings that look up strings in their `data`.
_OF_TRANSFORMERS = (
    ("transformers.tokenization_utils_base", "BatchEncoding"),
    ("transformers.feature_extraction_utils", "BatchFeature"),
)

# How a mapping may be read: not at all, or as a dict, see csrc/bindings/input/walk.hpp.
_WAYS = _core.WAYS


def way_to_read(cls: type) -> int:
    """How mappings of a class are read without calling code of theirs, but `__missing__`."""
    if cls is ChainMap:
        return _WAYS.CHAIN
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in _OF_TRANSFORMERS)
    wrappers = UserDict, *(base for base in loaded if base is not None)
    for ancestor in cls.__mro__:  # by identity: a metaclass may say that classes are equal
        if any(ancestor is base for base in (dict, OrderedDict, defaultdict)):
            return _WAYS.DICT
        if any(ancestor is base for base in wrappers):
            return _WAYS.OPAQUE if hasattr(cls, "data") else _WAYS.WRAPPER
        if not _READERS.isdisjoint(vars(ancestor)):
            break
    return _WAYS.OPAQUE
