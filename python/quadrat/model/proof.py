"""Whether a model gives the same without padding: it computes some rows of a batch both ways, and leaves no trace."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import distributed

from quadrat.model.arguments import IGNORED, KEPT_LOGITS, LABELS, POSITIONS

# The largest difference that rounding explains, relative to the largest number.
_ROUNDING = {torch.float64: 1e-11, torch.float32: 1.5e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
# Of models whose weights are sharded: each call gathers weights from all processes, so all call as often.
_SHARDED = ("FullyShardedDataParallel", "FlatParameter", "DTensor")
_CELLS = 16384  # of the batch that is computed twice, unless its rows cannot be taken apart


@contextlib.contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; then modes, random generators, buffers and attributes are as before."""
    cached = torch.is_autocast_cache_enabled()
    devices = sorted({parameter.device.index for parameter in model.parameters() if parameter.is_cuda})
    numpy_state, state = np.random.get_state(), random.getstate()
    modules = list(model.modules())
    attributes = [{**vars(module), "_buffers": dict(module._buffers)} for module in modules]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        # Without gradients, autocast must not keep weights: those of the training step need gradients.
        torch.set_autocast_cache_enabled(False)
        with torch.no_grad(), torch.random.fork_rng(devices):
            for module in modules:
                module.training = False
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)
        random.setstate(state)
        np.random.set_state(numpy_state)
        for buffer, values in buffers:
            if not buffer.is_meta and not torch.equal(buffer, values):
                buffer.detach().copy_(values)
        for module, before in zip(modules, attributes, strict=True):
            now = vars(module)
            module._buffers.clear()
            module._buffers.update(before.pop("_buffers"))
            # transformers notes that it has added hooks, which stay.
            for name in now.keys() - before.keys() - {"_buffers", "_output_capturing_hooks_installed"}:
                del now[name]
            now.update(before)


def some_rows(arguments: dict[str, Any], mask: Any, shared: Any) -> tuple[dict[str, Any], Any]:
    """The arguments of a call of a few of its rows, the longest and the shortest among them, and their mask.

    shared: rows that share their beginnings (SharedRows); then some of these. All rows where the batch is small, or
    where a tensor is not of its rows.
    """
    rows, width = mask.shape
    count = max(_CELLS // width, 4)
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor) and value.dim()}
    dims = {name: int(name == POSITIONS and tensor.dim() == 3) for name, tensor in tensors.items()}  # those of rows
    if rows <= count or any(tensors[name].shape[dim] not in (rows, 1) for name, dim in dims.items()):
        return dict(arguments), mask
    order = mask.sum(1).argsort(descending=True, stable=True)
    chosen = order[torch.linspace(0, rows - 1, count, device=order.device).round().long()].sort().values
    if shared is not None:
        chosen = shared.order()[:count].sort().values
    of_rows = {name: dim for name, dim in dims.items() if tensors[name].shape[dim] == rows}
    return arguments | {name: tensors[name].index_select(dim, chosen) for name, dim in of_rows.items()}, mask[chosen]


def telling_calls(arguments: dict[str, Any], mask: Any) -> list[dict[str, Any]]:
    """The call with labels that tell which tokens a loss reads: at all tokens that do not follow padding.

    Where it has labels at other places, each kind of them has a call: among many labels, a few hardly change a loss.
    """
    labels = arguments.get(LABELS)
    if not isinstance(labels, torch.Tensor) or labels.shape != mask.shape or labels.is_floating_point():
        return [arguments]
    used = labels != IGNORED
    values = torch.unique(labels[used]) if used.any() else labels.new_zeros(1)
    drawn = values[torch.arange(labels.numel(), device=labels.device).view_as(labels) * 7 % len(values)]
    kinds = [places for number, places in enumerate(kinds_of_places(mask)) if not number or (used & places).any()]
    return [arguments | {LABELS: drawn.masked_fill(~places, IGNORED)} for places in kinds]


