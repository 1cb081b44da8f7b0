"""The tokens and labels of a batch, as `quadrat run` counts them."""

import contextlib
import math
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import MAIN

UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"
_MASK = "attention_mask"


def sizes_of(batch: Any, multiple_of: Any = None) -> dict[str, Any]:
    """The sizes of a batch, as values of an event.

    Returns:
        computed, tokens: the tokens of the batch with padding and without; rows: their number; stored: the tokens of
        padding in columns where all rows have it, and of these batches the widths. Or unknown: 1, for tokens of which
        nothing says which are padding; nothing of a batch without.
    """
    if isinstance(batch, DeferredBatch):  # which would be made here
        return {"unknown": 1}
    if not isinstance(batch, (dict, UserDict)):
        return {}
    masks = [
        _sizes_of_mask(np.asarray(batch[name]) != 0, multiple_of)  # packed rows have numbers there
        for name in batch
        if isinstance(name, str) and name.endswith(_MASK) and _is_mask(batch, name)
    ]
    if masks:
        sizes: dict[str, Any] = {name: sum(each[name] for each in masks) for name in ("computed", "tokens", "stored")}
        sizes["rows"] = masks[0]["rows"]
        sizes["widths"] = [sum(each["width"] for each in masks)] * (sizes["stored"] > 0)
        return {name: value for name, value in sizes.items() if value}
    ids: Any = batch.get(MAIN)
    bounds = batch.get("cu_seq_lens_q")
    if bounds is None or getattr(ids, "ndim", 0) != 2:
        return {"unknown": 1} if getattr(ids, "ndim", 0) > 1 and len(ids) > 1 else {}
    return {"computed": ids.shape[1], "tokens": int(bounds[-1] - bounds[0]), "rows": len(bounds) - 1}


def values_of(batch: Any, multiple_of: Any = None) -> dict[str, Any]:
    """As `sizes_of`, with `sized`: 1 where tokens are known; nothing of a batch that cannot be looked at."""
    try:
        sizes = sizes_of(batch, multiple_of)
    except Exception:  # of objects of the script's
        return {}
    return {**sizes, "sized": 1} if "computed" in sizes else sizes


def _shape_of(values: Any) -> tuple[int, ...]:
    return tuple(getattr(values, "shape", ()))


def _is_mask(batch: Any, name: str) -> bool:
    """True for the mask of tokens that a model reads: `attention_mask`, `chosen_attention_mask`; not the decoder's."""
    prefix, shape = name.removesuffix(_MASK), _shape_of(batch[name])
    if prefix == "decoder_" or len(shape) not in (2, 3):
        return False
    return shape == _shape_of(batch.get(prefix + MAIN)) or (len(shape) == 2 and not prefix)


def _sizes_of_mask(used: Any, multiple_of: Any) -> dict[str, Any]:
    """Of the tokens of a mask, `[rows, width]` or `[rows, choices, width]`."""
    shape, multiple = used.shape, multiple_of or 1
    columns = np.flatnonzero(used.reshape(-1, shape[-1]).any(0))
    needed = -(-int(columns[-1] - columns[0] + 1) // multiple) * multiple if len(columns) else 0
    sums = {"computed": math.prod(shape), "tokens": int(used.sum()), "rows": shape[0], "width": shape[-1]}
    return sums | {"stored": math.prod(shape[:-1]) * max(0, shape[-1] - needed)}


def is_unlabelled(batch: Any) -> bool:
    """True if a batch has labels, and all are ignored."""
    labels: Any = batch.get("labels") if isinstance(batch, Mapping) and not isinstance(batch, DeferredBatch) else None
    if 0 in getattr(labels, "shape", (0,)):
        return False
    with contextlib.suppress(TypeError):  # bfloat16, which NumPy has not
        labels = np.asarray(labels)
    return bool((labels == -100).all())
