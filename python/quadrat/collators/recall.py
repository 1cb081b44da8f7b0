"""Batches like those before: one compiled call, when nothing that the decisions depend on has changed.

Right after a training step the caches hold something else, and a batch costs what it touches more than what it does;
`pad_features` decides, this remembers.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from transformers import BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat._memory import Framework, interop, torch_facts_of_plain_tensors
from quadrat.batch import DeferredBatch, padded_batch
from quadrat.collators.base import AlwaysHandOver, HandOver

# Kept from import time: a tokenizer class, or a patch of the base class, that differs is not ours to imitate.
PAD = PreTrainedTokenizerBase.pad
PAD_ONE = PreTrainedTokenizerBase._pad
STRATEGIES = PreTrainedTokenizerBase._get_padding_truncation_strategies
METHODS = frozenset(("pad", "_pad", "_get_padding_truncation_strategies"))
_GETATTR = PreTrainedTokenizerBase.__getattr__
_TYPE_ID = PreTrainedTokenizerBase.pad_token_type_id

_EMPTY = dict(BatchEncoding().__dict__)


# What a decision depends on: (one of these, object, key, expected), see csrc/bindings/guard.hpp.
TYPE, ENTRY, ABSENT, ATTRIBUTE = _core.FACT_TYPE, _core.FACT_ENTRY, _core.FACT_ABSENT, _core.FACT_ATTRIBUTE
ITEMS, CALL, OWN, OWN_ABSENT = _core.FACT_ITEMS, _core.FACT_CALL, _core.FACT_OWN, _core.FACT_OWN_ABSENT
Fact = tuple[int, Any, Any, Any]

# The fields that every padding collator has.
PADDING_FIELDS = (
    "padding",
    "max_length",
    "pad_to_multiple_of",
    "pad_values",
    "tokenizer",
    "return_tensors",
    "deferred",
)

# Names, signature, steps (None: to fall back) and values.
Decided = tuple[tuple[str, ...], bytes, tuple[tuple[str, int, int, int], ...] | None, dict[str, Any]]


class Remembering:
    """What a collator knows of earlier batches stays behind when it is pickled or copied.

    It is kept in attributes named `_quadrat...`, made when first needed. All else that a collator holds are its
    options, fields or keywords of `__init__`, under their own names.
    """

    # The fields that decide what becomes of a batch; a recipe holds for the values they had.
    _quadrat_guarded: ClassVar[tuple[str, ...]] = ()
    deferred = False  # where it is no field

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without recipes and what was logged."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_quadrat")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """The state of a collator of this class, or of the reference's, which lacks the options that are quadrat's."""
        self.__dict__.update(_defaults(type(self), state))
        self.__dict__.update(state)


def _defaults(cls: type[Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The options that `state` lacks."""
    found = {
        name: parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        if name not in state and parameter.default is not parameter.empty
    }
    for field in dataclasses.fields(cls):
        if field.name not in state and field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.name not in state and field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


class PadOptions(NamedTuple):
    """How a collator asks its tokenizer to pad; the defaults are those of `tokenizer.pad`."""

    padding: Any = True
    max_length: Any = None
    pad_to_multiple_of: Any = None


def falls_back_plainly(collator: Any) -> bool:
    """Whether a batch that falls back is the reference's, without anything that only quadrat can do."""
    return (
        not collator.deferred
        and getattr(collator, "pad_values", None) is None
        and getattr(collator, "rng", "torch") == "torch"
        and not getattr(collator, "whole_word_mask", False)  # word_ids are unknown to the reference
        and not getattr(collator, "padding_free", False)
    )


def remember_fallback(collator: Any, framework: Framework) -> None:
    """Keep that the collator falls back whatever a batch holds, as long as its options and its tokenizer are these.

    It is found where `remember` keeps decisions, and gives NotImplemented.
    """
    own, tokenizer = collator.__dict__, collator.tokenizer
    cls, guarded = type(tokenizer), collator._quadrat_guarded
    if not guarded or not falls_back_plainly(collator) or any(name not in own for name in guarded):
        return
    facts = (
        *((OWN, None, name, own[name]) for name in guarded),
        (TYPE, tokenizer, None, cls),
        *((ATTRIBUTE, cls, name, getattr(cls, name, None)) for name in sorted(METHODS) if hasattr(cls, name)),
    )
    own[f"_quadrat_{framework}"] = _core.known_fallback(facts)


def noted(collator: Any, framework: Framework, reason: HandOver) -> str:
    """Why a batch falls back, in words; remembered where no batch will do otherwise."""
    if isinstance(reason, AlwaysHandOver):
        remember_fallback(collator, framework)
    return str(reason)


