"""Batches like those before: one compiled call, when nothing that the decisions depend on has changed.

Right after a training step the caches hold something else, and a batch costs what it touches more than what it does;
`pad_features` decides, this remembers.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from transformers import BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from quadrat import _core
from quadrat.deferred.batch import DeferredBatch, deferred_batch
from quadrat.planning.fallback import AlwaysFallBack, FallBack
from quadrat.support.memory import Framework, interop, torch_facts_of_plain_tensors

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
    tokenizer, own = getattr(collator, "tokenizer", None), own_facts(collator)
    cls = type(tokenizer)
    if tokenizer is None or not own or not falls_back_plainly(collator):
        return
    facts = (
        *own,
        (TYPE, tokenizer, None, cls),
        *((ATTRIBUTE, cls, name, getattr(cls, name, None)) for name in sorted(METHODS) if hasattr(cls, name)),
    )
    run = _core.Recipe(facts, interop(), framework == "pt", always=True).runner()
    collator.__dict__[f"_quadrat_{framework if framework in ('pt', 'np') else 'other'}"] = run


def noted(collator: Any, framework: Framework, reason: FallBack) -> str:
    """Why a batch falls back, in words; remembered where no batch will do otherwise."""
    if isinstance(reason, AlwaysFallBack):
        remember_fallback(collator, framework)
    return str(reason)


def extended(
    recipes: dict[Any, _core.Recipe],
    key: Any,
    collator: Any,
    decided: Decided,
    make: Callable[[], _core.Recipe | None],
    *,
    failed: bool = False,
) -> Callable[[Any, Any], Any] | None:
    """Add a decision to the recipe of this key, a new one where that holds no longer for the collator that asks.

    failed: whether the steps failed by what a row holds; then they are tried again, now and then.

    Returns:
        What gives batches like this one: called with the collator and features it returns a batch, NotImplemented where
        the reference is to make it, or None where it does not know. None where `make` knows no recipe.
    """
    recipe = recipes.get(key)
    if recipe is None or not recipe.holds(collator):
        recipe = make()
    if recipe is None:
        return None
    recipes[key] = recipe.extended(*decided, failed)
    return recipes[key].runner()


def remember(
    collator: Any,
    framework: Framework,
    decided: Decided,
    make: Callable[[], _core.Recipe | None],
    *,
    names: tuple[str, ...] | None = None,
    failed: bool = False,
) -> None:
    """Keep a decision as `collator._quadrat_pt` or `_quadrat_np`, see `extended`. names: what the recipe reads."""
    own = collator.__dict__
    run = extended(own.setdefault("_quadrat_recipes", {}), (framework, names), collator, decided, make, failed=failed)
    if run is not None:
        own[f"_quadrat_{framework}"] = run


def remember_padded(
    collator: Any,
    framework: Framework,
    options: PadOptions,
    decided: Decided,
    further: tuple[Fact, ...] = (),
    *,
    failed: bool = False,
) -> None:
    """`remember` for batches that the collator's tokenizer would pad. further: facts beyond those of padding."""
    falls_back = falls_back_plainly(collator)
    if (failed or decided[2] is None) and not falls_back:
        return

    def make() -> _core.Recipe | None:
        facts = _facts(collator, framework, options)
        if facts is None:
            return None
        return _core.Recipe(
            (*facts, *further),
            interop(),
            framework == "pt",
            wrapper=BatchEncoding,
            attributes=_EMPTY,
            main=collator.tokenizer.model_input_names[0],
            multiple_of=options.pad_to_multiple_of or 1,
            left=collator.tokenizer.padding_side == "left",
            deferred=deferred_batch if collator.deferred else None,
            falls_back=falls_back,
        )

    remember(collator, framework, decided, make, failed=failed)


def own_facts(collator: Any) -> tuple[Fact, ...] | None:
    """That the guarded fields are what they are; None where one is no plain attribute of the collator."""
    own, guarded = collator.__dict__, collator._quadrat_guarded
    if any(name not in own or own[name] is not getattr(collator, name) for name in guarded):
        return None
    return tuple((OWN, None, name, own[name]) for name in guarded)


def torch_facts(framework: Framework) -> tuple[Fact, ...] | None:
    """That torch makes plain CPU tensors of today's default dtype, where tensors are made; None where it does not."""
    facts = torch_facts_of_plain_tensors() if framework == "pt" else ()
    return None if facts is None else tuple((CALL, function, None, result) for function, result in facts)


def _facts(collator: Any, framework: Framework, options: PadOptions) -> tuple[Fact, ...] | None:
    """All that decisions depend on besides the batch, for `_core.Recipe`; None where that is not known.

    Not known: tokenizers that keep their pad token elsewhere than those of transformers, options for which the
    tokenizer is asked, `pad_values`, and a torch that would not make plain CPU tensors.
    """
    tokenizer = collator.tokenizer
    cls, state = type(tokenizer), tokenizer.__dict__
    kept = ("_special_tokens_map", "_tokenizer", "_pad_token_type_id", "padding_side", "model_input_names")
    plain = (
        collator.pad_values is None
        and options.max_length is None
        and (options.padding is True or options.padding == "longest")
        and all(name in state for name in kept)
        and type(state["_special_tokens_map"]) is dict
        and type(state["model_input_names"]) is list
        and _has_plain_pad_token(tokenizer)
    )
    own, torch = own_facts(collator), torch_facts(framework)
    if not plain or own is None or torch is None:
        return None
    return (
        *own,
        (TYPE, tokenizer, None, cls),
        (ATTRIBUTE, cls, "pad", PAD),
        (ATTRIBUTE, cls, "_pad", PAD_ONE),
        (ATTRIBUTE, cls, "_get_padding_truncation_strategies", STRATEGIES),
        *((ABSENT, state, name, None) for name in METHODS),
        *((ENTRY, state, name, state[name]) for name in kept),
        (ENTRY, state["_special_tokens_map"], "pad_token", state["_special_tokens_map"].get("pad_token")),
        (ITEMS, state["model_input_names"], None, tuple(state["model_input_names"])),
        *torch,
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
