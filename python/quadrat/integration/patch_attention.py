"""Patches of what transformers and flash-attn do around attention kernels without padding.

The original is called unless quadrat's function is proven to give the same.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.ops._tokens import layout_now
from quadrat.ops.tokens import put, take
from quadrat.support.extras import needs
from quadrat.support.tensors import is_readable, recording
from quadrat.varlen import bert_padding

Function = Callable[..., Any]


def patch_flash_attn() -> Patch:
    """Replace the functions of `flash_attn.bert_padding` with those of `quadrat.bert_padding`, in this process.

    They are replaced in all modules of flash-attn and transformers, also in modules that are loaded later.
    `unpad_input` returns as many values as that of the installed flash-attn. Names that other modules imported earlier
    do not change: call this before `from flash_attn.bert_padding import ...`. It is undone like `quadrat.patch`.

    Raises:
        ModuleNotFoundError: when flash-attn is not installed.

    Examples:
        >>> import quadrat, flash_attn.bert_padding
        >>> with quadrat.varlen.patch_flash_attn():
        ...     flash_attn.bert_padding.pad_input is quadrat.bert_padding.pad_input
        True
    """
    with needs("quadrat.varlen.patch_flash_attn"):
        import flash_attn.bert_padding  # type: ignore[import-not-found]  # noqa: F401
    return Patch("varlen.patch_flash_attn", FLASH_ATTN)


def _is_plain(*tensors: Any) -> bool:
    """True for tensors of torch itself on one device, while torch does not record."""
    if recording() or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return False
    return all(is_readable(tensor) for tensor in tensors) and len({tensor.device for tensor in tensors}) == 1


def _rise(indices: Any, size: int) -> bool:
    """True if indices are places below `size`, each above the last; on a GPU nobody waits to learn that."""
    if indices.is_cuda or indices.dtype != torch.int64 or indices.dim() != 1 or not len(indices):
        return False
    return bool(indices[0] >= 0 and indices[-1] < size and (indices[1:] > indices[:-1]).all())


@functools.cache
def _gives_tensors(original: Function, parameters: int) -> bool:
    """True if the longest length is a tensor: transformers 5.6 does not wait for a GPU, earlier and later ones do."""
    values = original(*[torch.ones(1, 1, dtype=torch.int32, device="cpu")] * parameters)
    return any(isinstance(value, torch.Tensor) and not value.dim() for value in values)


def _as_given(longest: int, mask: torch.Tensor) -> torch.Tensor:
    return torch.full((), longest, dtype=torch.int32, device=mask.device)


def _get_unpad_data(original: Function, attention_mask: Any) -> Any:
    if not _is_plain(attention_mask) or attention_mask.dim() != 2 or not len(attention_mask):
        return original(attention_mask)
    layout = layout_now(attention_mask)
    longest = _as_given(layout.longest, attention_mask) if _gives_tensors(original, 1) else layout.longest
    return layout.indices, layout.cu_seqlens, longest


def _unpad_input(original: Function, hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> Any:
    masks = [attention_mask] if unused_mask is None else [attention_mask, unused_mask]
    plain = _is_plain(hidden_states, *masks) and all(mask.shape == hidden_states.shape[:2] for mask in masks)
    if not plain or not len(attention_mask):
        return original(hidden_states, attention_mask, *masks[1:])
    *found, longest, used = bert_padding.unpad_input(hidden_states, attention_mask, unused_mask)
    return (*found, _as_given(longest, attention_mask) if _gives_tensors(original, 2) else longest, used)


def _index_first_axis(original: Function, tensor: Any, indices: Any) -> Any:
    plain = _is_plain(tensor, indices) and tensor.dim() > 1
    if not plain or not _rise(indices, tensor.shape[0] * tensor.shape[1]):
        return original(tensor, indices)
    return take(tensor, indices, 2)


def _pad_input(original: Function, hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    plain = _is_plain(hidden_states, indices) and hidden_states.dim() > 0 and len(hidden_states) == len(indices)
    if not plain or not _rise(indices, batch * seqlen):
        return original(hidden_states, indices, batch, seqlen)
    return put(hidden_states, indices, (batch, seqlen))


def _swaps() -> list[Swap]:
    with contextlib.suppress(ModuleNotFoundError):  # a transformers without it
        from transformers import modeling_flash_attention_utils as utils

        own, twins = vars(utils), (_get_unpad_data, _unpad_input, _index_first_axis, _pad_input)
        found = [(own[twin.__name__], twin) for twin in twins if twin.__name__ in own]  # under the names of these
        for name, parameters in ("_get_unpad_data", 1), ("_unpad_input", 2):
            if name in own:  # tried while it still calls originals
                _gives_tensors(own[name], parameters)
        wrap = functools.update_wrapper
        return [Swap(original, wrap(functools.partial(twin, original), original)) for original, twin in found]
    return []


def _swaps_of_flash_attn() -> list[Swap]:
    import flash_attn.bert_padding

    own = vars(flash_attn.bert_padding)
    found: dict[str, Function] = {name: getattr(bert_padding, name) for name in bert_padding.__all__ if name in own}
    if "unpad_input" in found and "unused_mask" not in inspect.signature(own["unpad_input"]).parameters:
        found["unpad_input"] = functools.partial(bert_padding.unpad_input, return_seqused=False)
    return [Swap(own[name], twin) for name, twin in found.items()]


_PACKAGES = ("transformers", "transformers_modules", "flash_attn")
ATTENTION = Switch(_swaps, *_PACKAGES)
FLASH_ATTN = Switch(_swaps_of_flash_attn, *_PACKAGES)
