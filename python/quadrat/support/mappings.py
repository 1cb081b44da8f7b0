"""Which mappings may be looked into: those that do nothing of their own when they are read."""

from __future__ import annotations

import sys
from collections import OrderedDict, UserDict, defaultdict
from typing import Any

from quadrat import _core

# What reads a mapping. A class that overrides one of these may give other values at each look, or other values by `[]`
# than by `items`, or draw and store them when they are read.
_READERS = frozenset(
    ("__getattribute__", "__getitem__", "__contains__", "__iter__", "__len__", "keys", "values", "items", "get")
)

# How a mapping may be read: not at all, as a dict, or as the dict that is its `data`.
OPAQUE, DICT, WRAPPER = _core.WAYS.OPAQUE, _core.WAYS.DICT, _core.WAYS.WRAPPER


def way_to_read(cls: type) -> int:
    """How mappings of a class are read without calling code of theirs, but `__missing__`: OPAQUE, DICT or WRAPPER."""
    transformers = sys.modules.get("transformers")
    wrappers = (UserDict,) if transformers is None else (transformers.BatchEncoding, UserDict)
    lineage = cls.__mro__
    base = next((one for one in lineage if one in (dict, OrderedDict, defaultdict, *wrappers)), None)
    if base is None or any(not _READERS.isdisjoint(vars(one)) for one in lineage[: lineage.index(base)]):
        return OPAQUE
    if base not in wrappers:
        return DICT
    return OPAQUE if hasattr(cls, "data") else WRAPPER


def is_plain(feature: Any) -> bool:
    """Whether a feature is a mapping that does nothing of its own when it is read."""
    cls = type(feature)
    if cls is dict:
        return True
    way = way_to_read(cls)
    return way_to_read(type(vars(feature).get("data"))) == DICT if way == WRAPPER else way == DICT