def kinds_of_places(mask: Any) -> tuple[Any, Any, Any, Any]:
    """`[rows, width]`: tokens that do not follow padding, tokens that do; padding that does not, padding that does."""
    follows = torch.nn.functional.pad(~mask[:, :-1], (1, 0))
    return mask & ~follows, mask & follows, ~mask & ~follows, ~mask & follows


def leaves_of(output: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All tensors of an output, and where they are."""
    if isinstance(output, torch.Tensor):
        yield path, output
    elif isinstance(output, dict):
        for key, value in {**output, **getattr(output, "__dict__", {})}.items():  # attributes alone, where set later
            yield from leaves_of(value, (*path, key))
    elif isinstance(output, (list, tuple)):
        for place, value in enumerate(output):
            yield from leaves_of(value, (*path, place))


def tolerance(model: Any, device: str) -> float:
    """The largest difference that rounding explains, relative to the largest number of an output."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    return max((_ROUNDING.get(dtype, 0.0) for dtype in dtypes), default=_ROUNDING[torch.float32])


def difference(expected: Any, got: Any, arguments: dict[str, Any], mask: Any, most: float) -> str | None:
    """Where outputs of real tokens, and outputs without a place for each token, differ by more than rounding."""
    present, columns = dict(leaves_of(got)), arguments.get(KEPT_LOGITS)
    masks = mask, mask if columns is None else mask[:, slice(-columns, None) if isinstance(columns, int) else columns]
    for path, tensor in leaves_of(expected):
        name, value, other = ".".join(map(str, path)) or "the output", tensor, present.get(path)
        if path[:1] in (("past_key_values",), ("cache",)):
            continue
        if other is None or other.shape != tensor.shape or other.dtype != tensor.dtype:
            return f"{name} has another form"
        if (real := next((real for real in masks if tensor.shape[:2] == real.shape), None)) is not None:
            if tensor.dim() == 2:  # scores of rows, perhaps
                real = real | ~real.any(1, keepdim=True)
            value, other = tensor[real], other[real]
        least = _ROUNDING.get(value.dtype, 0.0)  # of a loss in float32
        # A mean over all tokens is rounded less than a number of one token.
        limit = max(most, least) if value.dim() else max(most / 8, least)
        if not (differs := _relative(value, other)) <= limit:
            return f"{name} differs by {differs:.1e}"
    return None


def _relative(value: Any, other: Any) -> float:
    """The largest difference relative to the largest number; infinite where one is not finite and the other is."""
    value, other = value.double(), other.double()
    finite = value.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return float("inf")
    value, other = value[finite], other[finite]
    return float((value - other).abs().max() / value.abs().max().clamp(min=1e-30)) if len(value) else 0.0


def identical(output: Any, other: Any) -> bool:
    """True if two outputs are equal to the last bit."""
    leaves, others = dict(leaves_of(output)), dict(leaves_of(other))
    return leaves.keys() == others.keys() and all(
        torch.equal(value.nan_to_num(), others[path].nan_to_num()) for path, value in leaves.items()
    )


def is_sharded(model: Any) -> bool:
    """True where a call of a model waits for other processes."""
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return False
    parts = [*model.parameters(), *model.modules()]
    return any(type(part).__name__ in _SHARDED or hasattr(part, "ds_id") for part in parts)


class Lockstep:
    """The calls of a proof, which other processes accompany. Of a model that is not sharded nobody is asked."""

    def __init__(self, model: Any) -> None:
        self.sharded = is_sharded(model)
        self._device = next(model.parameters()).device

    def _anybody_calls(self, calls: bool) -> bool:
        """True if this process or another one calls its model once more; all processes ask."""
        flag = torch.tensor(int(calls), device=self._device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag)

    def call(self, function: Callable[[], Any]) -> Any:
        """One call of the proof."""
        if self.sharded:
            self._anybody_calls(True)
        return function()

    def accompany(self, function: Callable[[], Any]) -> None:
        """Call as often as others still do."""
        while self.sharded and self._anybody_calls(False):
            function()
