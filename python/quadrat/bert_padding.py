"""The functions of `flash_attn.bert_padding`, compiled: `from quadrat.bert_padding import pad_input, unpad_input`."""

from typing import Any

from quadrat.varlen import bert_padding as _functions
from quadrat.varlen.bert_padding import (
    index_first_axis,
    index_first_axis_residual,
    index_put_first_axis,
    pad_input,
    unpad_input,
    unpad_input_for_concatenated_sequences,
)

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def __getattr__(name: str) -> Any:
    return getattr(_functions, name)


def __dir__() -> list[str]:
    return sorted(__all__)
