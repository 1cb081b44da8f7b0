"""The functions of `flash_attn.bert_padding`, compiled: `from quadrat.bert_padding import pad_input, unpad_input`."""

from quadrat.varlen.bert_padding import *  # noqa: F403
from quadrat.varlen.bert_padding import __all__, __getattr__  # noqa: F401 - einops' names


def __dir__() -> list[str]:
    return sorted(__all__)
