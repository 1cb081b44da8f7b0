"""Masking whose draws depend only on seed, epoch, row key and position: `rng="philox"`."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.ops._padding import whole
from quadrat.ragged.offsets import offsets_like
from quadrat.support import gpu
from quadrat.support.arrays import as_numpy
from quadrat.support.columns import explain
from quadrat.support.kinds import INT64
from quadrat.support.memory import address_of, empty
from quadrat.support.tensors import is_tensor

Numbers = np.ndarray[Any, np.dtype[Any]]

_SEEDS, _EPOCHS, _KEYS = 1 << 64, 1 << 32, 1 << 64


class PhiloxOptions(NamedTuple):
    """How tokens are masked, as the kernels of the CPU and of a GPU take it."""

    seed: int  # below 2**64
    epoch: int  # below 2**32
    mlm_probability: float  # of a token to be masked
    mask: float  # probability of a masked token to become `mask_id`
    random: float  # probability of a masked token to become a random one
    mask_id: int
    vocab_size: int  # random tokens are drawn below this


class RowBounds(NamedTuple):
    """Where the tokens of each row are: in a padded batch, `[rows, width]`, or one row after the other (`flat`)."""

    lengths: Any  # `[rows]` int64, an array, for tensors of a GPU also a tensor there; None: each row fills the width
    rows: int
    width: int  # of the whole array, where it is flat
    left: bool
    flat: bool


def seed_of(seed: Any) -> int:
    """The seed as Philox takes it; None is 0. Raises TypeError or ValueError."""
    return 0 if seed is None else number_below(seed, "seed", _SEEDS)


def epoch_of(epoch: Any) -> int:
    return number_below(epoch, "epoch", _EPOCHS)


def number_below(value: Any, name: str, end: int, first: int = 0) -> int:
    """An int from `first` to before `end`. Raises TypeError or ValueError for others."""
    number = whole(value, name)
    if not first <= number < end:
        powers = {2**bits - less: f"2**{bits}" + " - 1" * less for bits in (32, 48, 61, 62, 63, 64) for less in (0, 1)}
        raise ValueError(f"{name} must be from {first} to {powers.get(end - 1, end - 1)}, not {number}")
    return number


def keys_of(values: Any, rows: int) -> Numbers:
    """One key per row, uint64, of integers; negative ones as their two's complement. Raises TypeError, ValueError."""
    if is_tensor(values):
        values = as_numpy(values, "row_keys")
    if not isinstance(values, np.ndarray):
        numbers = []
        for row, value in enumerate(values):
            try:
                numbers.append(operator.index(value) % _KEYS)
            except TypeError:
                raise TypeError(f"row {row} has the key {value!r}: row keys are integers, one for each row") from None
        values = np.array(numbers, np.uint64)
    if values.dtype.kind not in "iu":
        raise TypeError(f"row keys are integers, not {values.dtype}")
    if values.shape != (rows,):
        raise ValueError(f"there must be one row key for each of {rows} rows, not {values.shape}")
    wide = values if values.dtype.kind == "u" else values.astype(np.int64)
    return np.ascontiguousarray(wide.astype(np.uint64))


def labels_on_cpu(
    options: PhiloxOptions, ids: Any, places: RowBounds, *, special_ids: list[int], keys: Any, flags: Any, pairs: Any
) -> Any:
    """Mask `ids`, contiguous int64, in place; returns the labels.

    special_ids: never masked, unless there are flags: a byte a token, not 0 for special ones. keys: `[rows]` uint64.
    pairs: offsets, int64. Each may be None but `special_ids`. Raises ValueError.
    """
    labeller = _core.PhiloxLabels(options, special_ids)
    labels, address = empty("pt" if is_tensor(ids) else "np", tuple(ids.shape), INT64)
    lengths = None if places.lengths is None else np.ascontiguousarray(places.lengths, np.int64)
    count = places.width if places.flat else places.rows * places.width
    if math.prod(ids.shape) != count or (lengths is not None and lengths.shape != (places.rows,)):
        shape = tuple(ids.shape)
        raise ValueError(f"input_ids of shape {shape} do not match {places.rows} rows and lengths in {count} places")
    known = [0 if one is None else address_of(one) for one in (lengths, keys, flags, pairs)]
    layout = places.rows, places.width, places.left, places.flat
    if (failure := labeller.write(address_of(ids), address, *layout, *known)) is not None:
        raise ValueError(f"{explain(failure)}; the batch has {places.width} places for a row")
    return labels


def labels_on_gpu(
    options: PhiloxOptions, ids: Any, places: RowBounds, *, special_ids: list[int], keys: Any, words: Any
) -> Any:
    """As `labels_on_cpu`, on a tensor of a GPU, and without waiting for it; a row longer than the width is cut.

    words: a byte a token there, see csrc/kernels/mask_tokens.hpp, or None: then `special_ids` count. keys: int64.
    """
    import torch

    device, count = ids.device, ids.numel()
    if places.lengths is None:
        offsets = torch.arange(places.rows + 1, device=device) * places.width
    else:
        offsets, _ = offsets_like(ids, places.lengths)
    layout = address_of(offsets), places.rows, places.width, places.left, places.flat
    if keys is None:
        keys = torch.empty(places.rows, dtype=torch.int64, device=device)
        gpu.launch("row_keys", device, address_of(ids), count, *layout, address_of(keys))
    kinds = 0 if words is None else address_of(words)
    special = 0, 0
    if words is None and special_ids:
        members = torch.from_numpy(bits_of_ids(special_ids)).to(device)
        special = address_of(members), len(members)
    labels = torch.empty_like(ids)
    outputs = address_of(ids), address_of(labels), count
    gpu.launch("philox_mask", device, options, address_of(keys), *layout, kinds, *special, *outputs)
    return labels


def bits_of_ids(ids: list[int]) -> Numbers:
    members = np.zeros(max(ids) // 64 * 64 + 64, bool)
    members[ids] = True
    return np.packbits(members, bitorder="little").view(np.int64)


def ids_of_bits(members: Numbers) -> list[int]:
    return np.flatnonzero(np.unpackbits(members.view(np.uint8), bitorder="little")).tolist()
