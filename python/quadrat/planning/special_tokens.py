"""Which ids a tokenizer calls special, where that is a property of the id alone."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import transformers
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

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
    """The ids for which `get_special_tokens_mask(..., already_has_special_tokens=True)` says 1.

    None where that is not known to depend on the id alone.
    """
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
    """The source of what a method of transformers does first, for ids that have special tokens; "" for other methods.

    Without the refusal of pairs, which the collators never give.
    """
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
