"""A deferred batch in all the ways it can become tensors, against the batch itself."""

import io
import pickle
from collections.abc import Callable, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import quadrat
from quadrat.deferred import layout
from support.compare import assert_identical, assert_same_batch, assert_same_outcome, assert_same_value
from support.on_device import emulated_launches


def pair(cls: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """A collator, and one that defers."""
    return cls(*arguments, **options), cls(*arguments, deferred=True, **options)


def on_emulated_device(deferred: quadrat.DeferredBatch) -> Any:
    """The batch as a device makes it: from a copy of the bytes, by the CUDA kernels."""
    with emulated_launches():
        return deferred._wrapped(layout.make(deferred._plan, deferred._buffer.clone()) | deferred._held)


def sent(deferred: quadrat.DeferredBatch) -> quadrat.DeferredBatch:
    """As between processes."""
    file = io.BytesIO()
    ForkingPickler(file, pickle.HIGHEST_PROTOCOL).dump(deferred)
    return pickle.loads(file.getvalue())


def assert_becomes(deferred: Any, expected: Mapping[str, Any]) -> None:
    """That a deferred batch becomes `expected`, however it gets there."""
    assert isinstance(deferred, quadrat.DeferredBatch)
    assert_same_batch(expected, on_emulated_device(deferred))
    assert list(deferred) == list(expected.keys())
    for name, value in reversed(list(expected.items())):
        assert name in deferred
        assert_same_value(name, value, deferred[name])
        assert deferred[name] is deferred[name]
    for one in (deferred, pickle.loads(pickle.dumps(deferred)), quadrat.DeferredBatch(expected)):
        assert len(one) == len(expected)
        for _ in range(2):
            assert_same_batch(expected, one.to("cpu"))


def _becomes(expected: tuple[str, Any], got: tuple[str, Any]) -> None:
    if expected[0] == got[0] == "returned":
        assert_becomes(got[1], expected[1])
    else:
        assert_same_outcome(expected, got)
        assert str(got[1]) == str(expected[1])


def assert_deferred(make: Callable[..., Any], features: Any, *, calls: int = 2) -> None:
    """The same batches or errors with and without `deferred`, the same generators, and features left alone."""
    assert_identical(make(), make(deferred=True), features, calls=calls, same=_becomes)
