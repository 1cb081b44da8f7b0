"""`model.forward` that runs the hooks of its model where sentence-transformers or PEFT call it without them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from quadrat.model.thread_state import THREAD
from quadrat.support.tensors import recording

_ADDED = "_quadrat_forward"


@functools.cache
def _with_hooks(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The `forward` of a class, which calls the model if its hooks have not run for this call."""

    @functools.wraps(forward)
    def run(module: Any, *args: Any, **kwargs: Any) -> Any:
        calls = THREAD.called
        # Replicas of a model share its bound method.
        if calls and (calls[-1] is module or getattr(calls[-1], "_is_replica", False)):
            module = calls.pop()
        elif _is_added(vars(module).get("forward")) and not recording():
            return module(*args, **kwargs)
        return forward(module, *args, **kwargs)

    setattr(run, _ADDED, True)
    return run


def _is_added(forward: Any) -> bool:
    return hasattr(forward, _ADDED)


def set_forward(module: Any) -> None:
    """Let a call of `module.forward` run the hooks, unless somebody else has replaced it."""
    if "forward" not in vars(module):
        # A bound method: a copy of the model has one of the copy.
        module.forward = types.MethodType(_with_hooks(type(module).forward), module)


def restore_forward(module: Any) -> None:
    """Let a call of `module.forward` run no hooks, as before."""
    if _is_added(vars(module).get("forward")):
        del module.forward
