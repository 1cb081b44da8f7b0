"""Arrow data made by hand, so that what it says of itself can be wrong; without a look at pyarrow."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

_ELEMENTS = 64  # of 8 bytes in every buffer: whatever type is given for it, elements up to this one are memory


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Schema(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_char_p, "format name metadata"),
        *_fields(ctypes.c_int64, "flags n_children"),
        *_fields(ctypes.c_void_p, "children dictionary release private_data"),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_int64, "length null_count offset n_buffers n_children"),
        *_fields(ctypes.c_void_p, "buffers children dictionary release private_data"),
    ]


class Stream(ctypes.Structure):
    _fields_ = _fields(ctypes.c_void_p, "get_schema get_next get_last_error release private_data")


_numbers = itertools.count(1)  # of the parts, which say it in `private_data`
_released: list[tuple[int, str]] = []


def _releasing(kind: type[Any]) -> Any:
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(kind))
    def release(part: Any) -> None:
        _released.append((part.contents.private_data, kind.__name__))
        part.contents.release = None

    return release


_RELEASE = {kind: _releasing(kind) for kind in (Schema, Array, Stream)}
_NAMES = {Schema: b"arrow_schema", Array: b"arrow_array", Stream: b"arrow_array_stream"}
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def forget_released() -> None:
    _released.clear()


def address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def pointers(*to: Any) -> Any:
    """An array of pointers; None is a null pointer."""
    return (ctypes.c_void_p * max(len(to), 1))(*to)


class Part:
    """A schema and an array, which belong together until a test changes them.

    Args:
        format: Arrow's name of the type.
        length: how many elements there are.
        buffers: NumPy arrays, or None.
        children: the parts this one has.
        name: of the column.
        exact: whether the buffers end where their contents do. A changed part may then lead to memory that is not its.
    """

    def __init__(
        self,
        format: str,
        length: int,
        buffers: Sequence[Any],
        children: Sequence[Part] = (),
        *,
        name: str = "",
        exact: bool = False,
    ) -> None:
        self.number = next(_numbers)
        self.parts = list(children)
        self.buffers = [buffer if buffer is None or exact else _roomy(buffer) for buffer in buffers]
        self.schema = Schema(format.encode(), name.encode(), None, 0, len(self.parts))
        self.array = Array(length, 0, 0, len(self.buffers), len(self.parts))
        self.set_children(*self.parts)
        self.set_buffers(*self.buffers)
        self.schema.release = address(_RELEASE[Schema])
        self.array.release = address(_RELEASE[Array])
        self.schema.private_data = self.array.private_data = self.number

    def set_buffers(self, *buffers: Any) -> None:
        self._buffers = pointers(*(None if buffer is None else buffer.ctypes.data for buffer in buffers))
        self.array.buffers = ctypes.addressof(self._buffers)

    def set_children(self, *children: Part | None) -> None:
        self._schemas = pointers(*(None if child is None else ctypes.addressof(child.schema) for child in children))
        self._arrays = pointers(*(None if child is None else ctypes.addressof(child.array) for child in children))
        self.schema.children, self.array.children = map(ctypes.addressof, (self._schemas, self._arrays))

    def released(self) -> list[str]:
        """What of this was released, once for each time."""
        return sorted(kind for number, kind in _released if number == self.number)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return capsule(self.schema), capsule(self.array)


class Streamed:
    """A part as a stream of one array."""

    def __init__(self, part: Part) -> None:
        self.part, self.left, self.error = part, [part.array], 0

        def get_schema(_: Any, out: Any) -> int:
            ctypes.memmove(out, ctypes.addressof(part.schema), ctypes.sizeof(Schema))
            return 0

        def get_next(_: Any, out: Any) -> int:
            if self.left:
                ctypes.memmove(out, ctypes.addressof(self.left.pop()), ctypes.sizeof(Array))
            return self.error

        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self.functions = function(get_schema), function(get_next)
        self.stream = Stream(*map(address, self.functions), None, address(_RELEASE[Stream]))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return capsule(self.stream)


def capsule(part: Any) -> Any:
    return _new_capsule(ctypes.addressof(part), _NAMES[type(part)], None)


def numbers(values: list[int], name: str = "") -> Part:
    return Part("l", len(values), [None, np.array(values, np.int64)], name=name)


def lists(rows: list[list[int]], name: str = "") -> Part:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    items = numbers([number for row in rows for number in row], "item")
    return Part("+l", len(rows), [None, offsets], [items], name=name)


def text(values: list[str], name: str = "") -> Part:
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return Part("u", len(values), [None, offsets, np.frombuffer(b"".join(encoded), np.uint8)], name=name)


def table(*columns: Part) -> Part:
    return Part("+s", columns[0].array.length, [None], list(columns))


def _roomy(buffer: Any) -> Any:
    room = np.zeros(_ELEMENTS, np.int64)
    room.view(np.uint8)[: buffer.nbytes] = buffer.view(np.uint8)
    return room
