"""`model.forward` that runs the hooks of its model where sentence-transformers or PEFT call it without them."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

from quadrat.support.tensors import recording

_thread = threading.local()
_ADDED = "_quadrat_forward"


def called() -> list[Any]:
    """The models whose hooks have run in this thread, and whose `forward` follows."""
    if not hasattr(_thread, "called"):
        _thread.called = []
    return _thread.called  # type: ignore[no-any-return]


@functools.cache
def _with_hooks(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The `forward` of a class, which calls the model if its hooks have not run for this call."""

    @functools.wraps(forward)
    def run(module: Any, *args: Any, **kwargs: Any) -> Any:
        calls = called()
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
