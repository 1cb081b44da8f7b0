"""Masking whose draws depend only on seed, epoch, row key and position: `rng="philox"`."""

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.ops._padding import as_int
from quadrat.support.arrays import as_numpy
from quadrat.support.columns import explain
from quadrat.support.kinds import INT64, Framework
from quadrat.support.memory import address_of, empty, empty_batch
from quadrat.support.tensors import is_tensor

Numbers = np.ndarray[Any, np.dtype[Any]]


class PhiloxOptions(NamedTuple):  # as the kernels of the CPU and of a GPU take them
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
    return 0 if seed is None else number_below(seed, "seed", 1 << 64)


def epoch_of(epoch: Any) -> int:
    return number_below(epoch, "epoch", 1 << 32)


def number_below(value: Any, name: str, end: int, first: int = 0) -> int:
    """An int from `first` to before `end`. Raises TypeError or ValueError for others."""
    number = as_int(value, name)
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
                numbers.append(operator.index(value) % 2**64)
            except TypeError:
                raise TypeError(f"row {row} has the key {value!r}: row keys are integers, one for each row") from None
        values = np.array(numbers, np.uint64)
    if values.dtype.kind not in "iu":
        raise TypeError(f"row keys are integers, not {values.dtype}")
    if values.shape != (rows,):
        raise ValueError(f"there must be one row key for each of {rows} rows, not {values.shape}")
    wide = values if values.dtype.kind == "u" else values.astype(np.int64)
    return np.ascontiguousarray(wide.astype(np.uint64))


def labels_of_places(
    labeller: _core.MaskingLabels, ids: Any, places: RowBounds, known: tuple[Any, Any, Any], *, of_batch: bool = False
) -> Any:
    """Mask `ids`, contiguous int64 on the CPU, in place; returns the labels, `of_batch` as its outputs.

    known: keys, `[rows]` uint64; flags, a byte a token, not 0 for special ones; and pairs, offsets, int64. Each of them
    may be None. Raises ValueError.
    """
    shape = tuple(ids.shape)
    framework: Framework = "pt" if is_tensor(ids) else "np"
    labels, address = empty_batch(framework, [(shape, INT64)])[0] if of_batch else empty(framework, shape, INT64)
    lengths = None if places.lengths is None else np.ascontiguousarray(places.lengths, np.int64)
    count = places.width if places.flat else places.rows * places.width
    if math.prod(shape) != count or (lengths is not None and lengths.shape != (places.rows,)):
        raise ValueError(f"input_ids of shape {shape} do not match {places.rows} rows and lengths in {count} places")
    addresses = [0 if array is None else address_of(array) for array in (lengths, *known)]
    if (failure := labeller.write(address_of(ids), address, *places[1:], *addresses)) is not None:
        raise ValueError(f"{explain(failure)}; the batch has {places.width} places for a row")
    return labels


def bits_of_ids(ids: list[int]) -> Numbers:
    members = np.zeros(max(ids) // 64 * 64 + 64, bool)
    members[ids] = True
    return np.packbits(members, bitorder="little").view(np.int64)


def ids_of_bits(members: Numbers) -> list[int]:
    return np.flatnonzero(np.unpackbits(members.view(np.uint8), bitorder="little")).tolist()
