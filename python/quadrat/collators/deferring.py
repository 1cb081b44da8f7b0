"""`deferred=True`: what a collator returns becomes a `DeferredBatch`, unless it is one already."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from quadrat.batch import DeferredBatch

_Call = TypeVar("_Call", bound=Callable[..., Any])


def deferring(call: _Call) -> _Call:
    """A method of a collator that makes batches and heeds its option `deferred`.

    Raises:
        ValueError: where a deferred batch is asked for, and not of torch tensors.
    """

    @functools.wraps(call)
    def wrapper(self: Any, features: Any, return_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        given = () if return_tensors is None and not args else (return_tensors, *args)
        if not self.deferred:
            return call(self, features, *given, **kwargs)
        framework = self.return_tensors if return_tensors is None else return_tensors
        if framework != "pt":
            raise ValueError(f"deferred=True makes torch tensors: return_tensors must be 'pt', not {framework!r}")
        batch = call(self, features, *given, **kwargs)
        return batch if isinstance(batch, DeferredBatch) else DeferredBatch(batch)

    return wrapper  # type: ignore[return-value]
