"""The properties of a tokenizer's tokens, by id: read once, and again when its vocabulary has changed."""

import ast
import functools
import inspect
import operator
import textwrap
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import transformers
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat.installed.behaviour import counting_copies_the_vocabulary
from quadrat.planning.facts import CALL, ENTRY, Fact
from quadrat.planning.fallback import FallBack

# The role of a token in the words of its row, as bits.
_PIECES = _core.WORD_PIECES
JOINS, APART, KEPT, MISSING = _PIECES.JOINS, _PIECES.APART, _PIECES.KEPT, _PIECES.MISSING

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


def vocabulary_of(collator: Any, pad_id: int | None) -> tuple[int, NDArray[np.uint8]]:
    """The vocabulary's size, and its pieces by id, `KEPT` marking special tokens and padding. Raises FallBack."""
    tokenizer = collator.tokenizer
    cls = type(tokenizer)
    for name, method in _METHODS.items():
        if getattr(cls, name, None) is not method or name in tokenizer.__dict__:
            raise FallBack(f"{cls.__name__} has its own {name}", f"do not override {name}")
    backend, kept = tokenizer._tokenizer, (*tokenizer.all_special_ids, pad_id)
    added = backend.get_added_tokens_decoder()
    state = backend, backend.get_vocab_size(False), added, kept
    known, length, pieces = collator.__dict__.get("_quadrat_vocabulary", (None, 0, None))
    if known != state:
        length = length_of(tokenizer)
        size, convert = max(length, *added, 0) + 1, tokenizer._convert_id_to_token
        pieces = np.fromiter((_piece(convert(token_id)) for token_id in range(size)), np.uint8, size)
        pieces[[token_id for token_id in kept if token_id is not None and 0 <= token_id < size]] |= KEPT
        collator.__dict__["_quadrat_vocabulary"] = state, length, pieces
    return length, pieces


def _piece(token: str | None) -> int:
    if token is None:
        return MISSING
    return APART if token in ("[CLS]", "[SEP]") else JOINS if token.startswith("##") else 0


_METHOD = "get_special_tokens_mask"
# Implementations in which the special ids are those of `all_special_ids`.
_PLAIN = (PreTrainedTokenizerBase.get_special_tokens_mask, transformers.PreTrainedTokenizer.get_special_tokens_mask)
_ALL_SPECIAL_IDS = PreTrainedTokenizerBase.all_special_ids

# What classes of transformers do with `already_has_special_tokens=True`, as their source has it: ask the class above,
# or compare each id with these attributes.
_REFUSES_PAIRS = (
    "if token_ids_1 is not None:\n"
    "    raise ValueError('You should not supply a second sequence if the provided sequence "
    "of ids is already formatted with special tokens for the model.')"
)
_ASKS_ABOVE = (
    "return super().get_special_tokens_mask("
    "token_ids_0=token_ids_0, token_ids_1=token_ids_1, already_has_special_tokens=True)"
)
_ALL = operator.attrgetter("all_special_ids")
_LISTS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "return [1 if token in self.all_special_ids else 0 for token in token_ids_0]": _ALL,
    "all_special_ids = set(self.all_special_ids)\n"
    "return [1 if token in all_special_ids else 0 for token in token_ids_0]": _ALL,
    "return [1 if x in [self.sep_token_id, self.cls_token_id] else 0 for x in token_ids_0]": operator.attrgetter(
        "sep_token_id", "cls_token_id"
    ),
}


def listed_special_ids(tokenizer: Any) -> list[int] | None:
    """The ids that are special where special tokens were added; None where that may depend on more than the id."""
    cls = type(tokenizer)
    if cls.all_special_ids is not _ALL_SPECIAL_IDS or _METHOD in tokenizer.__dict__:
        return None
    for method in (base.__dict__[_METHOD] for base in cls.__mro__ if _METHOD in base.__dict__):
        does = "" if method in _PLAIN else _first_branch(method)
        if does != _ASKS_ABOVE:
            listed = _ALL if method in _PLAIN else _LISTS.get(does)
            return None if listed is None else [token for token in listed(tokenizer) if token is not None]
    return None


@functools.lru_cache(maxsize=256)
def _first_branch(method: Any) -> str:
    """The source of what a method of transformers does for ids with special tokens, not pairs; "" for other methods."""
    if not getattr(method, "__module__", "").startswith("transformers."):
        return ""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return ""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    branch = body[0]
    if not isinstance(branch, ast.If) or ast.unparse(branch.test) != "already_has_special_tokens":
        return ""
    statements = [ast.unparse(statement) for statement in branch.body]
    return "\n".join(statements[1:] if statements[0] == _REFUSES_PAIRS else statements)
