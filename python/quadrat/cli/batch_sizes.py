"""The tokens and labels of a batch, as `quadrat run` counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.batching.trim import span_of
from quadrat.deferred.batch import DeferredBatch


class Sizes(NamedTuple):
    """The tokens of a batch; 0 of one without tokens."""

    computed: int = 0  # by a model
    tokens: int = 0  # that are not padding
    lengths: Sequence[int] = ()  # of the rows
    cut: int = 0  # by trim
    width: int = 0


def sizes_of(batch: Any, multiple_of: Any) -> Sizes:
    """The sizes of a batch that a collator made."""
    if not isinstance(batch, Mapping) or isinstance(batch, DeferredBatch):  # which would be made here
        return Sizes()
    mask: Any = batch.get("attention_mask")
    ids: Any = batch.get("input_ids")
    bounds = batch.get("cu_seq_lens_q")
    shape: Any = getattr(mask, "shape", ())
    if len(shape) == 2 or (len(shape) == 3 and shape == getattr(ids, "shape", ())):
        used = np.asarray(mask) != 0  # packed rows count their sequences in it
        kept, sizes = span_of(used, multiple_of), used.sum(-1)
        lengths = sizes if len(shape) == 2 else sizes.max(1) * shape[1]
        cut = math.prod(shape[:-1]) * (shape[-1] - kept.stop + kept.start)
        return Sizes(math.prod(shape), int(sizes.sum()), lengths.tolist(), cut, shape[-1])
    if bounds is None or getattr(ids, "ndim", 0) != 2:
        return Sizes()
    lengths = np.diff(bounds.tolist())
    return Sizes(ids.shape[1], int(lengths.sum()), lengths.tolist())


def is_unlabelled(batch: Any) -> bool:
    """True if a batch has labels, and all are ignored."""
    labels: Any = batch.get("labels") if isinstance(batch, Mapping) and not isinstance(batch, DeferredBatch) else None
    return 0 not in getattr(labels, "shape", (0,)) and bool((labels == -100).all())
