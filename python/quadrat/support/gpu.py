"""The launcher of the CUDA kernels, which queue work on torch's current stream: nothing here waits for the GPU.

Addresses are of the device's memory, which the caller keeps until torch may free it on that stream.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quadrat import _core

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("quadrat")


class PadColumn(NamedTuple):
    """An output of pad_columns, `[rows, width, inner]`."""

    values: int  # the address of `[values_size, inner]`; 0 where `one` stands for the tokens, as in an attention mask
    values_size: int  # in tokens
    offsets: int  # the address of `[rows + 1]` int64, in tokens
    width: int  # the padded length
    left: bool  # whether padding goes to the left
    item: int  # the bytes of an element
    inner: int  # the elements of a token
    one: int  # the bits of one element
    fill: int  # the bits of one element of padding
    out: int  # the address of the output


class FlatColumn(NamedTuple):
    """An output of flatten_columns, `[size, inner]`."""

    content: int  # what it is made of, one of `_core.FLAT_CONTENTS`
    values: int  # the address of `[values_size, inner]`, or 0
    values_size: int  # in tokens
    inner: int  # the elements of a token
    item: int  # the bytes of an element
    start: int  # the bits of the first position
    fill: int  # the bits of one element of padding
    out: int  # the address of the output


def load_cuda_kernels() -> Any:
    """`quadrat._cuda`. Raises ImportError."""
    return importlib.import_module("quadrat._cuda")


def _why_none(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "quadrat was built without CUDA kernels"
    return f"quadrat's CUDA kernels do not load ({error})"


@functools.cache
def _kernels() -> Any:
    try:
        return load_cuda_kernels()
    except ImportError as error:
        raise RuntimeError(f"{_why_none(error)}: move the tensors to the CPU") from error


@functools.cache
def available() -> bool:
    """True if quadrat was built with CUDA kernels, and there is a device for them; a warning says once why not."""
    try:
        if load_cuda_kernels().device_count() > 0:
            return True
        why = "quadrat's CUDA kernels find no CUDA device"
    except ImportError as error:
        why = _why_none(error)
    logger.warning("%s: deferred batches are padded on the CPU and then copied", why)
    return False


def stream_of(device: torch.device) -> tuple[int, int]:
    """The number of a CUDA device, and the handle of the stream that torch works on there."""
    import torch

    if device.index is not None and (handle := getattr(torch._C, "_cuda_getCurrentRawStream", None)) is not None:
        return device.index, handle(device.index)  # without an object for the stream, which costs more than a launch
    stream = torch.cuda.current_stream(device)
    return stream.device_index, stream.cuda_stream


def launch(kernel: str, device: torch.device, *arguments: Any) -> None:
    """Queue a kernel of `quadrat._cuda` on torch's stream of a device. Raises ValueError and RuntimeError."""
    getattr(_kernels(), kernel)(*arguments, *stream_of(device))


def pad_columns(columns: Sequence[PadColumn], rows: int, device: torch.device) -> None:
    """Fill padded outputs of the same number of rows: one launch for every 16 of them."""
    for first in range(0, len(columns), _core.MOST_COLUMNS):
        launch("pad_columns", device, columns[first : first + _core.MOST_COLUMNS], rows)


def flatten_columns(columns: Sequence[FlatColumn], offsets: int, rows: int, size: int, device: torch.device) -> None:
    """Fill outputs of a flat batch of `size` tokens: one launch for every 16 of them."""
    for first in range(0, len(columns), _core.MOST_COLUMNS):
        launch("flatten_columns", device, columns[first : first + _core.MOST_COLUMNS], offsets, rows, size)
