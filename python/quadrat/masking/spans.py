"""Permutation language modelling of padded ids: spans to predict, and the orders in which to predict them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.masking.language_modeling import is_plain_ids
from quadrat.masking.vocabulary import listed_special_ids
from quadrat.planning.fallback import FallBack, or_fall_back
from quadrat.planning.plan_cache import check_device
from quadrat.support.columns import explain
from quadrat.support.generators import TORCH_DOUBLE, numpy_origin, python_origin, torch_origin
from quadrat.support.kinds import FLOAT32, INT64, Framework
from quadrat.support.memory import address_of, empty_batch

_MOST_SPANS = 1 << 12
_MOST_STARTS = _MOST_TOKENS = _core.MOST_TOKENS  # torch draws more than one word for a start among as many

Masked = tuple[Any, Any, Any, Any]  # inputs, perm_mask, target_mapping and labels


def mask_spans(collator: Any, inputs: Any, framework: Framework) -> Masked:
    """Mask spans of `inputs`, `[rows, width]`, a tensor in place. Raises FallBack before it draws or writes."""
    if not is_plain_ids(inputs, framework) or inputs.ndim != 2:
        raise FallBack("the batch is not a contiguous matrix of int64", "give int64 ids, contiguous on the CPU")
    rows, width = inputs.shape
    if rows == 0 or width == 0 or width % 2 != 0:
        raise FallBack("the batch is empty, or its width is odd", "give rows of an even number of tokens")
    tokenizer = collator.tokenizer
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise FallBack("the tokenizer lacks a token", "set tokenizer.mask_token and tokenizer.pad_token")
    mask_id, pad_id = _token_id(tokenizer.mask_token_id), _token_id(tokenizer.pad_token_id)
    slack = 1 if framework == "np" else 0  # Python's randint includes its upper bound, torch's does not
    longest, share = collator.max_span_length, collator.plm_probability
    if type(longest) is not int or type(share) not in (int, float):
        raise FallBack("max_span_length is not an int, or plm_probability is not a number", "give an int, and a number")
    contexts = _contexts(longest + slack, share, slack)
    generator, shuffler = _generators(framework)
    special, flags = _functional(tokenizer, inputs, pad_id, framework)
    try:
        square = ((rows, width, width), FLOAT32)
        outputs = empty_batch(framework, (((rows, width), INT64), square, square))
    except (MemoryError, ValueError) as error:
        raise FallBack(str(error), "make smaller batches, or shorter rows") from error
    (labels, perm_mask, target_mapping), places = zip(*outputs, strict=True)
    drawn = generator, shuffler, contexts, special, mask_id, rows, width
    flags_at = 0 if flags is None else address_of(flags)
    failure = _core.permutation_mask(*drawn, flags_at, address_of(inputs), *places)
    if failure is not None:
        raise FallBack(explain(failure))
    return inputs if framework == "pt" else inputs.copy(), perm_mask, target_mapping, labels


def _token_id(token_id: Any) -> int:
    if type(token_id) is not int or not 0 <= token_id < _MOST_TOKENS:
        raise FallBack("a special token has no id in the vocabulary", "add it with tokenizer.add_special_tokens")
    return token_id


@functools.lru_cache(maxsize=64)
def _contexts(longest: int, probability: float, slack: int) -> tuple[int, ...]:
    """How many tokens a span of 1, 2, ... `longest` tokens reserves."""
    if not 1 <= longest <= _MOST_SPANS:
        raise FallBack("max_span_length is out of range", f"give 1 to {_MOST_SPANS}")
    try:
        contexts = tuple(int(span / probability) for span in range(1, longest + 1))
    except (ArithmeticError, ValueError) as error:
        raise FallBack("plm_probability is not a probability", "give a number above 0, for example 1/6") from error
    if any(context < max(1, span - slack) for span, context in enumerate(contexts, 1)):
        raise FallBack("a span does not fit what is reserved for it", "give a plm_probability up to 1")
    if contexts[-1] >= _MOST_STARTS:
        raise FallBack("plm_probability is too small", "give a larger one, for example 1/6")
    return contexts


def _generators(framework: Framework) -> tuple[Any, Any]:
    check_device(framework)
    if framework == "pt":
        spans, orders = torch_origin(None), None
    else:
        spans, orders = python_origin(), numpy_origin(None)
    if spans is None or spans.generator_type == TORCH_DOUBLE or (framework == "np" and orders is None):
        raise FallBack("the generator's draws are not known", "call torch.set_default_dtype(torch.float32)")
    return spans.generator, None if orders is None else orders.generator


def _functional(tokenizer: Any, inputs: Any, pad_id: int, framework: Framework) -> tuple[list[int], Any]:
    """Which tokens are special or padding: their ids or, where only the tokenizer can tell, a bool for each token."""
    listed = listed_special_ids(tokenizer)
    if listed is not None:
        return [pad_id, *map(_token_id, listed)], None
    padding = inputs == pad_id
    with or_fall_back("get_special_tokens_mask of the tokenizer fails", "do not override it"):
        masks = [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in inputs.tolist()]
        special = np.array(masks, dtype=bool) if framework == "np" else padding.new_tensor(masks)
    if special.shape != inputs.shape:
        raise FallBack("get_special_tokens_mask of the tokenizer is of another length", "do not override it")
    return [], special | padding
