"""The forms in which rows can be given to a `pad`, and what is seen of a call of it."""

import warnings
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from support.compare import frozen


def columns_of(rows: Any) -> Any:
    return {name: [row[name] for row in rows] for name in rows[0]}


def stacked(rows: Any) -> Any:
    """Columns as arrays and tensors, where they are that."""
    columns = columns_of(rows)
    for name, values in columns.items():
        try:
            if all(isinstance(value, (np.ndarray, np.generic)) for value in values):
                columns[name] = np.stack(values)
            elif all(isinstance(value, torch.Tensor) for value in values):
                tensor = torch.stack(values)
                columns[name] = tensor.detach().requires_grad_(tensor.requires_grad)  # which torch can copy
        except (TypeError, ValueError, RuntimeError):
            continue
    return columns


def forms(cls: Any) -> dict[str, Callable[[Any], Any]]:
    """By name: what makes the form of rows. cls: the library's own mapping."""
    return {
        "list": list,
        "tuple": tuple,
        "columns": columns_of,
        "own columns": lambda rows: cls(columns_of(rows)),
        "stacked": stacked,
        "one": lambda rows: dict(rows[0]),
        "one of its own": lambda rows: cls(dict(rows[0])),
        "several": lambda rows: [cls(dict(row)) for row in rows],
        "mixed": lambda rows: [rows[0], *(cls(dict(row)) for row in rows[1:])],
    }


def observed(call: Callable[[Any], Any], features: Any, unsaid: Collection[str] = ()) -> tuple[tuple[str, Any], Any]:
    """The outcome of a call, and what else it did: warnings, but those with `unsaid`, and what became of its inputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = "returned", call(features)
        except Exception as error:
            result = "raised", error
    pairs = [(warning.category, str(warning.message)) for warning in caught]
    return result, ([warning for warning in pairs if not any(part in warning[1] for part in unsaid)], frozen(features))
