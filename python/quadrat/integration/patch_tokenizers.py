"""`patch_tokenizers`: padding and conversion of transformers' tokenizers, in compiled code."""

import functools
from typing import Any

from transformers import BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat.installed import originals
from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.planning.conversion import convert_to_tensors
from quadrat.planning.padded import PadOptions
from quadrat.tokenizers.pad import pad_or_fall_back


def patch_tokenizers() -> Patch:
    """Make the tokenizers of transformers pad and convert with quadrat, in this process.

    `tokenizer.pad(...)` and `tokenizer(texts, padding=True, return_tensors="pt")` then use `tokenizer_pad` and
    `convert_to_tensors`. Results and errors do not change, and tokenizers that were made earlier are patched too.
    Classes that override `pad`, and subclasses of `BatchEncoding` that override `convert_to_tensors`, do not change.
    The patch is undone like that of `quadrat.patch`.

    Examples:
        >>> import quadrat
        >>> from transformers import PreTrainedTokenizerBase
        >>> before = PreTrainedTokenizerBase.pad
        >>> with quadrat.tokenizers.patch_tokenizers():
        ...     PreTrainedTokenizerBase.pad is before
        False
    """
    return Patch("tokenizers.patch_tokenizers", TOKENIZERS)


@functools.wraps(originals.PAD)
def _pad(  # noqa: PLR0917 - as in transformers
    self: Any,
    encoded_inputs: Any,
    padding: Any = True,
    max_length: Any = None,
    pad_to_multiple_of: Any = None,
    padding_side: Any = None,
    return_attention_mask: Any = None,
    return_tensors: Any = None,
    verbose: Any = True,
) -> Any:
    options = PadOptions(padding, max_length, pad_to_multiple_of, padding_side, return_attention_mask, verbose)
    return pad_or_fall_back(self, encoded_inputs, options, return_tensors)


_pad._quadrat_replaces = originals.PAD  # type: ignore[attr-defined]


@functools.wraps(originals.CONVERT_TO_TENSORS)
def _convert_to_tensors(self: Any, tensor_type: Any = None, prepend_batch_axis: Any = False) -> Any:
    return convert_to_tensors(self, tensor_type, prepend_batch_axis)


TOKENIZERS = Switch(
    lambda: [Swap(originals.PAD, _pad), Swap(originals.CONVERT_TO_TENSORS, _convert_to_tensors)],
    others=lambda: [PreTrainedTokenizerBase, BatchEncoding],
)
