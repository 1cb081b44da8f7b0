"""The arguments of a model's call by name, and which of them have a place for each token."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from quadrat.support.tensors import is_readable

MASK, POSITIONS, LABELS, KEPT_LOGITS = "attention_mask", "position_ids", "labels", "logits_to_keep"
IGNORED = -100  # a label that no loss reads
_CACHES = ("past_key_values", "cache", "past_key_value")


@functools.lru_cache(maxsize=256)
def _parameters(forward: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(forward).parameters
    return dict(list(parameters.items())[1:])  # without self


def takes(module: Any, name: str) -> bool:
    """True if the `forward` of a module names a parameter."""
    return name in _parameters(type(module).forward)


def by_name(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call by name; None where a position has no name."""
    if not args:
        return kwargs
    parameters = _parameters(type(module).forward).items()
    named = [name for name, parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(args) > len(named):
        return None
    return dict(zip(named, args, strict=False)) | kwargs


def has_cache(arguments: dict[str, Any]) -> bool:
    """True for a call with a cache."""
    return any(arguments.get(name) is not None for name in _CACHES) or bool(arguments.get("use_cache"))


def padded_mask(arguments: dict[str, Any], config: Any) -> Any | None:
    """The attention mask of a call that has padding which can be removed, `[rows, width]`; None for other calls.

    A mask of several choices for each row, `[rows, choices, width]`, is `[rows * choices, width]`.
    """
    mask = arguments.get(MASK)
    if not isinstance(mask, torch.Tensor) or mask.dim() not in (2, 3) or not mask.numel() or not is_readable(mask):
        return None
    if has_cache(arguments):
        return None
    if arguments.get("output_attentions", getattr(config, "output_attentions", False)):
        return None
    tokens = arguments.get("input_ids")
    tokens = arguments.get("inputs_embeds") if tokens is None else tokens
    if not isinstance(tokens, torch.Tensor) or tokens.shape[: mask.dim()] != mask.shape or tokens.device != mask.device:
        return None
    mask = mask.flatten(0, -2)
    kept = mask if mask.dtype == torch.bool else mask != 0
    full, some, plain = torch.stack([kept.all(), kept.any(), (kept == mask).all()]).tolist()
    return kept if some and plain and not full else None  # other numbers are those of documents


def of_tokens(arguments: dict[str, Any], shape: tuple[int, int]) -> Iterator[tuple[str, int]]:
    """The names of tensors with a place for each token, and how many dimensions come before rows and width."""
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            continue
        if name == POSITIONS:
            if value.shape[-2:] in (shape, (1, shape[1])):
                yield name, value.dim() - 2
        elif value.shape[:2] == shape:
            yield name, 0
