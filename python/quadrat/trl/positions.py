"""Whether padding in front of a row, or behind it, changes what a model computes: the model is asked, with one row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from quadrat.support.around import replaced

# Mean differences of log-probabilities that rounding explains, with and without half precision.
_ROUNDED_HALF, _ROUNDED = 5e-2, 1e-3
_ULPS = 8  # of the inputs of the first layer, which are looked up
_MOST_TOKENS = 512  # of the row


class Sides(NamedTuple):
    """The sides at which columns of padding make no difference to a model."""

    left: bool
    right: bool
    why: str


def sides_of(model: Any, row: torch.Tensor, width: int, logps: Callable[..., torch.Tensor], *, half: bool) -> Sides:
    """Compute a row, `[tokens]`, without padding, with columns in front and behind, and with columns behind only.

    Always three passes without gradient, so that all processes of a sharded model make the same ones.
    `logps(model, ids, mask, kept)` returns the log-probabilities, `[1, kept]`, of the last `kept` ids; ids and mask are
    `[1, columns]`.
    """
    row = row[:_MOST_TOKENS] if row.numel() > 1 else row.new_tensor([0, 1])
    tokens, kept = row.numel(), max(1, row.numel() // 2)
    mask = torch.ones_like(row)

    def computed(before: int, after: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        ids = torch.nn.functional.pad(row, (before, after), value=int(row[0]))[None]
        padded = torch.nn.functional.pad(mask, (before, after))[None]
        with _first_inputs(model, ids.size(1)) as seen:
            found = logps(model, ids, padded, kept + after)
        return found[0, :kept].float(), [one[0, before : before + tokens] for one in seen]

    with torch.no_grad(), replaced(*((module, "training", module.training) for module in model.modules())):
        model.eval()  # without dropout, and without a draw from a generator
        alone = computed(0, 0)
        shifted = computed(max(1, width - tokens), 1)
        wider = computed(0, max(1, width - tokens))
    grows = next((one for one in map(_growing, model.modules()) if one), None)
    if grows is not None:
        return Sides(left=False, right=False, why=f"the frequencies of its positions depend on the width ({grows})")
    if not _alike(alone, wider, half=half):
        return Sides(left=False, right=False, why="padding behind a row changes what it computes")
    if not _alike(alone, shifted, half=half):
        return Sides(left=False, right=True, why="it computes a row differently after padding: positions are absolute")
    return Sides(left=True, right=True, why="it computes a row alike wherever the row begins")


def _alike(one: tuple[Any, list[Any]], two: tuple[Any, list[Any]], *, half: bool) -> bool:
    """True if log-probabilities are close, and the inputs of the first layer the same."""
    for before, after in zip(one[1], two[1], strict=False):
        ulp = _ULPS * torch.finfo(before.dtype).eps
        if not torch.allclose(before, after, rtol=ulp, atol=ulp * before.abs().max().item()):
            return False
    return bool((one[0] - two[0]).abs().mean() <= (_ROUNDED_HALF if half else _ROUNDED))


def _growing(module: nn.Module) -> str | None:
    """The kind of rotary embedding whose frequencies change with the longest position, if it is one."""
    kinds = getattr(module, "rope_type", None)
    return next((one for one in ("dynamic", "longrope") if one in str(kinds)), None)


@contextmanager
def _first_inputs(model: nn.Module, columns: int) -> Iterator[list[torch.Tensor]]:
    """What the first layer of each list of layers gets, as far as it has a vector for each column."""
    seen: list[torch.Tensor] = []

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for one in (*args[:1], kwargs.get("hidden_states")):
            if isinstance(one, torch.Tensor) and one.is_floating_point() and one.ndim == 3 and one.size(1) == columns:
                seen.append(one.detach())

    firsts = [module[0] for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)][:1]
    hooks = [one.register_forward_pre_hook(look, with_kwargs=True) for one in firsts]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
