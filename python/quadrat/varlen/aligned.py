"""`quadrat.varlen.align`: sequences one after the other, each padded to a multiple of a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.input.columns import explain
from quadrat.ops._padding import output_of, whole
from quadrat.ragged import Ragged, source_of
from quadrat.ragged.offsets import checked_offsets, require_offsets, tensor_or_array
from quadrat.ragged.source import RowSource
from quadrat.support.arrays import require_plain
from quadrat.support.memory import BOOL, INT32, INT64, KINDS, Framework, address_of, empty, is_tensor, on_gpu

_INT32 = 2**31


class Aligned(NamedTuple):
    """Sequences one after the other, each followed by its own padding; NumPy arrays or torch tensors.

    Attributes:
        values: `[total, ...]`; in a result of `quadrat.varlen.align`, a tuple with one for each column.
        position_ids: `[total]` int64, the position of each token in its sequence; continues through the padding, or is
            0 there.
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
        *columns: NumPy arrays or torch tensors, `[tokens, ...]` each, of any dtype, on one device; they may have a
            gradient. Columns on a GPU need a `cu_seqlens` there; the call waits for it once.
        pad_to_multiple_of: each sequence is padded to a multiple of this. An empty sequence stays empty.
        total_length: the length of the result, for static shapes, a multiple of `pad_to_multiple_of`. The last sequence
            gets the padding that is needed.
        padding_value: the value of the padding, or a list with one for each column.
        position_ids_start: the position of the first token of each sequence.
        continue_positions: whether positions continue through the padding, so that code that detects sequences by
            restarting positions finds the right number; otherwise they are 0 there.

    Returns:
        An `Aligned`; its `values` are a tuple.

    Raises:
        TypeError: when a column or `cu_seqlens` is not an array, or an option is not a number.
        OverflowError: when a padding value does not fit its column's dtype, or the total does not fit int32.
        ValueError: when `cu_seqlens` decreases or exceeds a column; when `pad_to_multiple_of` is not positive; when
            `total_length` is not a multiple of it, is less than the sequences need, or there is no sequence to pad.

    Examples:
        >>> import quadrat, numpy
        >>> made = quadrat.varlen.align(numpy.array([0, 3, 5]), numpy.array([1, 2, 3, 7, 8]), pad_to_multiple_of=4)
        >>> made.values[0]
        array([1, 2, 3, 0, 7, 8, 0, 0])
        >>> made.cu_seqlens, made.cu_seqlens_padded
        (array([0, 3, 5], dtype=int32), array([0, 4, 8], dtype=int32))
        >>> made.position_ids
        array([0, 1, 2, 3, 0, 1, 2, 3])
    """
    if whole(pad_to_multiple_of, "pad_to_multiple_of") <= 0:
        raise ValueError(f"pad_to_multiple_of must be positive, not {pad_to_multiple_of}")
    fills = list(padding_value) if isinstance(padding_value, (tuple, list)) else [padding_value] * len(columns)
    if len(fills) != len(columns):
        raise ValueError(f"there are {len(columns)} columns and {len(fills)} padding values")
    for number, column in enumerate(columns):
        if not (is_tensor(column) or isinstance(column, np.ndarray)):
            raise TypeError(f"column {number} must be a NumPy array or torch tensor, not {type(column).__name__}")
        require_plain(column, f"column {number}")
    start = whole(position_ids_start, "position_ids_start")
    how = Placement(pad_to_multiple_of, total_length, start, bool(continue_positions))
    if on_gpu(cu_seqlens) or any(on_gpu(column) for column in columns):
        require_offsets(cu_seqlens)
        return align_on_device(cu_seqlens, columns, how, fills)
    first = columns[0] if columns else cu_seqlens
    framework: Framework = "pt" if is_tensor(first) else "np"
    least = min((len(column) for column in columns), default=2**62)
    bounds, _ = checked_offsets(np.asarray(cu_seqlens) if isinstance(cu_seqlens, list) else cu_seqlens, least)
    places = Places.of(np.diff(bounds), how)
    values = tuple(_align(column, bounds, places, fill) for column, fill in zip(columns, fills, strict=True))
    return described(values, places, framework, how)


class Placement(NamedTuple):
    """How sequences are padded."""

    multiple_of: int  # the place of each sequence
    total_length: int | None  # None: what they take,
    start: int  # of the positions
    continues: bool  # whether they go on through the padding
    rounding: int = 1  # to a multiple of this

    def total(self, needed: int, sequences: int) -> int:
        """The length of the result, where the places take `needed`. Raises ValueError and OverflowError."""
        if self.total_length is None:
            total = -(-needed // self.rounding) * self.rounding
        else:
            total = whole(self.total_length, "total_length")
        if needed >= _INT32:
            raise OverflowError("the padded sequences are more than int32 cu_seqlens can hold")
        if total % self.multiple_of:
            raise ValueError(
                f"total_length={total} is not a multiple of {self.multiple_of}, but each padded sequence is"
            )
        if total < needed:
            raise ValueError(f"total_length={total} is below the {needed} tokens that the sequences take when padded")
        if total > needed and not sequences:
            raise ValueError(f"total_length={total}, but there is no sequence to pad")
        if total >= _INT32:
            raise OverflowError(f"{total} tokens are more than int32 cu_seqlens can hold")
        if not -(2**63) <= self.start <= 2**63 - max(1, total):
            raise OverflowError(f"position_ids_start={self.start} leads to positions beyond int64")
        return total


class Places(NamedTuple):
    """Where sequences go, on the CPU."""

    lengths: NDArray[np.int64]  # of the sequences
    starts: NDArray[np.int64]  # `[sequences + 1]`, of their places, and the total

    @classmethod
    def of(cls, lengths: NDArray[np.int64], how: Placement) -> Places:
        """Places that are multiples, the last one as long as it takes. Raises ValueError and OverflowError."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        multiple = min(how.multiple_of, _INT32)  # what takes more is refused, and does not overflow meanwhile
        np.cumsum(-(-lengths // multiple) * multiple, out=starts[1:])
        starts[-1] = how.total(int(starts[-1]), len(lengths))
        return cls(lengths, starts)

    @property
    def total(self) -> int:
        """The length of all places."""
        return int(self.starts[-1])


def _align(column: Any, bounds: NDArray[np.int64], places: Places, fill: Any) -> Any:
    if is_tensor(column) and column.requires_grad:  # torch's own operations, which gradients go through
        bounds, starts, lengths = (tensor_or_array(one, column) for one in (bounds, places.starts, places.lengths))
        return _gathered(column, *_sources(bounds, starts, lengths, places.total), fill)
    offsets = tensor_or_array(bounds, column)
    return placed(source_of(Ragged.known(column, offsets, None)), places, fill)


def placed(
    source: RowSource, places: Places, fill: Any, dtype: Any = None, return_tensors: Framework | None = None
) -> Any:
    """The rows, each in its place, and `fill` behind it. Raises TypeError, OverflowError and ValueError."""
    framework, kind, value = output_of(source, dtype, return_tensors, fill)
    inner, total = source.inner, places.total * source.inner
    starts, lengths = places.starts * inner, places.lengths * inner
    out, address = empty(framework, (places.total, *source.trailing), kind)
    source.require(source.columns.place(0, address_of(starts), address, kind, total))
    where = address_of(starts), address_of(lengths), len(lengths)
    if _core.fill_ends(*where, kind, value, address, total) is not None:
        raise OverflowError(f"padding_value={fill!r} does not fit the dtype {KINDS[kind]}")
    return out if source.own is None else out.view(source.own.dtype)


def described(values: Any, places: Places, framework: Framework, how: Placement) -> Aligned:
    """The values, and what tells the sequences apart."""
    lengths, starts, total = places.lengths, places.starts, places.total
    padded = np.diff(starts)
    rows, where = len(lengths), (address_of(starts), address_of(lengths), len(lengths))
    position_ids, address = empty(framework, (total,), INT64)
    _done(_core.position_ids(address_of(padded), rows, how.start, address, total))
    if not how.continues:
        _done(_core.fill_ends(*where, INT64, 0, address, total))
    seq_idx, address = empty(framework, (total,), INT32)
    _done(_core.seq_idx(address_of(padded), rows, address, total))
    _done(_core.fill_ends(*where, INT32, -1, address, total))
    cu_seqlens, address = empty(framework, (rows + 1,), INT32)
    _done(_core.cu_seqlens(address_of(lengths), rows, INT32, address))
    cu_seqlens_padded, address = empty(framework, (rows + 1,), INT32)
    _done(_core.cu_seqlens(address_of(padded), rows, INT32, address))
    padding_mask, address = empty(framework, (total,), BOOL)
    _done(_core.fill_tail(address, BOOL, 0, total, False))
    _done(_core.fill_ends(*where, BOOL, True, address, total))
    longest, longest_padded = (int(one.max()) if rows else 0 for one in (lengths, padded))
    return Aligned(values, position_ids, seq_idx, cu_seqlens, longest, cu_seqlens_padded, longest_padded, padding_mask)


def _done(failure: Any) -> None:
    if failure is not None:
        raise ValueError(explain(failure))


def align_on_device(cu_seqlens: Any, columns: Sequence[Any], how: Placement, fills: Sequence[Any]) -> Aligned:
    """As `align` by operations of torch, some thirty small ones. They wait once, for how long the result is."""
    import torch

    bounds = cu_seqlens.detach().long()
    for number, column in enumerate(columns):
        if not is_tensor(column) or column.device != bounds.device:
            raise ValueError(f"column {number} must be a tensor on {bounds.device}, where cu_seqlens is")
    lengths = bounds.diff()
    multiple = min(how.multiple_of, _INT32)
    padded = (lengths + multiple - 1) // multiple * multiple
    rows = len(lengths)
    longest = lengths.max() if rows else bounds[0] * 0
    before, needed, most = torch.stack([padded[:-1].sum(), padded.sum(), longest]).tolist()
    total = how.total(needed, rows)
    starts = torch.cat([padded.new_zeros(1), padded.cumsum(0)])
    starts[-1:].fill_(total)
    padded = starts.diff()
    source, gaps, sequence = _sources(bounds, starts, lengths, total)
    positions = torch.arange(how.start, how.start + total, device=bounds.device) - starts[sequence]
    most_padded = -(-most // how.multiple_of) * how.multiple_of
    return Aligned(
        tuple(_gathered(column, source, gaps, sequence, fill) for column, fill in zip(columns, fills, strict=True)),
        positions if how.continues else positions.masked_fill(gaps, 0),
        sequence.to(torch.int32).masked_fill(gaps, -1),
        torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32),
        most,
        starts.to(torch.int32),
        max(most_padded, total - before) if rows else 0,
        gaps,
    )


def _sources(bounds: Any, starts: Any, lengths: Any, total: int) -> tuple[Any, Any, Any]:
    """For each place of the result, where its token is, whether it has none, and its sequence."""
    import torch

    places = torch.arange(total, device=bounds.device)
    sequence = torch.searchsorted(starts[1:], places, right=True)
    within = places - starts[sequence]
    gaps = within >= lengths[sequence]
    return (bounds[sequence] + within).masked_fill(gaps, 0), gaps, sequence


def _gathered(column: Any, source: Any, gaps: Any, sequence: Any, fill: Any) -> Any:
    del sequence
    if not len(column):
        return column.new_full((len(source), *column.shape[1:]), fill)
    gaps = gaps.view(-1, *[1] * (column.dim() - 1))
    return column.index_select(0, source).masked_fill(gaps, fill)
