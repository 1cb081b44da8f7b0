"""Attention of rows that lie side by side: functions registered with transformers, one for each original.

Where no rows come with a call, the original is called as if it were not wrapped.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from quadrat.model.merged_attention import available, tree_attention
from quadrat.model.rows import Rows
from quadrat.model.thread_state import THREAD

try:
    varlen_attn: Any = importlib.import_module("torch.nn.attention.varlen").varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None

PREFIX = "quadrat_"


class RowsLostError(RuntimeError):
    """A model does not pass keyword arguments on to its attention, or computes attention in another way."""


def is_flash(name: str) -> bool:
    """True for an implementation that takes boundaries by transformers' own keyword arguments."""
    return "flash" in name


@functools.cache
def registered(name: str) -> str:
    """The name under which attention by row is registered that calls the implementation of this name."""
    if name.startswith(PREFIX) or is_flash(name):
        return name
    AttentionInterface.register(PREFIX + name, functools.partial(_attend, name))
    AttentionMaskInterface.register(PREFIX + name, functools.partial(_mask, name))
    return PREFIX + name


def takes_rows(name: str) -> bool:
    """True for an implementation that can be told of rows."""
    return name.startswith(PREFIX) or is_flash(name)


def _configs(model: Any) -> list[Any]:
    """The configurations of a model and of the models within it."""
    configs = (module.config for module in model.modules() if isinstance(module, PreTrainedModel))
    return list({id(config): config for config in configs}.values())


def set_names(model: Any) -> None:
    """Let a model ask for attention by row."""
    for config in _configs(model):
        config._attn_implementation_internal = registered(config._attn_implementation)


def restore_names(model: Any) -> None:
    """Let a model ask for attention as before."""
    for config in _configs(model):
        config._attn_implementation_internal = config._attn_implementation.removeprefix(PREFIX)


def _original(name: str, module: Any) -> Callable[..., Any]:
    """The implementation of a name; the eager one is a function of the model's own file."""
    if name != "eager":
        return ALL_ATTENTION_FUNCTIONS[name]  # type: ignore[no-any-return]
    for cls in type(module).__mro__:
        if (function := getattr(sys.modules[cls.__module__], "eager_attention_forward", None)) is not None:
            return function  # type: ignore[no-any-return]
    raise RowsLostError(f"the file of {type(module).__name__} has no eager_attention_forward")


def _mask(name: str, *args: Any, **options: Any) -> Any:
    rows: Rows | None = THREAD.rows
    if rows is None:
        return ALL_MASK_ATTENTION_FUNCTIONS[name](*args, **options)
    options |= dict(zip(("batch_size", "q_length"), args, strict=False))
    if name != "eager":
        return rows.pattern(options["mask_function"])
    dtype, allowed = options.get("dtype", torch.float32), rows.allowed(options["mask_function"])
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, torch.finfo(dtype).min)


def _attend(  # noqa: PLR0917 - as transformers calls it
    name: str, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, Any]:
    """Attention of each row alone: `[1, heads, tokens, dim]` to `[1, tokens, heads, dim]`."""
    function, rows = _original(name, module), options.pop("quadrat_rows", None)
    if rows is None:
        if THREAD.rows is not None:
            raise RowsLostError(f"{type(module).__name__} does not get the keyword arguments of the model")
        return function(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    if not query.shape[2] == key.shape[2] == rows.total or query.shape[0] != 1:
        raise RowsLostError(f"{type(module).__name__} attends to other tokens than those of its rows")
    if options.get("position_bias") is not None:
        raise RowsLostError(f"{type(module).__name__} adds a bias of positions")
    if attention_mask is not None and attention_mask.shape[2:] != (rows.longest, rows.longest):
        raise RowsLostError(f"{type(module).__name__} changes the mask")
    inputs = query, key, value
    causal = options.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if causal is None else causal)
    if not query.is_cuda:
        meetings = rows.merges(attention_mask, causal=causal) if name == "sdpa" and available() else None
        if meetings is not None and not options.get("dropout") and options.get("softcap") is None:
            return tree_attention(*inputs, meetings, scale=options.get("scaling")).transpose(1, 2), None
        return _by_groups(functools.partial(function, module, **options), rows, inputs, attention_mask), None
    half = query.dtype in (torch.float16, torch.bfloat16) and not options.get("dropout")
    if half and name == "sdpa" and attention_mask is None and varlen_attn is not None:
        return _in_one_kernel(rows, inputs, options.get("scaling"), causal=causal), None
    return _padded(functools.partial(function, module, **options), rows, inputs, attention_mask, causal=causal), None


def _by_groups(function: Callable[..., Any], rows: Rows, inputs: tuple[Any, ...], mask: Any) -> Any:
    """The original for the rows of each length together."""
    if rows.shared:
        raise RowsLostError("this attention cannot be told what rows share")
    sizes, outputs = [count * length for count, length in rows.groups], []
    plain = rows.plain_until(mask)
    for shape, *parts in zip(rows.groups, *(tensor[0].split(sizes, 1) for tensor in inputs), strict=True):
        length = shape[1]
        of_group = None if length <= plain else mask[..., :length, :length]
        output, *_ = function(*(part.unflatten(1, shape).transpose(0, 1) for part in parts), of_group)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs)[None]


def _in_one_kernel(rows: Rows, inputs: tuple[Any, ...], scaling: float | None, *, causal: bool) -> Any:
    """Attention of rows of different lengths on a GPU, in half precision."""
    query, key, value = (tensor[0].transpose(0, 1) for tensor in inputs)
    window, shared = (-1, 0) if causal else (-1, -1), query.shape[1] != key.shape[1]
    sizes = rows.bounds, rows.bounds, rows.longest, rows.longest
    return varlen_attn(query, key, value, *sizes, scale=scaling, window_size=window, enable_gqa=shared)[None]


def _padded(function: Callable[..., Any], rows: Rows, inputs: tuple[Any, ...], mask: Any, *, causal: bool) -> Any:
    """The original for all rows together, padded on the right: no token of a causal model sees that padding."""
    upright = rows.upright
    query, key, value = (upright.put(tensor.transpose(1, 2)).transpose(1, 2) for tensor in inputs)
    # Padding sees itself, so that no row of scores is empty.
    seen = upright.real[:, None, None] | torch.eye(rows.longest, dtype=torch.bool, device=query.device)
    if mask is not None and mask.is_floating_point():
        mask = mask.masked_fill(~seen, torch.finfo(mask.dtype).min)
    elif mask is not None:
        mask = mask & seen
    elif not causal:
        mask = seen
    return upright.take(function(query, key, value, mask)[0])
