"""Batches like those before: one compiled call, when nothing that the decisions depend on has changed.

Right after a training step the caches hold something else, and a batch costs what it touches more than what it does;
`pad_features` decides, this remembers.
"""

from __future__ import annotations

from typing import Any

from transformers import BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat._memory import Framework, default_float_kind, interop, makes_cpu_tensors

# Kept from import time: a tokenizer class, or a patch of the base class, that differs from these is not ours to imitate.
PAD = PreTrainedTokenizerBase.pad
PAD_ONE = PreTrainedTokenizerBase._pad
STRATEGIES = PreTrainedTokenizerBase._get_padding_truncation_strategies
_GETATTR = PreTrainedTokenizerBase.__getattr__
_TYPE_ID = PreTrainedTokenizerBase.pad_token_type_id

_EMPTY = dict(BatchEncoding().__dict__)


class Remembering:
    """What a collator knows of earlier batches stays behind when it is pickled or copied."""

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without recipes and what was logged."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_recipes", "_handed_over")}


def recall(collator: Any, features: Any, framework: Framework) -> dict[str, Any] | None:
    """The batch, when a decision taken before is known to hold for it; else None."""
    recipes = collator.__dict__.get("_recipes")
    if recipes is None or framework not in recipes:
        return None
    guard = _guard(collator, framework)
    return None if guard is None else recipes[framework].run(features, guard)


def remember(
    collator: Any,
    framework: Framework,
    decision: tuple[tuple[str, ...], bytes, tuple[tuple[str, int, int, int], ...], dict[str, Any]],
) -> None:
    """Keep a decision that held, where `_guard` covers all it depends on: (names, signature, steps, values)."""
    guard = _guard(collator, framework)
    if guard is None or not _has_plain_pad_token(collator.tokenizer):
        return
    recipes = collator.__dict__.setdefault("_recipes", {})
    recipe = recipes.get(framework)
    if recipe is None or not recipe.matches(guard):
        tokenizer = collator.tokenizer
        left = tokenizer.padding_side == "left"
        main = tokenizer.model_input_names[0]
        multiple = collator.pad_to_multiple_of or 1
        recipe = _core.Recipe(guard, interop(), framework == "pt", main, -1, multiple, left)
    recipes[framework] = recipe.extended(*decision)


def _guard(collator: Any, framework: Framework) -> tuple[Any, ...] | None:
    """All that decisions depend on besides the batch, to be compared by identity; None where that is not known.

    Not known: tokenizers that keep their pad token elsewhere than those of transformers, options for which the
    tokenizer is asked, `pad_values`, and a torch that would not make plain CPU tensors.
    """
    tokenizer = collator.tokenizer
    state = tokenizer.__dict__
    special = state.get("_special_tokens_map")
    backend = state.get("_tokenizer")
    padding = collator.padding
    if (
        special is None
        or backend is None
        or collator.pad_values is not None
        or collator.max_length is not None
        or (padding is not True and padding != "longest")
        or "pad" in state
        or "_pad" in state
        or (framework == "pt" and not makes_cpu_tensors())
    ):
        return None
    cls = type(tokenizer)
    inputs = tokenizer.model_input_names
    return (
        tokenizer,
        cls.pad,
        cls._pad,
        backend,
        special.get("pad_token"),
        state.get("_pad_token_type_id"),
        tokenizer.padding_side,
        inputs[0],
        "attention_mask" in inputs,
        collator.pad_to_multiple_of,
        getattr(collator, "label_pad_token_id", None),
        default_float_kind(framework),
    )


def _has_plain_pad_token(tokenizer: Any) -> bool:
    """Whether pad token and type id are found where the guard looks, and the token is in the vocabulary to stay."""
    cls = type(tokenizer)
    return (
        cls.pad is PAD
        and cls._pad is PAD_ONE
        and cls.__getattr__ is _GETATTR
        and cls.pad_token_type_id is _TYPE_ID
        and not hasattr(cls, "pad_token_id")
        and "pad_token_id" not in tokenizer.__dict__
        and tokenizer.convert_ids_to_tokens(tokenizer.pad_token_id) == str(tokenizer.pad_token)
    )


def as_encoding(data: dict[str, Any]) -> BatchEncoding:
    """A `BatchEncoding` of these columns, as `BatchEncoding(data)` makes it, without its loops."""
    batch = BatchEncoding.__new__(BatchEncoding)
    batch.__dict__.update(_EMPTY)
    batch.__dict__["data"] = data
    return batch
