"""Facts: what plans depend on outside the batch, of collators and tokenizers. A guard compares them by identity."""

from collections.abc import Iterable, Sequence
from typing import Any

from transformers import PreTrainedTokenizer
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat.installed import originals
from quadrat.planning.remembering import guarded_options
from quadrat.support.tensors import torch_facts_of_plain_tensors

# Kept from import time: quadrat does not imitate tokenizer classes, or patches of the base class, that differ.
PAD_ONE = PreTrainedTokenizerBase._pad
STRATEGIES = PreTrainedTokenizerBase._get_padding_truncation_strategies
METHODS = frozenset(("pad", "_pad", "_get_padding_truncation_strategies"))
_GETATTR = PreTrainedTokenizerBase.__getattr__
# How tokenizers without a Rust backend look up the id of a token: first among those that were added.
_LOOK_UPS = ("convert_tokens_to_ids", "_convert_token_to_id_with_added_voc")
_LOOK_UP = {name: getattr(PreTrainedTokenizer, name) for name in _LOOK_UPS}
_TYPE_ID = PreTrainedTokenizerBase.pad_token_type_id

# What a plan depends on: (one of these, object, key, expected), see csrc/bindings/plan/recipe.hpp.
_FACTS = _core.FACTS
TYPE, ENTRY, ABSENT, ATTRIBUTE = _FACTS.TYPE, _FACTS.ENTRY, _FACTS.ABSENT, _FACTS.ATTRIBUTE
ITEMS, CALL, OWN, OWN_ABSENT, OWN_SET = _FACTS.ITEMS, _FACTS.CALL, _FACTS.OWN, _FACTS.OWN_ABSENT, _FACTS.OWN_SET
Fact = tuple[int, Any, Any, Any]


def joined_facts(*facts: Sequence[Fact] | None) -> tuple[Fact, ...] | None:
    """All facts; None if some are not known."""
    joined: list[Fact] = []
    for some in facts:
        if some is None:
            return None
        joined += some
    return tuple(joined)


def torch_facts() -> tuple[Fact, ...] | None:
    """The facts that torch makes plain CPU tensors of today's default dtype; None where it does not."""
    calls = torch_facts_of_plain_tensors()
    return None if calls is None else tuple([(CALL, function, None, result) for function, result in calls])


def own_facts(collator: Any) -> tuple[Fact, ...] | None:
    """The facts that all options have these values; None if one is not a plain attribute of the collator."""
    state, facts = collator.__dict__, list[Fact]()
    for name in guarded_options(type(collator)):
        if name not in state or (value := state[name]) is not getattr(collator, name):
            return None
        facts.append((OWN_SET, None, name, frozenset(value)) if type(value) is set else (OWN, None, name, value))
    return tuple(facts)


def padding_facts(collator: Any) -> tuple[Fact, ...] | None:
    """All that plans of padded batches depend on besides their key; None for tokenizers that keep it elsewhere."""
    tokenizer, options, extra = collator.tokenizer, own_facts(collator), columns_facts(collator)
    cls, state = type(tokenizer), getattr(tokenizer, "__dict__", {})
    kept: tuple[str, ...] = ("_special_tokens_map", "_pad_token_type_id", "padding_side", "model_input_names")
    kept = (*kept, *(("model_max_length",) if "model_max_length" in state else ()))
    plain = (
        state.keys() >= {*kept}
        and type(state["_special_tokens_map"]) is dict
        and type(state["model_input_names"]) is list
        # The pad token and its type id are looked up in the usual places, and the token is in the vocabulary.
        and originals.is_of(getattr(cls, "pad", None), originals.PAD)
        and cls._pad is PAD_ONE
        and cls.__getattr__ is _GETATTR
        and cls.pad_token_type_id is _TYPE_ID
        and not hasattr(cls, "pad_token_id")
        and "pad_token_id" not in state
        and (
            tokenizer.convert_ids_to_tokens(pad_token_id) == str(tokenizer.pad_token)
            if (pad_token_id := tokenizer.pad_token_id) is not None
            else "pad_token" in state["_special_tokens_map"]
        )
    )
    tokens = token_facts(tokenizer, () if pad_token_id is None else (str(tokenizer.pad_token),)) if plain else None
    if tokens is None or options is None or extra is None:
        return None
    return (
        *options,
        *extra,
        *tokens,
        *(((TYPE, tokenizer, None, cls),) if collator._keeps_tokenizer else ()),
        (ATTRIBUTE, cls, "pad", cls.pad),
        (ATTRIBUTE, cls, "_pad", PAD_ONE),
        (ATTRIBUTE, cls, "_get_padding_truncation_strategies", STRATEGIES),
        *[(ABSENT, state, name, None) for name in METHODS],
        *[(ENTRY, state, name, state[name]) for name in kept],
        (ENTRY, state["_special_tokens_map"], "pad_token", state["_special_tokens_map"].get("pad_token")),
        (ITEMS, state["model_input_names"], None, tuple(state["model_input_names"])),
    )


def token_facts(tokenizer: Any, tokens: Iterable[str]) -> tuple[Fact, ...] | None:
    """The facts that these tokens have their current ids; None if it is not known how ids are looked up."""
    cls, state = type(tokenizer), tokenizer.__dict__
    if "_tokenizer" in state:
        return ((ENTRY, state, "_tokenizer", state["_tokenizer"]),)
    added, tokens = state.get("_added_tokens_encoder"), tuple(tokens)
    if (
        any(getattr(cls, name, None) is not method for name, method in _LOOK_UP.items())
        or type(added) is not dict
        or not all(token in added for token in tokens)
    ):
        return None
    return (
        (ENTRY, state, "_added_tokens_encoder", added),
        *((ABSENT, state, name, None) for name in _LOOK_UP),
        *((ENTRY, added, token, added[token]) for token in tokens),
    )


def items_facts(values: Any) -> tuple[Fact, ...] | None:
    """The facts that `pad_values` has these items; None where it is not a plain dict."""
    if values is None:
        return ()
    if type(values) is not dict or not all(type(name) is str for name in values):
        return None
    return (CALL, values.__len__, None, len(values)), *((ENTRY, values, *item) for item in values.items())


def columns_facts(collator: Any) -> tuple[Fact, ...] | None:
    """The facts that the collator's options about columns have these items; None where they are not plain."""
    joined = collator.join_columns
    if joined == () and collator.pad_values is collator.pad_axes is collator.dtypes is None:
        return ()
    items = () if type(joined) is not list else ((ITEMS, joined, None, tuple(joined)),)
    known = joined is None or type(joined) in (list, tuple)
    return joined_facts(
        items if known else None,
        *(items_facts(getattr(collator, name)) for name in ("pad_values", "pad_axes", "dtypes")),
    )
