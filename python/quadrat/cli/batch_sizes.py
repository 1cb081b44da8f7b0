"""The tokens and labels of a batch, as `quadrat run` counts them."""

from __future__ import annotations

import contextlib
import math
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.batching.trim import MASK, shape_of, span_of
from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import MAIN

_SUMMED = "computed", "tokens", "cut", "width"


class Sizes(NamedTuple):
    """The tokens of a batch; 0 of one without tokens."""

    computed: int = 0  # by a model
    tokens: int = 0  # that are not padding
    lengths: Sequence[int] = ()  # of the rows
    cut: int = 0  # by trim
    width: int = 0
    is_unknown: bool = False  # True if there are tokens, and nothing says which of them are padding


def sizes_of(batch: Any, multiple_of: Any, completions: int = 1) -> Sizes:
    """The sizes of a batch. Its rows may be those of the first completion, then of the next: they count as one row."""
    if isinstance(batch, DeferredBatch):  # which would be made here
        return Sizes(is_unknown=True)
    if not isinstance(batch, (dict, UserDict)):
        return Sizes()
    found = [
        _sizes(np.asarray(batch[name]) != 0, multiple_of, completions)  # packed rows count their sequences in it
        for name in batch
        if isinstance(name, str) and name.endswith(MASK) and _counts(batch, name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        lengths = [sum(each) for each in zip(*(one.lengths for one in found), strict=False)]
        computed, tokens, cut, width = (sum(getattr(one, name) for one in found) for name in _SUMMED)
        return Sizes(computed, tokens, lengths, cut, width)
    ids: Any
    ids, bounds = batch.get(MAIN), batch.get("cu_seq_lens_q")
    if bounds is None or getattr(ids, "ndim", 0) != 2:
        return Sizes(is_unknown=getattr(ids, "ndim", 0) > 1 and len(ids) > 1)
    joined = np.diff(bounds.tolist())
    return Sizes(ids.shape[1], int(joined.sum()), joined.tolist())


def _counts(batch: Any, name: str) -> bool:
    """True for the mask of tokens that a model reads: `attention_mask`, `chosen_attention_mask`; not the decoder's."""
    prefix, shape = name.removesuffix(MASK), shape_of(batch[name])
    if prefix == "decoder_" or len(shape) not in (2, 3):
        return False
    return shape == shape_of(batch.get(prefix + MAIN)) or (len(shape) == 2 and not prefix)


def _sizes(used: Any, multiple_of: Any, completions: int) -> Sizes:
    """Of the tokens of a mask, `[rows, width]` or `[rows, choices, width]`."""
    sizes, shape = np.add.reduce(used, -1), used.shape
    lengths: list[int] = sizes.ravel().tolist()
    computed, tokens, width, cut = math.prod(shape), sum(lengths), shape[-1], 0
    if max(lengths, default=0) < width:  # else no column is masked in all rows
        kept = span_of(used, multiple_of)
        cut = computed // width * (width - kept.stop + kept.start)
    if len(shape) == 3:
        lengths = (sizes.max(1) * shape[1]).tolist()
    elif completions > 1 and shape[0] % completions == 0:
        lengths = (sizes.reshape(completions, -1).max(0) * completions).tolist()
    return Sizes(computed, tokens, lengths, cut, width)


def is_unlabelled(batch: Any) -> bool:
    """True if a batch has labels, and all are ignored."""
    labels: Any = batch.get("labels") if isinstance(batch, Mapping) and not isinstance(batch, DeferredBatch) else None
    if 0 in getattr(labels, "shape", (0,)):
        return False
    with contextlib.suppress(TypeError):  # bfloat16, which NumPy has not
        labels = np.asarray(labels)
    return bool((labels == -100).all())
