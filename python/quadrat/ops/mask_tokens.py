"""`quadrat.mask_tokens`: the masking of masked language modelling, on arrays and ragged rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.ops import _philox as philox
from quadrat.ops._padding import Side, is_left
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import as_lengths, offsets_like
from quadrat.support import gpu
from quadrat.support.arrays import as_numpy, require_plain
from quadrat.support.generators import numpy_origin, torch_origin
from quadrat.support.memory import address_of
from quadrat.support.tensors import is_tensor, on_gpu


class MaskedTokens(NamedTuple):
    """The result of `mask_tokens`, both in the shape and library of its `input_ids`."""

    input_ids: Any
    labels: Any


def mask_tokens(
    input_ids: Any,
    *,
    mask_token_id: int,
    vocab_size: int,
    special_tokens_mask: Any | None = None,
    special_ids: Iterable[int] = (),
    offset_mapping: Any | None = None,
    mlm_probability: float = 0.15,
    mask_replace_prob: float = 0.8,
    random_replace_prob: float = 0.1,
    generator: Any | None = None,
    rng: Literal["torch", "philox"] = "torch",
    seed: int | None = None,
    epoch: int = 0,
    row_keys: Any | None = None,
    lengths: Any | None = None,
    padding_side: Side = "right",
) -> MaskedTokens:
    """Mask random tokens as BERT does, with the draws of `transformers.DataCollatorForLanguageModeling`.

    Each token that is not special becomes a label with probability `mlm_probability`; it is then replaced by the mask
    token, by a random token, or kept. The generator advances as in transformers.

    With `rng="philox"` there is no generator: what happens to a token depends only on `seed`, `epoch`, its row's key
    and its position in the row, not on other rows, padding or the device. `input_ids` may then be a CUDA tensor.

    Args:
        input_ids: integers, a NumPy array or CPU torch tensor of any shape, with rows along the last dimension, or a
            `Ragged`. They are not changed.
        mask_token_id: the id that masked tokens get.
        vocab_size: random tokens are drawn below this.
        special_tokens_mask: nonzero for tokens that are never masked, including padding; the shape of `input_ids`.
        special_ids: without a mask, the ids that are never masked.
        offset_mapping: `[rows, width, 2]` character offsets: whole words are masked; a word's first token decides.
        mlm_probability: the probability that a token is masked.
        mask_replace_prob: the probability that a masked token becomes `mask_token_id`.
        random_replace_prob: the probability that it becomes a random token; the other masked tokens are kept.
        generator: a CPU `torch.Generator` for tensors, `numpy.random.Generator` for arrays; by default the global one.
        rng: "torch", which draws as transformers does (for arrays from NumPy's generator), or "philox", counter-based.
        seed: with "philox", 0 to 2**64 - 1; None is 0.
        epoch: with "philox", 0 to 2**32 - 1.
        row_keys: with "philox", an integer for each row, such as its number in the dataset; by default a 64-bit hash of
            the row's tokens.
        lengths: with "philox", `[rows]` integers, the number of tokens of each row if `input_ids` are padded: positions
            are counted from a row's first token, and padding is neither masked nor part of the key.
        padding_side: with `lengths`, where the padding is, "right" or "left".

    Returns:
        (input_ids, labels), int64; labels are -100 where nothing was masked.

    Raises:
        TypeError: when `input_ids`, lengths, keys or ids are not integers, the generator is of the other library, or a
            tensor has no numbers in memory.
        ValueError: for probabilities outside 0 to 1, shapes that differ, an unsupported generator, or options that
            conflict with `rng`.
        RuntimeError: for a CUDA tensor, if quadrat has no CUDA kernels.

    Examples:
        >>> import torch, quadrat
        >>> ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 0]])
        >>> masked, labels = quadrat.mask_tokens(
        ...     ids, mask_token_id=4, vocab_size=10, special_ids=(0, 2, 3), mlm_probability=0.4, rng="philox", seed=1
        ... )
        >>> masked.tolist(), labels.tolist()
        ([[2, 3, 4, 7, 3], [2, 4, 4, 3, 0]], [[-100, 5, 6, -100, -100], [-100, 8, 9, -100, -100]])
    """
    _check(mlm_probability, mask_replace_prob, random_replace_prob)
    vocab_size = philox.number_below(vocab_size, "vocab_size", _core.MOST_TOKENS, first=1)
    mask_token_id = philox.number_below(mask_token_id, "mask_token_id", 2**63, first=-(2**63))
    special_ids = [philox.number_below(token, "each of special_ids", _core.MOST_TOKENS) for token in special_ids]
    marks = Marks(special_tokens_mask, offset_mapping, row_keys, special_ids)
    by_counter = rng == "philox"
    if rng not in ("torch", "philox"):
        raise ValueError(f"rng must be 'torch' or 'philox', not {rng!r}")
    if by_counter and generator is not None:
        raise ValueError('rng="philox" uses no generator: give a seed')
    if not by_counter and (seed is not None or epoch or row_keys is not None or lengths is not None):
        raise ValueError('seed, epoch, row_keys and lengths are for rng="philox"; otherwise give a generator')
    probabilities = float(mlm_probability), float(mask_replace_prob), float(random_replace_prob)
    options = philox.PhiloxOptions(
        philox.seed_of(seed), philox.epoch_of(epoch) if by_counter else 0, *probabilities, mask_token_id, vocab_size
    )
    offsets = None
    if isinstance(input_ids, Ragged):
        if offset_mapping is not None or lengths is not None:
            raise ValueError("offset_mapping and lengths are for padded input_ids, not for a Ragged")
        if by_counter and input_ids.values.ndim != 1:
            raise ValueError(f"the values of a Ragged of ids must be 1-D, not of shape {tuple(input_ids.values.shape)}")
        marks = marks._replace(special_tokens_mask=_flat_flags(special_tokens_mask, input_ids))
        first, last, offsets, lengths = _bounds_of(input_ids)
        input_ids = input_ids.values[first:last]
        places = philox.RowBounds(lengths, len(lengths), last - first, left=False, flat=True)
    elif by_counter:
        places = _places(input_ids, lengths, padding_side)
    if by_counter:
        masked = mask_places(input_ids, places, options, marks)
    else:
        masked = _mask_by_generator(input_ids, marks, generator, options)
    return masked if offsets is None else MaskedTokens(*(Ragged(values, offsets) for values in masked))


class Marks(NamedTuple):
    """The arguments of `mask_tokens` about tokens and rows, or None."""

    special_tokens_mask: Any = None
    offset_mapping: Any = None
    row_keys: Any = None
    special_ids: Sequence[int] = ()


def _mask_by_generator(input_ids: Any, marks: Marks, generator: Any, options: philox.PhiloxOptions) -> MaskedTokens:
    if is_tensor(input_ids):
        origin, wanted, called = torch_origin(generator), sys.modules["torch"].Generator, "a torch.Generator of the CPU"
    else:
        origin, wanted, called = numpy_origin(generator), np.random.Generator, "a numpy.random.Generator"
    if origin is None and generator is not None and not isinstance(generator, wanted):
        raise TypeError(f"generator must be {called}, not {type(generator).__name__}")
    if origin is None:
        raise ValueError("the draws of this generator are not known: it must be on the CPU")
    masked = _copy(input_ids)
    replacement = origin.replacement(options.mask, options.random, options.mask_id, options.vocab_size)
    probability = origin.rounded(options.mlm_probability)
    labeller = _core.MaskedLabels(*origin[:2], probability, replacement, list(marks.special_ids))
    return MaskedTokens(masked, write_labels(labeller, masked, marks.special_tokens_mask, marks.offset_mapping))


def _bounds_of(ragged: Ragged) -> tuple[int, int, Any, Any]:
    """Where the rows begin and end among the values; their offsets from 0 on, and their lengths, on the CPU checked."""
    if on_gpu(ragged.offsets):
        first, last = int(ragged.offsets[0]), int(ragged.offsets[-1])
        return first, last, ragged.offsets - first, ragged.lengths
    bounds, facts = ragged._checked()
    return facts.first, facts.last, ragged.offsets - facts.first, np.diff(bounds)


def _places(input_ids: Any, lengths: Any, padding_side: Side) -> philox.RowBounds:
    require_plain(input_ids, "input_ids")
    shape = tuple(np.shape(input_ids))
    rows = math.prod(shape[:-1])
    if lengths is not None and not on_gpu(lengths):
        lengths = as_lengths(lengths)
    if lengths is not None and tuple(lengths.shape) != (rows,):
        raise ValueError(f"lengths must be {rows} numbers, one per row, not {tuple(lengths.shape)}")
    return philox.RowBounds(lengths, rows, shape[-1] if shape else 1, left=is_left(padding_side), flat=False)


def mask_places(input_ids: Any, places: philox.RowBounds, options: philox.PhiloxOptions, marks: Marks) -> MaskedTokens:
    """`mask_tokens` by counter, for rows in these places."""
    if is_tensor(input_ids) and input_ids.is_cuda:
        return _mask_on_gpu(input_ids, places, options, marks)
    if places.lengths is not None:
        places = places._replace(lengths=as_lengths(places.lengths))
    masked = _copy(input_ids)
    special, offsets, keys, special_ids = marks
    keys = None if keys is None else philox.keys_of(keys, places.rows)
    known = keys, *_flags_and_pairs(special, offsets, tuple(masked.shape))
    labeller = _core.PhiloxLabels(options, list(special_ids))
    return MaskedTokens(masked, philox.labels_of_places(labeller, masked, places, known))


def _mask_on_gpu(input_ids: Any, places: philox.RowBounds, options: philox.PhiloxOptions, marks: Marks) -> MaskedTokens:
    """As `mask_places`, without waiting for the GPU; a row longer than the width is cut."""
    import torch

    special, offsets, keys, special_ids = marks
    if offsets is not None:
        raise ValueError("whole words are masked on the CPU only: give no offset_mapping with CUDA tensors")
    masked = _int64_copy(input_ids)
    device, words = masked.device, None
    if special is not None:
        there = is_tensor(special) and special.device == device
        if not there or special.shape != masked.shape or special.is_floating_point():
            raise ValueError(f"special_tokens_mask must be integers or bools of input_ids' shape on {device}")
        words = torch.where(special != 0, _core.WORDS.NONE, _core.WORDS.BEGINS).to(torch.uint8).contiguous()
    if places.lengths is None:
        bounds = torch.arange(places.rows + 1, device=device) * places.width
    else:
        bounds, _ = offsets_like(masked, places.lengths)
    layout = address_of(bounds), places.rows, places.width, places.left, places.flat
    if keys is None:
        keys = torch.empty(places.rows, dtype=torch.int64, device=device)
        gpu.launch("row_keys", device, address_of(masked), masked.numel(), *layout, address_of(keys))
    elif not (is_tensor(keys) and keys.device == device):
        keys = torch.from_numpy(philox.keys_of(keys, places.rows).view(np.int64)).to(device)
    elif tuple(keys.shape) != (places.rows,) or keys.dtype.is_floating_point or keys.dtype == torch.bool:
        raise ValueError(f"there must be one integer row key for each of {places.rows} rows")
    keys, members = keys.to(torch.int64).contiguous(), (0, 0)
    if words is None and special_ids:
        bits = torch.from_numpy(philox.bits_of_ids(list(special_ids))).to(device)
        members = address_of(bits), len(bits)
    labels, kinds = torch.empty_like(masked), 0 if words is None else address_of(words)
    outputs = address_of(masked), address_of(labels), masked.numel()
    gpu.launch("philox_mask", device, options, address_of(keys), *layout, kinds, *members, *outputs, False, 0, 0, 0, 0)
    return MaskedTokens(masked, labels)


def _flat_flags(special: Any, ragged: Ragged) -> Any:
    if not isinstance(special, Ragged):
        return special
    first, last, _, lengths = _bounds_of(special)
    if as_numpy(lengths, "lengths").tolist() != as_numpy(ragged.lengths, "lengths").tolist():
        raise ValueError("the rows of special_tokens_mask and input_ids differ in length")
    return special.values[first:last]


def write_labels(
    labeller: _core.MaskedLabels, ids: Any, special_tokens_mask: Any, offset_mapping: Any, *, of_batch: bool = False
) -> Any:
    """Mask `ids`, contiguous int64, in place; returns the labels, `of_batch` as its outputs. Raises ValueError."""
    shape = tuple(ids.shape)
    known = None, *_flags_and_pairs(special_tokens_mask, offset_mapping, shape)
    places = philox.RowBounds(None, math.prod(shape[:-1]), shape[-1] if shape else 1, False, False)
    return philox.labels_of_places(labeller, ids, places, known, of_batch=of_batch)


def _check(mlm_probability: float, mask: float, random: float) -> None:
    named = {"mlm_probability": mlm_probability, "mask_replace_prob": mask, "random_replace_prob": random}
    for name, value in named.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, not {value}")
    if mask + random > 1:
        raise ValueError(f"mask_replace_prob and random_replace_prob must not exceed 1 together: {mask} + {random}")


def _copy(input_ids: Any) -> Any:
    if is_tensor(input_ids):
        if input_ids.device.type != "cpu":
            raise ValueError(f"input_ids are on {input_ids.device}; they must be on the CPU")
        require_plain(input_ids, "input_ids")
        return _int64_copy(input_ids)
    array = as_numpy(input_ids, "input_ids")
    if array.dtype.kind not in "iu":
        raise TypeError(f"input_ids must be integers, not {array.dtype}")
    return np.array(array, np.int64, order="C")


def _int64_copy(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise TypeError(f"input_ids must be integers, not {tensor.dtype}")
    return tensor.to(torch.int64, copy=True).contiguous()


def _flags_and_pairs(special: Any, offsets: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The mask of special tokens as bytes: 0, 1, and 2 for any other number; and offsets as int64. None stays None."""
    if special is not None:
        numbers = _host_array(special, "special_tokens_mask", shape, "integers or bools", "biu")
        special = np.where(numbers == 1, 1, np.where(numbers == 0, 0, 2)).astype(np.uint8)
    if offsets is not None:
        offsets = np.ascontiguousarray(_host_array(offsets, "offset_mapping", (*shape, 2), "integers", "i"), np.int64)
    return special, offsets


def _host_array(values: Any, name: str, shape: tuple[int, ...], what: str, kinds: str) -> np.ndarray[Any, Any]:
    if is_tensor(values) and values.device.type != "cpu":
        raise ValueError(f"{name} is on {values.device}; it must be on the CPU")
    array = as_numpy(values, name)
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ValueError(f"{name} must be {what} of shape {shape}, not {array.dtype} of {array.shape}")
    return array
