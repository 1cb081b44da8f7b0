"""`Flattening`: how rows are joined, one after the other, and what tells them apart."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from quadrat.ops._padding import as_int
from quadrat.support.columns import BatchLayout
from quadrat.support.kinds import WIDEST

_INT32 = 2**31
Names = Literal["transformers", "varlen_attn", "flash_attn", "megatron", "mask"]

# By consumer, each output and what it is:
#   places    where rows begin, and where the last one ends, int32 [rows + 1]; with padding between rows, their places
#   tokens    the lengths of the rows added up, without any padding, int32 [rows + 1]
#   longest   the length of the longest row, or place: an int, since FlashAttention 4 takes no tensor
#   total     the length of the batch, an int
#   documents 1 ... rows for the tokens of each row, and 0 for padding, int64
#   gaps      whether there is no token, bool
#   thd       the word
NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    name: (*((f"{bounds}_{of}", "places") for of in "qk"), *((f"{longest}_{of}", "longest") for of in "qk"))
    for name, bounds, longest in (
        ("transformers", "cu_seq_lens", "max_length"),
        ("varlen_attn", "cu_seq", "max"),
        ("flash_attn", "cu_seqlens", "max_seqlen"),
    )
}
NAMES["megatron"] = (
    ("qkv_format", "thd"),
    *((f"cu_seqlens_{of}", "tokens") for of in ("q", "kv")),
    *((f"cu_seqlens_{of}_padded", "places") for of in ("q", "kv")),
    *((f"max_seqlen_{of}", "longest") for of in ("q", "kv")),
    ("total_tokens", "total"),
)
NAMES["mask"] = (("attention_mask", "documents"),)
_PADDING_MASK = ("padding_mask", "gaps")  # an output only where rows are padded one by one, as those of "_padded" are


class Flattening(NamedTuple):
    """How a batch without padding is made: `padding_free=Flattening(...)` of a collator.

    Attributes:
        return_position_ids: returns `position_ids`, `[1, total]` int64, counted from `position_ids_start` in each row.
        return_seq_idx: returns `seq_idx`, `[1, total]` int32, the number of each token's row; -1 for padding.
        position_ids_start: the position of the first token of each row; some models, such as RoBERTa, need 2.
        kwargs_for: returns the row boundaries under the names of a consumer: "transformers", "varlen_attn",
            "flash_attn", "megatron" or "mask", see `quadrat.flatten`.
        align_to: pads each row to a multiple of this, in tokens, as `quadrat.align` does. Boundaries and lengths are
            then those of the padded rows, and a `padding_mask`, `[1, total]` bool, is True for padding.
        total_length: the `total` of each batch, in tokens, instead of `pad_to_multiple_of`.
        continue_positions: whether `position_ids` continue through the padding; otherwise all are `position_ids_start`
            there, and code that finds rows where positions restart counts each one as a row.

    Examples:
        >>> import quadrat
        >>> quadrat.Flattening(kwargs_for="flash_attn", return_position_ids=False)._asdict()["kwargs_for"]
        'flash_attn'
    """

    return_position_ids: bool = True
    return_seq_idx: bool = False
    position_ids_start: int = 0
    kwargs_for: Names | None = None
    align_to: int | None = None
    total_length: int | None = None
    continue_positions: bool = True


def flattening_of(holder: Any) -> Flattening:
    """Of what has attributes of these names; flags become bools."""
    options = ((getattr(holder, name), default) for name, default in Flattening._field_defaults.items())
    return Flattening._make(bool(value) if isinstance(default, bool) else value for value, default in options)


def boundaries_of(how: Flattening) -> tuple[tuple[str, str], ...]:
    """The outputs that say where rows begin, and what each is."""
    parts = () if how.kwargs_for is None else NAMES[how.kwargs_for]
    if how.align_to is not None:
        return (*parts, _PADDING_MASK)
    return tuple(part for part in parts if not part[0].endswith("_padded"))


def check_flattening(how: Flattening, multiple: int | None) -> None:
    """Raises ValueError for options that are invalid, or conflict. multiple: `pad_to_multiple_of`."""
    names, total = how.kwargs_for, how.total_length
    if names is not None and (not isinstance(names, str) or names not in NAMES):
        raise ValueError(f"kwargs_for must be one of {', '.join(map(repr, NAMES))}, or None, not {names!r}")
    lengths = {"pad_to_multiple_of": multiple, "align_to": how.align_to, "total_length": total}
    for name, value in lengths.items():
        if value is not None and (type(value) is not int or not 0 < value <= WIDEST):
            raise ValueError(f"{name} must be a positive int up to 2**48, or None, not {value!r}")
    if total is not None and multiple is not None:
        raise ValueError("pad_to_multiple_of and total_length both set the length of a batch: give one of them")
    for name, value in lengths.items():
        if how.align_to is not None and value is not None and value % how.align_to:
            raise ValueError(f"{name}={value} must be a multiple of align_to={how.align_to}")


def layout_of(how: Flattening, multiple: int | None, **fields: Any) -> BatchLayout:
    """The layout of a batch. fields: its other ones."""
    return BatchLayout(
        multiple_of=multiple or 1,
        start=how.position_ids_start if how.return_position_ids else 0,
        align_to=how.align_to or 0,
        total=how.total_length or 0,
        continue_positions=bool(how.continue_positions),
        **fields,
    )


def total_of(how: Flattening, needed: int, rows: int, multiple: int | None = None) -> int:
    """The length of a batch whose rows take `needed` tokens. Raises ValueError and OverflowError."""
    step = multiple or how.align_to or 1
    total = -(-needed // step) * step if how.total_length is None else as_int(how.total_length, "total_length")
    if max(needed, total) >= _INT32:
        raise OverflowError(f"{max(needed, total)} tokens are more than int32 cu_seqlens can hold")
    if how.align_to and total % how.align_to:
        raise ValueError(f"total_length={total} is not a multiple of {how.align_to}, but the place of each row is")
    if total < needed:
        raise ValueError(f"total_length={total} is below the {needed} tokens that the rows take")
    if total > needed and not (rows if how.align_to else needed):
        lacks = "row to pad" if how.align_to else "token: position_ids have nothing to continue from"
        raise ValueError(f"total_length={total}, but there is no {lacks}")
    if not -(2**63) <= how.position_ids_start < 2**63:
        raise OverflowError(f"position_ids_start={how.position_ids_start} is beyond int64")
    return total


def layout_of_rows(how: Flattening, lengths: Any, tokens: int, multiple: int | None = None) -> BatchLayout:
    """The layout of rows of these lengths, an int64 array, `tokens` in all. Raises ValueError and OverflowError."""
    align_to = min(how.align_to or 0, _INT32)  # what takes more is refused, and does not overflow meanwhile
    needed = int((-(-lengths // align_to) * align_to).sum()) if align_to else tokens
    total = total_of(how, needed, len(lengths), multiple)
    return layout_of(how, None, batched=False)._replace(align_to=align_to, total=total)


def outputs() -> frozenset[str]:
    """The names of all outputs that say where rows begin."""
    return frozenset(output for parts in NAMES.values() for output, _ in (*parts, _PADDING_MASK))
