"""The form of a call: all that decides how it is computed, but for the lengths of its rows."""

from __future__ import annotations

from typing import Any

import torch

from quadrat.model.arguments import LABELS
from quadrat.model.attention import PREFIX
from quadrat.model.backbone import padding_token
from quadrat.model.head import IGNORED
from quadrat.model.proof import follows_padding

_EXACT_ROWS = 16  # more rows are of one form up to the next power of two


def form_of(module: Any, arguments: dict[str, Any], mask: Any) -> tuple[Any, int]:
    """The form of a call, and the length of its longest row, with one wait for a GPU."""
    rows, device = len(mask), mask.device.type
    tensors: list[tuple[str, int, torch.dtype]] = []
    others: list[tuple[str, Any]] = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            tensors.append((name, value.dim(), value.dtype))
        elif isinstance(value, bool):
            others.append((name, value))
        elif isinstance(value, int):
            others.append((name, 0 < value < mask.shape[1]))  # such as a number of last columns
        elif value is not None:
            others.append((name, type(value)))
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    configs = module.config, module.config.get_text_config()
    implementation = tuple(str(one._attn_implementation).removeprefix(PREFIX) for one in configs)
    count = rows if rows <= _EXACT_ROWS else 1 << (rows - 1).bit_length()
    places, longest = _facts(module, arguments, mask)
    return (tuple(tensors), tuple(others), autocast, implementation, count, places), longest


def _facts(module: Any, arguments: dict[str, Any], mask: Any) -> tuple[tuple[bool, ...], int]:
    """Where padding is, and what ids and labels are there."""
    after = mask & follows_padding(mask)
    lengths, ids, labels = mask.sum(1), arguments.get("input_ids"), arguments.get(LABELS)
    facts = [after.any(), ((after.sum(1) + mask[:, 0]) > 1).any(), (lengths == 0).any(), lengths.max()]
    if ids is not None:
        facts.append(((ids.reshape(mask.shape) != padding_token(module.config)) != mask).any())
    if isinstance(labels, torch.Tensor) and labels.shape == mask.shape:
        used = labels != IGNORED
        facts += [(used & ~mask).any(), (used & after).any()]
    numbers = torch.stack(facts).tolist()
    return tuple(map(bool, numbers[:3] + numbers[4:])), int(numbers[3])
