"""Outputs of batches, each row put in its place: arrays, lists, `Ragged`, and mappings and tuples of these."""

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray, is_array, is_kept, require_unmasked
from quadrat.support.tensors import is_tensor

_NAMED = 8  # rows of a batch that an error names


class Restoring(NamedTuple):  # where the rows of batches go
    total: int  # of all rows
    numbers: Sequence[IntArray]  # of the rows of each batch
    padding: Any

    def restored(self, outputs: Sequence[Any], name: str = "output") -> Any:
        """The outputs as one, in the structure of the first. Raises TypeError or ValueError unless each row has one."""
        first, structure = outputs[0], _structure(outputs[0])
        for rows, output in zip(self.numbers, outputs, strict=True):
            if _structure(output) != structure:
                both = self._both(_shown(output), rows, _shown(first))
                raise TypeError(f"{name} is {both}: each batch must give the same")
        if isinstance(first, (Mapping, tuple)):
            keys = list(first) if isinstance(first, Mapping) else range(len(first))
            parts = {key: self.restored([output[key] for output in outputs], f"{name}[{key!r}]") for key in keys}
            return _like(first, parts)
        if first is None and name != "output":
            return None
        for rows, output in zip(self.numbers, outputs, strict=True):
            if not (isinstance(output, (list, Ragged)) or (is_array(output) and output.ndim)):
                raise TypeError(
                    f"{name} is {_shown(output)} for {named(rows)}, and has no rows: give an array, a list or a Ragged "
                    "with one value for each row, or a mapping or tuple of these"
                )
            if len(output) != len(rows):
                raise ValueError(
                    f"{name} has {len(output)} rows for a batch of {len(rows)}, {named(rows)}: give one for each row, "
                    "in the order of the batch"
                )
        if is_array(first):
            return self._array(outputs, name)
        return self._ragged(outputs) if isinstance(first, Ragged) else self._list(outputs)

    def _both(self, shown: Any, rows: IntArray, first: Any) -> str:
        return f"{shown} for {named(rows)}, and {first} for {named(self.numbers[0])}"

    def _list(self, lists: Sequence[list[Any]]) -> list[Any]:
        items = dict(zip(np.concatenate(self.numbers).tolist(), itertools.chain.from_iterable(lists), strict=True))
        return [items[row] for row in range(self.total)]

    def _array(self, arrays: Sequence[Any], name: str) -> Any:
        torch: Any = sys.modules["torch"] if is_tensor(arrays[0]) else None
        first, shape = arrays[0], arrays[0].shape
        for rows, array in zip(self.numbers, arrays, strict=True):
            require_unmasked(array, name)
            if torch and array.layout is not torch.strided:
                raise TypeError(f"{name} is a tensor of layout {array.layout} for {named(rows)}: give its to_dense()")
            if array.ndim != first.ndim or array.shape[2:] != shape[2:]:
                both = self._both(tuple(array.shape), rows, tuple(shape))
                raise ValueError(
                    f"{name} has the shape {both}: only the second dimension may differ; give a list with one item for "
                    "each row instead"
                )
        dtype = functools.reduce((torch or np).promote_types, {array.dtype for array in arrays})
        widths = {array.shape[1:2] for array in arrays}
        shape = self.total, *max(widths), *shape[2:]
        fill = self._padding_of(dtype, name, torch or np) if len(widths) > 1 else 0
        whole = first.new_full(shape, fill, dtype=dtype) if torch else np.full(shape, fill, dtype)
        for rows, array in zip(self.numbers, arrays, strict=True):
            places = torch.from_numpy(rows).to(whole.device) if torch else rows
            target = (places, slice(array.shape[1])) if len(widths) > 1 else places
            whole[target] = array.to(whole) if torch else array
        return whole

    def _padding_of(self, dtype: Any, name: str, library: Any) -> Any:
        """The padding value. Raises ValueError where it is no number of the dtype."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # of one number, torch lets small floats overflow
                if is_kept(self.padding, library.full((2,), self.padding, dtype=dtype)[0].item()):
                    return self.padding
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
        raise ValueError(
            f"{name} has batches of several widths, and padding_value={self.padding!r} is not one of "
            f"{str(dtype).rpartition('.')[2]}: give another one, or a list or a Ragged with one item for each row"
        )

    def _ragged(self, parts: Sequence[Any]) -> Any:
        values = [part.values[part.facts.first : part.facts.last] for part in parts]
        lengths = [part.lengths for part in parts]
        if is_tensor(values[0]):
            values, lengths = ([part.to(values[0].device) for part in column] for column in (values, lengths))
        join = sys.modules["torch"].cat if is_tensor(values[0]) else np.concatenate
        rows, order = np.concatenate(self.numbers), np.empty(self.total, np.int64)
        order[rows] = np.arange(len(rows))
        return Ragged.of_lengths(join(values), join(lengths))[order]


def row_of(whole: Any, row: int) -> Any:
    if isinstance(whole, (list, Ragged)) or is_array(whole):
        return whole[row]
    return _mapped(functools.partial(row_of, row=row), whole)


def in_host_memory(whole: Any) -> Any:
    """Outputs, whose tensors and `Ragged` are in host memory, without gradients, and no views of larger ones."""
    if isinstance(whole, Ragged):
        return Ragged(in_host_memory(whole.values), in_host_memory(whole.offsets))
    return whole.detach().to("cpu", copy=True) if is_tensor(whole) else _mapped(in_host_memory, whole)


def named(rows: IntArray) -> str:
    some = ", ".join(map(str, rows[:_NAMED].tolist()))
    return f"row{'s' * (len(rows) > 1)} {some}" + f" and {len(rows) - _NAMED} more" * (len(rows) > _NAMED)


def _mapped(function: Callable[[Any], Any], whole: Any) -> Any:
    """A mapping or a tuple with what a function makes of each part; anything else as it is."""
    if isinstance(whole, Mapping):
        return _like(whole, {key: function(part) for key, part in whole.items()})
    return _like(whole, dict(enumerate(map(function, whole)))) if isinstance(whole, tuple) else whole


def _like(model: Any, parts: dict[Any, Any]) -> Any:
    if isinstance(model, Mapping):
        mapping: Any = copy.copy(model)
        for key, part in parts.items():
            mapping[key] = part
        return mapping
    values = list(parts.values())
    return model._make(values) if hasattr(model, "_make") else type(model)(values)


def _structure(output: Any) -> Any:
    if is_tensor(output):
        return "tensor"
    return type(output), frozenset(output) if isinstance(output, Mapping) else _shown(output)


def _shown(output: Any) -> str:
    parts = list(output) if isinstance(output, Mapping) else len(output) if isinstance(output, tuple) else None
    return f"a {type(output).__name__}" + ("" if parts is None else f" of {parts}")
