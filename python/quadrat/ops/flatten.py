"""`quadrat.flatten`: ragged rows to one flat array, with what tells the rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, Unpack, overload

from quadrat.ops import _device
from quadrat.ops._padding import as_int
from quadrat.ops.aligned import ALIGNED, FLAT, Aligned, align_on_device, join
from quadrat.ops.flattening import Flattening, Names, boundaries_of, check_flattening, layout_of_rows, total_of
from quadrat.ragged import Ragged, source_of
from quadrat.support.arrays import require_own_dtype
from quadrat.support.kinds import WIDEST, Framework
from quadrat.support.tensors import is_tensor


class Flattened(NamedTuple):
    """Rows joined one after the other, for attention without padding; NumPy arrays or torch tensors.

    Attributes:
        values: `[total, ...]`, the numbers of the rows.
        position_ids: `[total]` int64, the position of each token in its row.
        seq_idx: `[total]` int32, the number of each token's row; -1 in the padding.
        cu_seqlens: `[rows + 1]` int32, where each row begins, and where the last one ends.
        max_length: the length of the longest row, in tokens.
    """

    values: Any
    position_ids: Any
    seq_idx: Any
    cu_seqlens: Any
    max_length: int


class _Options(TypedDict, total=False):
    position_ids_start: int
    pad_to_multiple_of: int | None
    padding_value: int | float | bool
    dtype: Any
    return_tensors: Framework | None
    total_length: int | None
    continue_positions: bool


_Rows = Ragged | Sequence[Any]


@overload
def flatten(
    rows: _Rows, *, align_to: None = None, kwargs_for: None = None, **options: Unpack[_Options]
) -> Flattened: ...
@overload
def flatten(rows: _Rows, *, align_to: int, kwargs_for: None = None, **options: Unpack[_Options]) -> Aligned: ...
@overload
def flatten(
    rows: _Rows, *, align_to: int | None = None, kwargs_for: Names, **options: Unpack[_Options]
) -> dict[str, Any]: ...
def flatten(
    rows: Ragged | Sequence[Any],
    *,
    position_ids_start: int = 0,
    pad_to_multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
    align_to: int | None = None,
    total_length: int | None = None,
    continue_positions: bool = True,
    kwargs_for: Names | None = None,
) -> Any:
    """Join rows into one sequence, and return where each row begins.

    Args:
        rows: as for `quadrat.pad`. On a GPU the call waits for offsets of a `Ragged`, unless they came from the CPU.
        position_ids_start: the position of the first token of each row.
        pad_to_multiple_of: round the total, in tokens, up to a multiple of this. The padding comes last and belongs to
            no row: `seq_idx` is -1 there, `cu_seqlens` and `max_length` leave it out. `position_ids` continue from the
            last token, so that code that detects rows by restarting positions does not count the padding as a row.
        padding_value, dtype, return_tensors: as for `quadrat.pad`.
        align_to: pad each row to a multiple of this, as `quadrat.align` does: 2 x the context-parallel size, 16
            for FP8. `pad_to_multiple_of` must be a multiple of it; what it or `total_length` adds belongs to the last
            row.
        total_length: instead of `pad_to_multiple_of`, the total.
        continue_positions: whether `position_ids` continue through the padding; otherwise all are
            `position_ids_start` there, and code that finds rows where positions restart counts each one as a row.
        kwargs_for: return a dict of `values`, `position_ids`, `seq_idx`, and the boundaries under the names of a
            consumer. "transformers": `cu_seq_lens_q` and `_k`, `max_length_q` and `_k`. "varlen_attn", of torch:
            `cu_seq_q` and `_k`, `max_q` and `_k`. "flash_attn": `cu_seqlens_q` and `_k`, `max_seqlen_q` and `_k`.
            "megatron": the fields of `PackedSeqParams`: `qkv_format` ("thd"), `cu_seqlens_q` and `_kv`, `max_seqlen_q`
            and `_kv`, `total_tokens`. "mask": `attention_mask`, `[total]` int64, 1 for the tokens of the first row, 2
            for the second, ..., 0 for padding. With `align_to`, boundaries and lengths are those of the padded rows;
            "megatron" has the boundaries without padding, and the others as `cu_seqlens_q_padded` and `_kv_padded`;
            and there is a `padding_mask`, `[total]` bool, True where there is no token.

    Returns:
        A `Flattened`; with `align_to` an `Aligned`, see `quadrat.align`; with `kwargs_for` a dict.

    Raises:
        TypeError: when a row does not hold numbers, or its numbers do not convert to `dtype` without loss.
        OverflowError: when a number or `padding_value` does not fit the dtype, a position does not fit int64, or the
            total int32.
        ValueError: when an option is unknown or conflicts with another; when `total_length` is less than the rows need,
            or there is no token before its padding.

    Examples:
        >>> import quadrat
        >>> batch = quadrat.flatten([[1, 2, 3], [7]], align_to=2, kwargs_for="megatron")
        >>> batch["values"], batch["cu_seqlens_q"], batch["cu_seqlens_q_padded"]
        (array([1, 2, 3, 0, 7, 0]), array([0, 3, 4], dtype=int32), array([0, 4, 6], dtype=int32))
    """
    multiple, aligned, total = (
        None if value is None else min(int(as_int(value, name)), WIDEST)  # which is more than int32 holds
        for name, value in (
            ("pad_to_multiple_of", pad_to_multiple_of),
            ("align_to", align_to),
            ("total_length", total_length),
        )
    )
    how = Flattening(
        position_ids_start=as_int(position_ids_start, "position_ids_start"),
        kwargs_for=kwargs_for,
        align_to=aligned,
        total_length=total,
        continue_positions=bool(continue_positions),
    )
    check_flattening(how, multiple)
    batch: Any
    if (ragged := _device.rows_on_gpu(rows)) is None:
        source, (make, steps) = source_of(rows), (Flattened, FLAT) if aligned is None else (Aligned, ALIGNED)
        layout = layout_of_rows(how, source.lengths, source.total, multiple)
        outputs = join(source, steps, layout, padding_value, (dtype, return_tensors))
        batch = make(max_length=source.longest[1], **outputs)
    else:
        require_own_dtype(ragged.values, dtype, return_tensors)
        batch = _flatten_on_gpu(ragged, how, multiple, padding_value)
    return batch if kwargs_for is None else _renamed(batch, how)


def _flatten_on_gpu(ragged: Ragged, how: Flattening, multiple: int | None, padding_value: Any) -> Any:
    if how.align_to is not None:
        batch = align_on_device(ragged.offsets, [ragged.values], how, [padding_value], multiple)
        return batch._replace(values=batch.values[0])
    first, last, (_, longest) = ragged.facts
    total, start = total_of(how, last - first, len(ragged), multiple), how.position_ids_start
    if start + total - 1 >= 2**63:
        raise OverflowError(f"position_ids_start={start} leads to positions beyond int64")
    flat = _device.flatten(ragged.values, ragged.offsets, total, start=start, padding_value=padding_value)
    if not how.continue_positions:
        flat[1][flat[2] < 0] = start
    return Flattened(*flat, longest)


def _renamed(batch: Any, how: Flattening) -> dict[str, Any]:
    """A `Flattened` or an `Aligned` under the names of a consumer."""
    aligned = isinstance(batch, Aligned)
    parts = {
        "places": batch.cu_seqlens_padded if aligned else batch.cu_seqlens,
        "tokens": batch.cu_seqlens,
        "longest": batch.max_length_padded if aligned else batch.max_length,
        "total": len(batch.position_ids),
        "gaps": batch.padding_mask if aligned else None,
        "thd": "thd",
    }
    if how.kwargs_for == "mask":
        following = batch.seq_idx + 1
        parts["documents"] = following.long() if is_tensor(following) else following.astype("int64")
    outputs = {"values": batch.values, "position_ids": batch.position_ids, "seq_idx": batch.seq_idx}
    return outputs | {name: parts[part] for name, part in boundaries_of(how)}
