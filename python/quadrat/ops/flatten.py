"""`quadrat.flatten`: ragged rows to one flat array, with what tells the rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, overload

from quadrat.input.columns import POSITIONS, SEQUENCES, TOKEN_BOUNDS
from quadrat.ops._device import flatten as device_flatten
from quadrat.ops._device import rows_on_gpu
from quadrat.ops._padding import padded_length, require_own_dtype, whole
from quadrat.ragged import Ragged, source_of
from quadrat.support.memory import INT32, INT64, Framework
from quadrat.varlen.aligned import ALIGNED, Aligned, Placement, align_on_device, flat_layout, join
from quadrat.varlen.names import check_names, renamed

if TYPE_CHECKING:
    from typing_extensions import Unpack

_STEPS = (
    ("position_ids", 0, POSITIONS, INT64),
    ("seq_idx", 0, SEQUENCES, INT32),
    ("cu_seqlens", 0, TOKEN_BOUNDS, INT32),
)

Names = Literal["transformers", "varlen_attn", "flash_attn", "megatron", "mask"]


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
_Size = tuple[int | None, int | None]  # `total_length` and `pad_to_multiple_of`, not both


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
        rows: a `Ragged`, an Arrow array of lists, or a list of rows (lists, tuples, NumPy arrays, torch tensors) of one
            kind of number. Tensors may be on a GPU; the call then waits for the offsets of a `Ragged`, unless they came
            from the CPU.
        position_ids_start: the position of the first token of each row.
        pad_to_multiple_of: round the total, in tokens, up to a multiple of this. The padding comes last and belongs to
            no row: `seq_idx` is -1 there, `cu_seqlens` and `max_length` leave it out. `position_ids` continue from the
            last token, so that code that detects rows by restarting positions does not count the padding as a row.
        padding_value: the value of the padding; it must fit the dtype.
        dtype: the NumPy or torch dtype of the values; by default that of the rows, int64 or float64 for Python numbers.
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists.
        align_to: pad each row to a multiple of this, as `quadrat.varlen.align` does: 2 x the context-parallel size, 16
            for FP8. `pad_to_multiple_of` must be a multiple of it. Padding from `pad_to_multiple_of` or `total_length`
            belongs to the last row.
        total_length: instead of `pad_to_multiple_of`, the total itself. For static shapes of boundaries too, use
            `quadrat.batching.FixedShapes`.
        continue_positions: whether `position_ids` continue through the padding; otherwise they are 0 there, and such
            code counts each token of it as a row.
        kwargs_for: return a dict with the names of a consumer. It has `values`, `position_ids`, `seq_idx`, and the row
            boundaries under the consumer's names. "transformers": `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and
            `max_length_k`. "varlen_attn", of torch: `cu_seq_q`, `cu_seq_k`, `max_q` and `max_k`. "flash_attn":
            `cu_seqlens_q`, `cu_seqlens_k`, `max_seqlen_q` and `max_seqlen_k`. "megatron": the fields of
            `PackedSeqParams`: `qkv_format` ("thd"), `cu_seqlens_q` and `_kv`, `max_seqlen_q` and `_kv`, `total_tokens`.
            "mask": `attention_mask`, `[total]` int64, 1 for the tokens of the first row, 2 for the
            second, ..., 0 for padding. With `align_to`, boundaries and lengths are those of the padded rows; "megatron"
            has the boundaries without padding, and the others as `cu_seqlens_q_padded` and `_kv_padded`; and there is a
            `padding_mask`, `[total]` bool, True where there is no token.

    Returns:
        A `Flattened` of values, position_ids, seq_idx, cu_seqlens, max_length. With `align_to`, an `Aligned`, see
        `quadrat.varlen.align`. With `kwargs_for`, a dict.

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
    if total_length is not None and pad_to_multiple_of is not None:
        raise ValueError("pad_to_multiple_of and total_length both set the length of the result: give one of them")
    check_names(kwargs_for)
    made: Any
    aligned, ragged = align_to is not None, rows_on_gpu(rows)
    if ragged is not None:
        require_own_dtype(ragged.values, dtype, return_tensors)
    if aligned:
        how = _placement(align_to, pad_to_multiple_of, total_length, position_ids_start, continue_positions)
        if ragged is not None:
            made = align_on_device(ragged.offsets, [ragged.values], how, [padding_value])
            made = made._replace(values=made.values[0])
        else:
            source = source_of(rows)
            layout = how.layout(source.lengths)
            made = join(source, ALIGNED, layout, padding_value, dtype=dtype, return_tensors=return_tensors)
            made = Aligned(max_length=source.longest[1], **made)
    else:
        size = total_length if total_length is None else whole(total_length, "total_length"), pad_to_multiple_of
        positions = position_ids_start, bool(continue_positions)
        if ragged is not None:
            made = _flatten_on_gpu(ragged, size, positions, padding_value)
        else:
            made = flatten_here(rows, size, positions, padding_value, dtype=dtype, return_tensors=return_tensors)
    return made if kwargs_for is None else renamed(made, kwargs_for, aligned=aligned)


def _placement(align_to: Any, multiple: Any, total_length: Any, start: Any, continues: bool) -> Placement:
    if whole(align_to, "align_to") <= 0:
        raise ValueError(f"align_to must be positive, not {align_to}")
    if multiple is not None and (whole(multiple, "pad_to_multiple_of") <= 0 or multiple % align_to):
        raise ValueError(f"pad_to_multiple_of must be a multiple of align_to={align_to}, not {multiple}")
    _require_int64(start)
    return Placement(align_to, total_length, int(start), continues, multiple or align_to)


def flatten_here(
    rows: Ragged | Sequence[Any],
    size: _Size,
    positions: tuple[int, bool],
    padding_value: Any,
    *,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Flattened:
    """`flatten` on the CPU. positions: where they start, and whether they continue through the padding."""
    source = source_of(rows)
    total = _total(size, int(source.lengths.sum()), positions[0])
    layout = flat_layout(total, int(positions[0]), continues=positions[1])
    made = join(source, _STEPS, layout, padding_value, dtype=dtype, return_tensors=return_tensors)
    return Flattened(max_length=source.longest[1], **made)


def _total(size: _Size, tokens: int, start: int) -> int:
    total, multiple = size
    if total is None:
        total = padded_length((0, tokens), None, multiple)
    elif total < tokens:
        raise ValueError(f"total={total} is below the {tokens} tokens of the rows")
    elif total > tokens == 0:
        raise ValueError(f"total={total}, but there is no token: position_ids have nothing to continue from")
    _require_int64(start)
    return total


def _require_int64(start: int) -> None:
    if not -(2**63) <= whole(start, "position_ids_start") < 2**63:
        raise OverflowError(f"position_ids_start={start} is beyond int64")


def _flatten_on_gpu(ragged: Ragged, size: _Size, positions: tuple[int, bool], padding_value: Any) -> Flattened:
    first, last, (_, longest) = ragged.facts
    start, tokens = positions[0], last - first
    total = _total(size, tokens, start)
    if start + total - 1 >= 2**63:
        raise OverflowError(f"position_ids_start={start} leads to positions beyond int64")
    if tokens >= 2**31:
        raise OverflowError(f"{tokens} tokens are more than int32 cu_seqlens can hold")
    made = device_flatten(ragged.values, ragged.offsets, total, start=start, padding_value=padding_value)
    if not positions[1]:
        made[1][made[2] < 0] = 0
    return Flattened(*made, longest)
