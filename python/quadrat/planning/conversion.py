"""`convert_to_tensors`, as the method of `BatchEncoding`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from transformers import BatchEncoding
from transformers.utils import TensorType

from quadrat import _core
from quadrat.installed import originals
from quadrat.installed.imitated import PADDING, Imitation
from quadrat.planning.compared import reference_is_running
from quadrat.planning.dispatch import Imitator, call
from quadrat.planning.fallback import AS_FAST, OTHER_TENSORS, FallBack
from quadrat.planning.plan_cache import check_device
from quadrat.support import columns as col
from quadrat.support.kinds import Framework, default_float_kind
from quadrat.support.memory import interop
from quadrat.support.tensors import is_tensor

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
    if reference_is_running():
        return originals.CONVERT_TO_TENSORS(encoding, tensor_type, prepend_batch_axis)  # type: ignore[no-any-return]
    return call(_function, (encoding, tensor_type, prepend_batch_axis), framework_of(tensor_type))  # type: ignore[no-any-return]


class _Conversion(Imitator):
    _imitates = Imitation("convert_to_tensors", PADDING[-1:])

    def _look(self, arguments: Any) -> tuple[Any, ...]:
        encoding, tensor_type, prepend_batch_axis = arguments
        framework = framework_of(tensor_type)
        data: Any = encoding.data if type(encoding) is BatchEncoding else None
        # A `BatchEncoding` gives its values only by keys that are strings.
        if framework is None or type(data) is not dict or not all(type(name) is str for name in data):
            raise FallBack("a BatchEncoding of another class or framework", OTHER_TENSORS)
        values = {name: [value] for name, value in data.items()} if prepend_batch_axis else data
        sources = {name: rows for name, rows in values.items() if _is_rows(rows)}
        if not sources:
            raise FallBack("no value is a list of numbers or of rows", AS_FAST)
        columns, plain = _core.Columns(), interop(shares=False)
        for rows in sources.values():
            columns.add_values(rows, plain)
        return arguments, tuple(sources), columns, default_float_kind(framework), plain

    def _columns(self, rows: Any, framework: Any) -> tuple[tuple[str, ...], _core.Columns, Any]:
        _, names, columns, float_kind, _ = rows
        return names, columns, (framework, float_kind)

    def _plan(self, rows: Any, framework: Any) -> Any:
        """The encoding with tensors of values that can be proven identical, and the reference's of all others."""
        (encoding, tensor_type, prepend_batch_axis), names, columns, float_kind, plain = rows
        check_device(framework)
        steps = list(_steps(names, columns.signature(0, 1), float_kind))
        tensors: Any = {}
        while steps:
            tensors = columns.run(tuple(steps), {}, plain, framework == "pt", col.BatchLayout())
            if type(tensors) is not tuple:
                break
            del steps[tensors[0]]  # what its rows hold is known to the reference alone
        return _filled(tensors if steps else {}, tensor_type, prepend_batch_axis, encoding)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return lambda arguments: originals.CONVERT_TO_TENSORS(*arguments)


_function = type("convert_to_tensors", (_Conversion,), {})()  # logs show its name


def _filled(tensors: dict[str, Any], tensor_type: Any, prepend_batch_axis: bool, encoding: Any) -> Any:
    """The encoding with these tensors, and those that the reference makes of the other values."""
    if not tensors:
        return originals.CONVERT_TO_TENSORS(encoding, tensor_type, prepend_batch_axis)
    data = encoding.data
    for name, value in list(data.items()):
        if name in tensors:
            data[name] = tensors[name]
        elif prepend_batch_axis or not (is_tensor(value) if tensor_type == "pt" else isinstance(value, np.ndarray)):
            data[name] = _filled({}, tensor_type, prepend_batch_axis, BatchEncoding({name: value}))[name]
    return encoding


def framework_of(tensor_type: Any) -> Framework | None:
    """The framework that `return_tensors` names; None for others."""
    if type(tensor_type) not in (str, TensorType):
        return None
    return "pt" if tensor_type == "pt" else "np" if tensor_type == "np" else None


def _is_rows(value: Any) -> bool:
    return (
        type(value) in (list, tuple) and bool(value) and not (type(value) is tuple and isinstance(value[0], np.ndarray))
    )


@functools.lru_cache(maxsize=1024)
def _steps(names: tuple[str, ...], signature: bytes, float_kind: int | None) -> tuple[col.Step, ...]:
    """The steps of all columns but those where the reference decides."""
    steps: list[col.Step] = []
    for index, (name, shape) in enumerate(zip(names, col.column_shapes(signature), strict=True)):
        kind = col.inferred_kind(shape.kinds, float_kind)
        if shape.forms & ~(col.DEEP | col.DERIVED) == col.ARRAY and shape.equal and shape.kinds in col.KEPT_KINDS:
            steps.append((name, index, col.STACK, shape.kinds.bit_length() - 1))
        elif kind is not None and shape.forms == col.NUMBER:
            steps.append((name, index, col.NUMBERS, kind))
        elif kind is not None and shape.equal and not shape.forms & ~(col.PYTHON_ROWS | col.DEEP):
            steps.append((name, index, col.STACK, kind))
    return tuple(steps)
