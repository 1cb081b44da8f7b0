"""`convert_to_tensors`: what `BatchEncoding.convert_to_tensors` does, without its walk over every nested list."""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import BatchEncoding
from transformers.utils import TensorType

from quadrat import _core
from quadrat.input import columns as col
from quadrat.installed import originals
from quadrat.planning.fallback import FallBack, require_known
from quadrat.planning.plan import check_device
from quadrat.support.memory import Framework, default_float_kind, interop

_SEQUENCES = (list, tuple)

Encoding = TypeVar("Encoding")


def convert_to_tensors(encoding: Encoding, tensor_type: Any = None, prepend_batch_axis: bool = False) -> Encoding:
    """Convert the values of a `BatchEncoding` to tensors, in place, as its method `convert_to_tensors` does.

    Args:
        encoding: its keys keep their order, and values that are already tensors do not change.
        tensor_type: "pt", "np" or a `TensorType`; None changes nothing.
        prepend_batch_axis: whether each value becomes a batch of one.

    Returns:
        The encoding. Lists of numbers, and lists of equally long lists of them, are converted in compiled code.

    Raises:
        ValueError: as in transformers, for a value that cannot become a tensor. The values before it are converted.
        ImportError: for a framework that is not installed.

    Examples:
        >>> import quadrat
        >>> from transformers import BatchEncoding
        >>> encoding = BatchEncoding({"input_ids": [[5, 6], [7, 8]]})
        >>> quadrat.tokenizers.convert_to_tensors(encoding, "pt")["input_ids"]
        tensor([[5, 6],
                [7, 8]])
    """
    if tensor_type is None:
        return encoding
    framework = framework_of(tensor_type)
    data: Any = encoding.data if type(encoding) is BatchEncoding else None  # type: ignore[attr-defined]
    # A `BatchEncoding` gives its values only by keys that are strings.
    if framework is None or type(data) is not dict or not all(type(name) is str for name in data):
        return originals.CONVERT_TO_TENSORS(encoding, tensor_type, prepend_batch_axis)  # type: ignore[no-any-return]
    values = {name: [value] for name, value in data.items()} if prepend_batch_axis else data
    made = _converted(values, framework)
    if not made:
        return originals.CONVERT_TO_TENSORS(encoding, tensor_type, prepend_batch_axis)  # type: ignore[no-any-return]
    for name, value in list(data.items()):
        if name in made:
            data[name] = made[name]
        elif prepend_batch_axis or not isinstance(value, torch.Tensor if framework == "pt" else np.ndarray):
            one = BatchEncoding({name: value})
            data[name] = originals.CONVERT_TO_TENSORS(one, tensor_type, prepend_batch_axis)[name]
    return encoding


def framework_of(tensor_type: Any) -> Framework | None:
    """The framework that `return_tensors` names; None for others."""
    if type(tensor_type) not in (str, TensorType):
        return None
    return "pt" if tensor_type == "pt" else "np" if tensor_type == "np" else None


def stack_nested_lists(values: list[Any], framework: Framework) -> Any:
    """Lists of lists of numbers, all of one shape, as one tensor; None for others, and where it is not known."""
    return _converted({"": values}, framework).get("") if is_nested_list(values[0]) else None


def is_nested_list(value: Any) -> bool:
    """Whether a value begins as a list of lists does."""
    return type(value) in _SEQUENCES and bool(value) and type(value[0]) in _SEQUENCES


def _converted(values: dict[str, Any], framework: Framework) -> dict[str, Any]:
    """The tensors of the values that are known to become what the reference makes of them."""
    try:
        require_known("convert_to_tensors", framework)
        check_device(framework)
    except FallBack:
        return {}
    sources = {name: source for name, value in values.items() if (source := _source_of(value)) is not None}
    names, plain = list(sources), interop(shares=False)
    columns = _core.Columns()
    for rows, _ in sources.values():
        columns.add_values(rows, plain)
    if not names:
        return {}
    steps = list(_steps(tuple(names), columns.signature(0, 1), default_float_kind(framework)))
    made: Any = {}
    while steps:
        made = columns.run(tuple(steps), {}, plain, framework == "pt", col.BatchLayout())
        if type(made) is not tuple:
            break
        del steps[made[0]]  # what its rows hold is known to the reference alone
        made = {}
    for name, (_, around) in sources.items():
        if around and name in made:
            made[name] = made[name].reshape(*around, *made[name].shape[1:])
    return made  # type: ignore[no-any-return]


def _source_of(value: Any) -> tuple[Any, tuple[int, ...]] | None:
    """A list, or lists of equally long lists, as rows, and the dimensions around them; None for all else."""
    if type(value) not in _SEQUENCES or not value or (type(value) is tuple and type(value[0]) is np.ndarray):
        return None
    shape = [len(value)]
    while type(value[0]) in _SEQUENCES and value[0] and type(value[0][0]) in _SEQUENCES:
        width = len(value[0])
        if any(type(part) not in _SEQUENCES or len(part) != width for part in value):
            return None
        shape.append(width)
        value = list(chain.from_iterable(value))
    return value, tuple(shape) if len(shape) > 1 else ()


@functools.lru_cache(maxsize=1024)
def _steps(names: tuple[str, ...], signature: bytes, float_kind: int | None) -> tuple[col.Step, ...]:
    """One step for each column that is known."""
    found = [_step(shape, float_kind) for shape in col.column_shapes(signature)]
    return tuple((name, index, *step) for index, (name, step) in enumerate(zip(names, found, strict=True)) if step)


def _step(shape: col.ColumnShape, float_kind: int | None) -> tuple[int, int] | None:
    """Action and kind for a column; None where the reference had better decide."""
    if shape.forms == col.ARRAY and shape.equal and shape.kinds in col.KEPT_KINDS:
        return col.STACK, shape.kinds.bit_length() - 1
    kind = col.inferred_kind(shape.kinds, float_kind)
    if kind is None:
        return None
    if shape.forms == col.NUMBER:
        return col.NUMBERS, kind
    return (col.STACK, kind) if shape.equal and not shape.forms & ~col.PYTHON_ROWS else None
