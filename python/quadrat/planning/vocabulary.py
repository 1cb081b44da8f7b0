"""What a tokenizer reports about its tokens, by id: read once, and again when its vocabulary has changed."""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat.installed.behaviour import counting_copies_the_vocabulary
from quadrat.planning.fallback import FallBack
from quadrat.planning.plan_cache import CALL, ENTRY, Fact

# The role of a token in the words of its row, as bits.
JOINS, APART, KEPT, MISSING = _core.PIECE_JOINS, _core.PIECE_APART, _core.PIECE_KEPT, _core.PIECE_MISSING

# Kept from import time: for a tokenizer class that overrides these, the reference is used.
_METHODS = {
    "_convert_id_to_token": PreTrainedTokenizerFast._convert_id_to_token,
    "__len__": PreTrainedTokenizerFast.__len__,
    "get_special_tokens_mask": PreTrainedTokenizerBase.get_special_tokens_mask,
}

_lengths: weakref.WeakKeyDictionary[Any, tuple[Any, int, dict[int, Any], int]] = weakref.WeakKeyDictionary()


def length_of(tokenizer: Any) -> int:
    """`len(tokenizer)`, remembered where it is slow for as long as the vocabulary is the same."""
    if not counting_copies_the_vocabulary() or not _has_plain_length(tokenizer):
        return len(tokenizer)
    backend = tokenizer._tokenizer
    state = backend.get_vocab_size(False), backend.get_added_tokens_decoder()
    known = _lengths.get(tokenizer)
    if known is None or known[0] is not backend or known[1:3] != state:
        known = (backend, *state, len(tokenizer))
        _lengths[tokenizer] = known
    return known[3]


def length_facts(tokenizer: Any) -> tuple[Fact, ...]:
    """The facts that `len(tokenizer)` has its current value."""
    if not counting_copies_the_vocabulary() or not _has_plain_length(tokenizer):
        return ((CALL, tokenizer.__len__, None, len(tokenizer)),)
    backend = tokenizer._tokenizer
    return (
        (ENTRY, tokenizer.__dict__, "_tokenizer", backend),
        (CALL, functools.partial(backend.get_vocab_size, False), None, backend.get_vocab_size(False)),
        (CALL, backend.get_added_tokens_decoder, None, backend.get_added_tokens_decoder()),
    )


def _has_plain_length(tokenizer: Any) -> bool:
    return type(tokenizer).__len__ is _METHODS["__len__"]


class Vocabulary(NamedTuple):
    """The pieces of a tokenizer, and what was true of it when they were looked up."""

    state: tuple[Any, ...]
    length: int
    pieces: NDArray[np.uint8]  # by id


def vocabulary_of(collator: Any, pad_id: int | None) -> Vocabulary:
    """The vocabulary of the collator's tokenizer, `KEPT` marking special tokens and padding. Raises FallBack."""
    tokenizer = collator.tokenizer
    cls = type(tokenizer)
    for name, method in _METHODS.items():
        if getattr(cls, name, None) is not method or name in tokenizer.__dict__:
            raise FallBack(f"{cls.__name__} has its own {name}")
    backend, kept = tokenizer._tokenizer, (*tokenizer.all_special_ids, pad_id)
    added = backend.get_added_tokens_decoder()
    state = backend, backend.get_vocab_size(False), added, kept
    known: Vocabulary | None = collator.__dict__.get("_quadrat_vocabulary")
    if known is None or known.state != state:
        length = length_of(tokenizer)
        size, convert = max(length, *added, 0) + 1, tokenizer._convert_id_to_token
        pieces = np.fromiter((_piece(convert(token_id)) for token_id in range(size)), np.uint8, size)
        pieces[[token_id for token_id in kept if token_id is not None and 0 <= token_id < size]] |= KEPT
        known = collator.__dict__["_quadrat_vocabulary"] = Vocabulary(state, length, pieces)
    return known


def _piece(token: str | None) -> int:
    if token is None:
        return MISSING
    return APART if token in ("[CLS]", "[SEP]") else JOINS if token.startswith("##") else 0
