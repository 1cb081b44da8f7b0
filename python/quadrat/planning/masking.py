"""What masked language modelling reads from a collator, its tokenizer and its generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadrat import _core
from quadrat.installed import imitated
from quadrat.ops._philox import PhiloxOptions, seed_of
from quadrat.ops.mask_tokens import write_labels
from quadrat.planning import philox
from quadrat.planning.fallback import FallBack
from quadrat.planning.plan_cache import ABSENT, ATTRIBUTE, CALL, ENTRY, ITEMS, OWN_ABSENT, Fact, token_facts
from quadrat.planning.vocabulary import length_facts, length_of, listed_special_ids
from quadrat.support.generators import Origin, numpy_origin, torch_origin
from quadrat.support.memory import Framework, NotOnCpu, other_than_memory, require_plain_tensors


def origin(collator: Any, framework: Framework) -> Origin | None:
    """Where the reference's draws come from, if known."""
    return torch_origin(collator.generator) if framework == "pt" else numpy_origin(collator.generator)


def causal_labels(pad_token_id: Any, names: tuple[str, ...], *, by_length: bool) -> Any:
    """What makes the labels of causal language modelling from ids: -100 as filling, or for the padding token."""
    if by_length or pad_token_id is None:
        return -100
    if type(pad_token_id) is not int:
        raise FallBack("the padding token's id is no int")
    return _core.CausalLabels(pad_token_id, _special_column(names))


def _special_column(names: tuple[str, ...]) -> int:
    return names.index("special_tokens_mask") if "special_tokens_mask" in names else -1


def masked_labels(collator: Any, names: tuple[str, ...], framework: Framework) -> _core.Labels:
    """What masks the ids of a batch with these columns and makes their labels."""
    special = _special_column(names)
    words, source = -1, _core.WORDS_FROM_NOTHING
    if collator.whole_word_mask:
        if "word_ids" in names:
            words, source = names.index("word_ids"), _core.WORDS_FROM_WORD_IDS
        elif "offset_mapping" in names:
            words, source = names.index("offset_mapping"), _core.WORDS_FROM_OFFSETS
        else:
            raise FallBack("whole-word masking without offsets")
    if collator.rng == "philox":
        keys = philox.key_column(collator, names)
        mask_id, vocab_size, special_ids = _tokens(collator, framework, special)
        probabilities = collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob
        return _core.PhiloxLabels(
            PhiloxOptions(seed_of(collator.seed), 0, *probabilities, mask_id, vocab_size),
            special_ids,
            special=special,
            words=words,
            word_source=source,
            keys=keys,
            epoch=collator._shared_epoch().array,
        )
    return _masked_labels(collator, framework, special, words, source)


def _masked_labels(collator: Any, framework: Framework, special: int, words: int, source: int) -> _core.MaskedLabels:
    where = origin(collator, framework)
    if where is None:
        raise FallBack("the generator's draws are not known")
    mask_id, vocab_size, special_ids = _tokens(collator, framework, special)
    mask, random = collator.mask_replace_prob, collator.random_replace_prob
    has_random = not (mask == 1 or random == 0)
    return _core.MaskedLabels(
        source=where.source,
        generator=where.generator,
        every_word=False,
        mlm_probability=where.rounded(collator.mlm_probability),
        mask=where.rounded(mask),
        random_of_rest=where.rounded(random / (1 - mask)) if has_random else 0.0,
        has_random=has_random,
        mask_id=mask_id,
        vocab_size=vocab_size,
        special_ids=special_ids,
        special=special,
        words=words,
        word_source=source,
    )


