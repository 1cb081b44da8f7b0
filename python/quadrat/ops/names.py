"""The names that consumers use for the row boundaries of a flat batch: one table."""

from __future__ import annotations

from typing import Any

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


def check_names(names: Any) -> None:
    """Raises ValueError unless it is None or a consumer in the table."""
    if names is not None and (not isinstance(names, str) or names not in NAMES):
        raise ValueError(f"kwargs_for must be one of {', '.join(map(repr, NAMES))}, or None, not {names!r}")


def parts_of(names: str | None, *, aligned: bool) -> tuple[tuple[str, str], ...]:
    """The outputs that a consumer gets, and what each is; `aligned`: rows are padded one by one."""
    found = () if names is None else NAMES[names]
    if aligned:
        return (*found, _PADDING_MASK)
    return tuple(part for part in found if not part[0].endswith("_padded"))


def outputs() -> frozenset[str]:
    """The names of all such outputs."""
    return frozenset(output for parts in NAMES.values() for output, _ in (*parts, _PADDING_MASK))


def renamed(made: Any, names: str, *, aligned: bool) -> dict[str, Any]:
    """A `Flattened` or an `Aligned` under the names of a consumer."""
    parts = {
        "places": made.cu_seqlens_padded if aligned else made.cu_seqlens,
        "tokens": made.cu_seqlens,
        "longest": made.max_length_padded if aligned else made.max_length,
        "total": len(made.position_ids),
        "gaps": made.padding_mask if aligned else None,
        "thd": "thd",
    }
    if names == "mask":
        following = made.seq_idx + 1
        parts["documents"] = following.long() if hasattr(following, "long") else following.astype("int64")
    batch = {"values": made.values, "position_ids": made.position_ids, "seq_idx": made.seq_idx}
    return batch | {output: parts[what] for output, what in parts_of(names, aligned=aligned)}