def remember(
    collator: Any,
    framework: Framework,
    options: PadOptions,
    decided: Decided,
    further: tuple[Fact, ...] = (),
    *,
    failed: bool = False,
) -> None:
    """Keep a decision, (names, signature, steps, values), where the facts it depends on can be guarded.

    It is found in `collator._quadrat_pt` or `_quadrat_np`: called with the collator and features it gives a batch like
    this one, NotImplemented where the reference is to make it, or None where it does not know. `further`: facts beyond
    those of padding. `failed`: whether the steps failed by what a row holds; then they are tried again, now and then.
    """
    falls_back = falls_back_plainly(collator)
    if (failed or decided[2] is None) and not falls_back:
        return
    recipes = collator.__dict__.setdefault("_quadrat_recipes", {})
    recipe = recipes.get(framework)
    if recipe is None or not recipe.holds(collator):
        facts = _facts(collator, framework, options)
        if facts is None:
            return
        tokenizer = collator.tokenizer
        recipe = _core.Recipe(
            (*facts, *further),
            interop(),
            framework == "pt",
            BatchEncoding,
            _EMPTY,
            tokenizer.model_input_names[0],
            options.pad_to_multiple_of or 1,
            tokenizer.padding_side == "left",
            padded_batch if collator.deferred else None,
            falls_back,
        )
    recipes[framework] = recipe.extended(*decided, failed)
    collator.__dict__[f"_quadrat_{framework}"] = recipes[framework].runner()


def _facts(collator: Any, framework: Framework, options: PadOptions) -> tuple[Fact, ...] | None:
    """All that decisions depend on besides the batch, for `_core.Recipe`; None where that is not known.

    Not known: tokenizers that keep their pad token elsewhere than those of transformers, options for which the
    tokenizer is asked, `pad_values`, and a torch that would not make plain CPU tensors.
    """
    tokenizer = collator.tokenizer
    cls, state, own = type(tokenizer), tokenizer.__dict__, collator.__dict__
    guarded = collator._quadrat_guarded
    kept = ("_special_tokens_map", "_tokenizer", "_pad_token_type_id", "padding_side", "model_input_names")
    plain = (
        collator.pad_values is None
        and options.max_length is None
        and (options.padding is True or options.padding == "longest")
        and all(name in own and own[name] is getattr(collator, name) for name in guarded)
        and all(name in state for name in kept)
        and type(state["_special_tokens_map"]) is dict
        and type(state["model_input_names"]) is list
        and _has_plain_pad_token(tokenizer)
    )
    torch_facts = torch_facts_of_plain_tensors() if framework == "pt" else ()
    if not plain or torch_facts is None:
        return None
    return (
        *((OWN, None, name, own[name]) for name in guarded),
        (TYPE, tokenizer, None, cls),
        (ATTRIBUTE, cls, "pad", PAD),
        (ATTRIBUTE, cls, "_pad", PAD_ONE),
        (ATTRIBUTE, cls, "_get_padding_truncation_strategies", STRATEGIES),
        *((ABSENT, state, name, None) for name in METHODS),
        *((ENTRY, state, name, state[name]) for name in kept),
        (ENTRY, state["_special_tokens_map"], "pad_token", state["_special_tokens_map"].get("pad_token")),
        (ITEMS, state["model_input_names"], None, tuple(state["model_input_names"])),
        *((CALL, function, None, result) for function, result in torch_facts),
    )


def _has_plain_pad_token(tokenizer: Any) -> bool:
    """Whether pad token and type id are found where the facts are, and the token is in the vocabulary to stay."""
    cls = type(tokenizer)
    return (
        cls.pad is PAD
        and cls._pad is PAD_ONE
        and cls.__getattr__ is _GETATTR
        and cls.pad_token_type_id is _TYPE_ID
        and not hasattr(cls, "pad_token_id")
        and "pad_token_id" not in tokenizer.__dict__
        and tokenizer.pad_token_id is not None
        and tokenizer.convert_ids_to_tokens(tokenizer.pad_token_id) == str(tokenizer.pad_token)
    )


def as_encoding(data: Any) -> Any:
    """A `BatchEncoding` of these columns, as `BatchEncoding(data)` makes it, without its loops."""
    if isinstance(data, DeferredBatch):
        return data.as_encoding()
    batch = BatchEncoding.__new__(BatchEncoding)
    batch.__dict__.update(_EMPTY)
    batch.__dict__["data"] = data
    return batch
