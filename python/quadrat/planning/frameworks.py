"""`return_tensors` "tf" and "jax": the NumPy batch, converted. On 4.57 the reference makes most "tf" batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from quadrat.installed.behaviour import HAS_TENSORFLOW
from quadrat.planning.fallback import OTHER_TENSORS, fall_back
from quadrat.support.extras import needs

# return_tensors -> module, its function that takes an array
_LIBRARIES = {"tf": ("tensorflow", "convert_to_tensor"), "jax": ("jax.numpy", "asarray")}


def tf_or_jax(return_tensors: Any) -> str | None:
    """ "tf" or "jax" when that is what `return_tensors` says, in whatever form; else None."""
    return next((name for name in _LIBRARIES if return_tensors == name), None)


def collate_tf_or_jax(
    collator: Any,
    framework: str,
    features: Any,
    numpy_call: Callable[[Any, Any], Any],
    reference: Callable[[Any], Any] | None,
) -> Any:
    """The batch of `numpy_call(collator, features)`, its arrays converted; of `reference`, for "tf" on 4.x.

    Raises ModuleNotFoundError without the framework, before anything is drawn.
    """
    module, function = _LIBRARIES[framework]
    with needs(f"return_tensors={framework!r}"):
        convert = getattr(importlib.import_module(module), function)
    if framework == "tf" and HAS_TENSORFLOW and reference is not None:
        return fall_back(collator, reference, features, ("return_tensors='tf'", OTHER_TENSORS))
    if getattr(collator, "return_tensors", None) != framework:
        batch = numpy_call(collator, features)
    else:
        # A second view of the collator, because other threads may be using this one; what is set there is set here too.
        view, before = object.__new__(type(collator)), {**vars(collator), "return_tensors": "np"}
        vars(view).update(before)
        try:
            batch = numpy_call(view, features)
        finally:
            own = vars(view).items()
            vars(collator).update({name: value for name, value in own if before.get(name, view) is not value})
    if isinstance(batch, MutableMapping):
        for name, value in batch.items():
            if type(value).__module__ == "torch":
                batch[name] = convert(value.numpy())
            elif isinstance(value, np.ndarray):
                batch[name] = convert(value)
    return batch
