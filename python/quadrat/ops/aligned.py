"""`quadrat.align`: sequences one after the other, each padded to a multiple of a length."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops._device import bits_of_padding
from quadrat.ops._padding import AS_ROWS, Output, as_int, output_of
from quadrat.ops.flattening import Flattening, layout_of_rows
from quadrat.ragged import Ragged, source_of
from quadrat.ragged.offsets import bounds_of, checked_offsets, require_offsets, tensor_or_array
from quadrat.ragged.source import RowSource, raise_failure
from quadrat.support import columns as col
from quadrat.support.arrays import require_array
from quadrat.support.kinds import BOOL, INT32, INT64, KINDS, Framework, torch_module
from quadrat.support.memory import address_of, interop
from quadrat.support.tensors import is_tensor, moved, on_gpu, recording


class Aligned(NamedTuple):
    """Sequences one after the other, each followed by its own padding; NumPy arrays or torch tensors.

    Attributes:
        values: `[total, ...]`; in a result of `quadrat.align`, a tuple with one for each column.
        position_ids: `[total]` int64, in each sequence; they continue through its padding, or are 0 there.
        seq_idx: `[total]` int32, the number of each token's sequence; -1 in the padding.
        cu_seqlens: `[sequences + 1]` int32, the cumulative lengths of the sequences without padding.
        max_length: the length of the longest sequence, without padding.
        cu_seqlens_padded: `[sequences + 1]` int32, the cumulative lengths with padding; the last one is `total`.
        max_length_padded: the length of the longest sequence, with padding.
        padding_mask: `[total]` bool, True for padding.
    """

    values: Any
    position_ids: Any
    seq_idx: Any
    cu_seqlens: Any
    max_length: int
    cu_seqlens_padded: Any
    max_length_padded: int
    padding_mask: Any


def align(
    cu_seqlens: Any,
    *columns: Any,
    pad_to_multiple_of: int,
    total_length: int | None = None,
    padding_value: Any = 0,
    position_ids_start: int = 0,
    continue_positions: bool = True,
) -> Aligned:
    """Pad each sequence of a flat batch to a multiple of a length: 2 x the context-parallel size, or 16 for FP8.

    Args:
        cu_seqlens: `[sequences + 1]` integers, where each sequence begins in the columns, and where the last one ends.
        *columns: NumPy arrays or torch tensors, `[tokens, ...]` each, of any dtype, on one device, with a gradient or
            without. Columns on a GPU need a `cu_seqlens` there, and the call synchronises once.
        pad_to_multiple_of: each sequence is padded to a multiple of this. An empty sequence stays empty.
        total_length: the length of the result, for static shapes, a multiple of `pad_to_multiple_of`. The last sequence
            gets the padding.
        padding_value: the value of the padding, or a list with one for each column.
        position_ids_start: the position of the first token of each sequence.
        continue_positions: whether positions continue through the padding, so that code that detects sequences by
            restarting positions finds the right number; otherwise they are `position_ids_start` there.

    Returns:
        An `Aligned`; its `values` are a tuple.

    Raises:
        TypeError: when a column or `cu_seqlens` is not an array, or an option is not a number.
        OverflowError: when a padding value does not fit its column's dtype, or the total does not fit int32.
        ValueError: when `cu_seqlens` decreases or exceeds a column; when `pad_to_multiple_of` is not positive; when
            `total_length` is not a multiple of it, or less than the sequences need, or there is not a sequence to pad.

    Examples:
        >>> import quadrat, numpy
        >>> made = quadrat.align(numpy.array([0, 3, 5]), numpy.array([1, 2, 3, 7, 8]), pad_to_multiple_of=4)
        >>> made.values[0]
        array([1, 2, 3, 0, 7, 8, 0, 0])
        >>> made.cu_seqlens, made.cu_seqlens_padded
        (array([0, 3, 5], dtype=int32), array([0, 4, 8], dtype=int32))
        >>> made.position_ids
        array([0, 1, 2, 3, 0, 1, 2, 3])
    """
    if as_int(pad_to_multiple_of, "pad_to_multiple_of") <= 0:
        raise ValueError(f"pad_to_multiple_of must be positive, not {pad_to_multiple_of}")
    fills = list(padding_value) if isinstance(padding_value, (tuple, list)) else [padding_value] * len(columns)
    if len(fills) != len(columns):
        raise ValueError(f"there are {len(columns)} columns and {len(fills)} padding values")
    for number, column in enumerate(columns):
        require_array(column, f"column {number}")
    how = Flattening(
        position_ids_start=as_int(position_ids_start, "position_ids_start"),
        align_to=pad_to_multiple_of,
        total_length=total_length,
        continue_positions=bool(continue_positions),
    )
    if on_gpu(cu_seqlens) or any(map(on_gpu, columns)):
        require_offsets(cu_seqlens)
        return align_on_device(cu_seqlens, columns, how, fills)
    framework: Framework = "pt" if is_tensor((*columns, cu_seqlens)[0]) else "np"
    least = min((len(column) for column in columns), default=2**62)
    bounds, _ = checked_offsets(np.asarray(cu_seqlens) if isinstance(cu_seqlens, list) else cu_seqlens, least)
    lengths = np.diff(bounds)
    layout = layout_of_rows(how, lengths, int(bounds[-1] - bounds[0]))
    outputs = run_flat(column_of(lengths), ALIGNED, framework, layout)
    starts = outputs["cu_seqlens_padded"]
    values = tuple(_align(column, bounds, starts, layout, fill) for column, fill in zip(columns, fills, strict=True))
    return Aligned(values=values, max_length=int(lengths.max(initial=0)), **outputs)


# The outputs that tell rows apart, and the further ones of rows that are padded one by one.
FLAT = (
    ("position_ids", 0, col.POSITIONS, INT64),
    ("seq_idx", 0, col.SEQUENCES, INT32),
    ("cu_seqlens", 0, col.TOKEN_BOUNDS, INT32),
)
ALIGNED = (
    *FLAT,
    ("cu_seqlens_padded", 0, col.BOUNDS, INT32),
    ("max_length_padded", 0, col.LONGEST, INT64),
    ("padding_mask", 0, col.GAPS, BOOL),
)


def column_of(lengths: NDArray[np.int64]) -> _core.Columns:
    """A column of rows of these lengths, whose values are not there to be read."""
    offsets, columns = bounds_of(lengths), _core.Columns()
    columns.add_ragged(0, BOOL, int(offsets[-1]), address_of(offsets), len(lengths))
    return columns


def run_flat(
    columns: _core.Columns, steps: Sequence[col.Step], framework: Framework, layout: col.BatchLayout, fills: Any = None
) -> dict[str, Any]:
    """The outputs, `[total]` each, of steps for joined rows. Raises OverflowError, TypeError and ValueError."""
    if framework == "pt":
        torch_module()  # before interop looks at what is loaded
    outputs = columns.run(tuple(steps), fills or {}, interop(), framework == "pt", layout)
    if isinstance(outputs, dict):
        return outputs
    step, code, row, position = outputs
    name, _, _, kind = steps[step]
    if code == col.OUT_OF_RANGE and name == "position_ids":
        raise OverflowError(f"position_ids_start={layout.start} leads to positions beyond int64")
    if code == col.OUT_OF_RANGE and row < 0:
        raise OverflowError(f"padding_value={fills[name]!r} does not fit the dtype {KINDS[kind]}")
    raise_failure((code, row, position))


def join(
    source: RowSource, steps: Sequence[col.Step], layout: col.BatchLayout, fill: Any, output: Output = AS_ROWS
) -> dict[str, Any]:
    """The `values` of the rows, `[total, ...]`, and the outputs of `steps`. Raises as `run_flat`, and `output_of`."""
    framework, kind, fill = output_of(source, output, fill)
    outputs = run_flat(source.columns, (("values", 0, col.JOIN, kind), *steps), framework, layout, {"values": fill})
    if source.carried is not None:
        outputs["values"] = outputs["values"].view(source.carried.dtype)
    return outputs


def _align(column: Any, bounds: NDArray[np.int64], starts: Any, layout: col.BatchLayout, fill: Any) -> Any:
    if is_tensor(column) and column.requires_grad:  # torch's own operations, which gradients go through
        bounds, starts = (tensor_or_array(np.asarray(places, np.int64), column) for places in (bounds, starts))
        return _gathered(column, *_sources(bounds, starts, layout.total), fill)
    source = source_of(Ragged.known(column, tensor_or_array(bounds, column), None))
    return join(source, (), layout, fill)["values"]


def align_on_device(
    cu_seqlens: Any, columns: Sequence[Any], how: Flattening, fills: Sequence[Any], multiple: int | None = None
) -> Aligned:
    """As `align` where the columns are on a GPU. It waits once, for the boundaries; what is made of them is copied."""
    bounds = cu_seqlens.detach().long()
    for number, column in enumerate(columns):
        if not is_tensor(column) or column.device != bounds.device:
            raise ValueError(f"column {number} must be a tensor on {bounds.device}, where cu_seqlens is")
    lengths = np.diff(bounds.cpu().numpy())
    outputs = run_flat(column_of(lengths), ALIGNED, "pt", layout_of_rows(how, lengths, int(lengths.sum()), multiple))
    outputs = moved(outputs, bounds.device)
    sources = _sources(bounds, outputs["cu_seqlens_padded"].long(), len(outputs["position_ids"]))
    values = tuple(_gathered(column, *sources, fill) for column, fill in zip(columns, fills, strict=True))
    return Aligned(values=values, max_length=int(lengths.max(initial=0)), **outputs)


def _sources(bounds: Any, starts: Any, total: int) -> tuple[Any, Any]:
    """For each place of the result, where its token is, and whether it has none."""
    import torch

    places = torch.arange(total, device=bounds.device)
    sequence = torch.searchsorted(starts[1:], places, right=True)
    within = places - starts[sequence]
    gaps = within >= bounds.diff()[sequence]
    return (bounds[sequence] + within).masked_fill(gaps, 0), gaps


def _gathered(column: Any, source: Any, gaps: Any, fill: Any) -> Any:
    if not recording() and column.element_size() <= 8:  # complex128 is torch's own affair
        bits_of_padding(fill, column)  # raises TypeError and OverflowError
    if not len(column):
        return column.new_full((len(source), *column.shape[1:]), fill)
    gaps = gaps.view(-1, *[1] * (column.dim() - 1))
    return column.index_select(0, source).masked_fill(gaps, fill)
