"""The launcher of the CUDA kernels: for functions on tensors of a GPU, deferred batches and masking by counter alike.

A launch queues work on the stream that torch works on, and returns. Nothing here waits for the GPU. Addresses are of
the device's memory; whoever launches keeps it until torch has been told to free it on that stream.
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
    """An output of pad_columns, `[rows, width, inner]`.

    Attributes:
        values: the address of `[values_size, inner]`; 0 where `one` stands for the tokens, as in an attention mask.
        values_size: in tokens.
        offsets: the address of `[rows + 1]` int64, in tokens.
        width: the padded length.
        left: whether padding goes to the left.
        item: the bytes of an element.
        inner: the elements of a token.
        one: the bits of one element.
        fill: the bits of one element of padding.
        out: the address of the output.
    """

    values: int
    values_size: int
    offsets: int
    width: int
    left: bool
    item: int
    inner: int
    one: int
    fill: int
    out: int


class FlatColumn(NamedTuple):
    """An output of flatten_columns, `[size, inner]`.

    Attributes:
        source: what it is made of, one of `_core.FLAT_...`.
        values: the address of `[values_size, inner]`, or 0.
        values_size: in tokens.
        inner: the elements of a token.
        item: the bytes of an element.
        start: the bits of the first position.
        fill: the bits of one element of padding.
        out: the address of the output.
    """

    source: int
    values: int
    values_size: int
    inner: int
    item: int
    start: int
    fill: int
    out: int


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
    """Whether quadrat was built with CUDA kernels, and there is a device for them; a warning says once why not."""
    try:
        if load_cuda_kernels().device_count() > 0:
            return True
        why = "quadrat's CUDA kernels find no CUDA device"
    except ImportError as error:
        why = _why_none(error)
    logger.warning("%s: deferred batches are padded on the CPU and then copied", why)
    return False


def _stream_of(device: torch.device) -> tuple[int, int]:
    """The number of a CUDA device, and the handle of the stream that torch works on there."""
    import torch

    if device.index is not None and (handle := getattr(torch._C, "_cuda_getCurrentRawStream", None)) is not None:
        return device.index, handle(device.index)  # without an object for the stream, which costs more than a launch
    stream = torch.cuda.current_stream(device)
    return stream.device_index, stream.cuda_stream


def launch(kernel: str, device: torch.device, *arguments: Any) -> None:
    """Queue a kernel of `quadrat._cuda` on a device, on the stream that torch works on there.

    Raises ValueError for arguments that the kernel cannot take; RuntimeError without CUDA kernels, or when CUDA fails.
    """
    getattr(_kernels(), kernel)(*arguments, *_stream_of(device))


def pad_columns(columns: Sequence[PadColumn], rows: int, device: torch.device) -> None:
    """Fill padded outputs of the same number of rows: one launch for every 16 of them."""
    for first in range(0, len(columns), _core.MOST_COLUMNS):
        launch("pad_columns", device, columns[first : first + _core.MOST_COLUMNS], rows)


def flatten_columns(columns: Sequence[FlatColumn], offsets: int, rows: int, size: int, device: torch.device) -> None:
    """Fill outputs of a flat batch of `size` tokens: one launch for every 16 of them."""
    for first in range(0, len(columns), _core.MOST_COLUMNS):
        launch("flatten_columns", device, columns[first : first + _core.MOST_COLUMNS], offsets, rows, size)
