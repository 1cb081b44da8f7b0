"""Models whose weights are sharded: each call gathers weights from all processes, so all call as often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

_SHARDED = ("FullyShardedDataParallel", "FlatParameter", "DTensor")


def is_sharded(model: Any) -> bool:
    """True where a call of a model waits for other processes."""
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return False
    things = [*model.parameters(), *model.modules()]
    return any(type(one).__name__ in _SHARDED or hasattr(one, "ds_id") for one in things)


def anybody_calls(calls: bool, device: torch.device) -> bool:
    """True if this process or another one calls its model once more; all processes ask."""
    flag = torch.tensor(int(calls), device=device)
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


class Lockstep:
    """The calls of a proof, which other processes accompany. Of a model that is not sharded nobody is asked."""

    def __init__(self, model: Any) -> None:
        self.sharded = is_sharded(model)
        self._device = next(model.parameters()).device

    def call(self, function: Callable[[], Any]) -> Any:
        """One call of the proof."""
        if self.sharded:
            anybody_calls(True, self._device)
        return function()

    def accompany(self, function: Callable[[], Any]) -> None:
        """Call as often as others still do."""
        while self.sharded and anybody_calls(False, self._device):
            function()
