"""Attention without padding: metadata, masks and slices from the lengths of rows; tensors without their padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quadrat._names import load_from

if TYPE_CHECKING:
    from quadrat.varlen import bert_padding as bert_padding
    from quadrat.varlen.aligned import align
    from quadrat.varlen.block_mask import document_block_mask
    from quadrat.varlen.context_parallel import context_parallel_slice
    from quadrat.varlen.many import pad_many, unpad_many

__all__ = ["align", "context_parallel_slice", "document_block_mask", "pad_many", "unpad_many"]

_HOMES = {
    "align": "aligned",
    "bert_padding": "bert_padding",
    "context_parallel_slice": "context_parallel",
    "document_block_mask": "block_mask",
    "pad_many": "many",
    "unpad_many": "many",
}

if not TYPE_CHECKING:  # so that type checkers find names that are misspelt

    def __getattr__(name: str) -> Any:
        value = globals()[name] = load_from("quadrat.varlen", _HOMES, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
