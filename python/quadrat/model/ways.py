"""The ways in which a model may compute no padding, and the form of a call, which decides between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from quadrat.model.arguments import IGNORED, LABELS, POSITIONS
from quadrat.model.attention import PREFIX
from quadrat.model.backbone import MADE_POSITIONS, Path, padding_token
from quadrat.model.proof import kinds_of_places

_EXACT_ROWS = 16  # more rows are of one form up to the next power of two


@dataclass(frozen=True)
class Way:
    """How calls are computed.

    places: names of the modules that are taken apart, below the one that is called; "" is that one. positions: a key of
    MADE_POSITIONS. shifted: whether the loss predicts a label from the token before it. paths: for each place, the
    outputs with a place for each token, and whether they have the last columns alone. tokenwise: instead of places,
    names of modules that work token by token. shared: whether rows share their beginnings. bounded: the batch is flat
    already, and its boundaries go to attention.
    """

    places: tuple[str, ...]
    positions: str = "columns"
    shifted: bool = False
    paths: Mapping[str, Mapping[Path, int]] = field(default_factory=dict, hash=False, compare=False)
    tokenwise: tuple[str, ...] = ()
    shared: bool = False
    bounded: bool = False


def flat_ways(module: Any, arguments: dict[str, Any], mask: Any) -> Iterator[Way]:
    """The model and the models within it taken apart, with the positions that models make."""
    ids, padding = arguments.get("input_ids"), padding_token(module.config)
    ids = None if ids is None else ids.reshape(mask.shape)
    numbers = {name: make(mask, ids, padding)[mask] for name, make in MADE_POSITIONS.items()}
    names: list[str] = []
    for name in numbers if arguments.get(POSITIONS) is None else ["columns"]:
        if not any(torch.equal(numbers[name], numbers[other]) for other in names):
            names.append(name)
    for places in _places(module):
        for positions in names:
            for shifted in (True, False) if places == ("",) and LABELS in arguments else (False,):
                yield Way(places, positions, shifted)


def sentence_of(module: Any, way: Way) -> str:
    """A sentence that says how a model computes a call."""
    if way.bounded:
        return f"{type(module).__name__} computes rows of flat batches apart, by their boundaries"
    if way.tokenwise:
        return f"{len(way.tokenwise)} modules of {type(module).__name__} compute real tokens alone, each by itself"
    inner = ", ".join(type(module.get_submodule(name)).__name__ for name in way.places)
    return f"{inner} computes real tokens alone" + (", and beginnings that rows share once" if way.shared else "")


def _places(module: Any) -> Iterator[tuple[str, ...]]:
    """Modules to be taken apart: the model, the models within it, and so on."""
    level: tuple[str, ...] = ("",)
    while level:
        yield level
        if len(level) > 1:
            yield from ((name,) for name in level)
        level = tuple(name for outer in level for name in _models_within(module, outer))


def _models_within(module: Any, outer: str) -> Iterator[str]:
    """The names of the nearest models within one."""
    for name, inner in module.get_submodule(outer).named_children():
        path = f"{outer}.{name}".removeprefix(".")
        if isinstance(inner, PreTrainedModel):
            yield path
        else:
            yield from _models_within(module, path)


def form_of(module: Any, arguments: dict[str, Any], mask: Any) -> tuple[Any, tuple[int, ...]]:
    """The form of a call, and its sizes, with one wait for a GPU.

    The form is all that decides how a call is computed, but for its sizes: the longest row, the width, and the power of
    two of the share of padding.
    """
    rows, device = len(mask), mask.device.type
    values: list[tuple[Any, ...]] = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            values.append((name, value.dim(), value.dtype))
        elif isinstance(value, bool):
            values.append((name, value))
        elif isinstance(value, int):
            values.append((name, 0 < value < mask.shape[1]))  # such as a number of last columns
        elif value is not None:
            values.append((name, type(value)))
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    configs = module.config, module.config.get_text_config()
    implementation = tuple(str(config._attn_implementation).removeprefix(PREFIX) for config in configs)
    count = rows if rows <= _EXACT_ROWS else 1 << (rows - 1).bit_length()
    facts, sizes = _facts(module, arguments, mask)
    return (tuple(values), autocast, implementation, count, facts), sizes


def _facts(module: Any, arguments: dict[str, Any], mask: Any) -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """Where padding is, and what ids and labels are there; the sizes of a call."""
    _, after, *of_padding = kinds_of_places(mask)
    lengths, ids, labels = mask.sum(1), arguments.get("input_ids"), arguments.get(LABELS)
    facts = [after.any(), ((after.sum(1) + mask[:, 0]) > 1).any(), (lengths == 0).any(), lengths.max(), lengths.sum()]
    if ids is not None:
        padded = ids.reshape(mask.shape) == padding_token(module.config)
        facts += [(padded & mask).any(), (~padded & ~mask).any()]
    if isinstance(labels, torch.Tensor) and labels.shape == mask.shape:
        used = labels != IGNORED
        facts += [(used & places).any() for places in (after, *of_padding)]
    numbers = torch.stack(facts).tolist()
    padding = math.frexp(1 - numbers[4] / mask.numel())[1]
    return tuple(map(bool, numbers[:3] + numbers[5:])), (int(numbers[3]), mask.shape[1], padding)