def _tokens(collator: Any, framework: Framework, special: int) -> tuple[int, int, list[int]]:
    """(mask id, size of the vocabulary, ids that are special unless column `special` says). Raises FallBack."""
    tokenizer = collator.tokenizer
    mask, random = collator.mask_replace_prob, collator.random_replace_prob
    has_random = not (mask == 1 or random == 0)
    probabilities = [collator.mlm_probability, mask, random, random / (1 - mask) if has_random else 0.0]
    mask_id = tokenizer.convert_tokens_to_ids(tokenizer.mask_token) if framework == "pt" else tokenizer.mask_token_id
    if not all(type(p) in (int, float) and 0 <= p <= 1 for p in probabilities) or type(mask_id) is not int:
        raise FallBack("probabilities or a mask token that only the reference handles")
    vocab_size = length_of(tokenizer)
    if not 0 < vocab_size < _core.MOST_TOKENS:
        raise FallBack("a vocabulary of that size is drawn from in another way")
    if special >= 0:
        return mask_id, vocab_size, []
    ids = listed_special_ids(tokenizer)
    if ids is None:
        raise FallBack(f"{type(tokenizer).__name__} defines special tokens in its own way")
    if not all(0 <= token < _core.MOST_TOKENS for token in ids):
        raise FallBack("special tokens far outside the vocabulary")
    return mask_id, vocab_size, ids


def facts(collator: Any, framework: Framework, method: str) -> tuple[Fact, ...] | None:
    """What decisions about masking depend on besides the collator's fields and the padding; None where not known."""
    tokenizer = collator.tokenizer
    cls, state = type(tokenizer), tokenizer.__dict__
    special = state.get("_special_tokens_map")
    if type(special) is not dict or any(hasattr(cls, name) for name in ("mask_token", "mask_token_id")):
        return None
    extra = [value for value in (state.get("_extra_special_tokens"), *special.values()) if isinstance(value, list)]
    tokens = token_facts(tokenizer, tokenizer.all_special_tokens)
    if tokens is None:
        return None
    attributes = tokenizer.SPECIAL_TOKENS_ATTRIBUTES
    found: list[Fact] = [
        (OWN_ABSENT, None, method, None),
        (ATTRIBUTE, type(collator), method, getattr(type(collator), method)),
        *length_facts(tokenizer),
        *tokens,
        (ATTRIBUTE, tokenizer, "SPECIAL_TOKENS_ATTRIBUTES", attributes),
        (ITEMS, attributes, None, tuple(attributes)),
        *((ENTRY, special, name, value) for name, value in special.items()),
        *((ABSENT, special, name, None) for name in attributes if name not in special),
        *((ITEMS, value, None, tuple(value)) for value in extra),
        (ABSENT, state, "get_special_tokens_mask", None),
        (ATTRIBUTE, cls, "get_special_tokens_mask", cls.get_special_tokens_mask),
    ]
    if "_extra_special_tokens" in state:
        found.append((ENTRY, state, "_extra_special_tokens", state["_extra_special_tokens"]))
    if framework == "pt" and getattr(collator, "rng", "torch") == "torch":  # probabilities are of the default dtype
        import torch

        found.append((CALL, torch.get_default_dtype, None, torch.get_default_dtype()))
    return tuple(found)


def mask_array(collator: Any, inputs: Any, special: Any, offsets: Any, framework: Framework) -> tuple[Any, Any] | None:
    """Masks `inputs`, `[rows, width]` int64, in place; returns them and labels, None where the reference had better."""
    if collator.rng == "philox":
        return philox.mask_batch(collator, inputs, special, offsets)
    try:
        if not is_plain_ids(inputs, framework) or inputs.ndim != 2 or not inputs.shape[0]:
            return None
        if imitated.broken(framework) or imitated.unknown("DataCollatorForLanguageModeling"):
            return None
        if framework == "pt":
            require_plain_tensors()
        if collator.whole_word_mask and offsets is None:
            return None
        labeller = _masked_labels(collator, framework, -1 if special is None else 0, -1, _core.WORDS_FROM_NOTHING)
        offsets = offsets if collator.whole_word_mask else None
        return inputs, write_labels(labeller, inputs, special, offsets, of_batch=True)
    except (FallBack, NotOnCpu, TypeError, ValueError):
        return None


def is_plain_ids(array: Any, framework: Framework) -> bool:
    """Whether the kernels may write to it: contiguous int64 in host memory."""
    if framework == "np":
        return type(array) is np.ndarray and array.dtype == np.int64 and array.flags.carray
    import torch

    known = type(array) is torch.Tensor and array.is_cpu and array.dtype == torch.int64 and array.is_contiguous()
    return known and other_than_memory(array) is None
