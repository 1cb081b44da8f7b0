"""A collator's tokenizer and options that the reference does not take."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

from quadrat.planning.diagnosis.values import kind_of, length_of, shown

_PADDINGS = (True, False, "longest", "max_length", "do_not_pad", None)


def not_a_tokenizer(collator: Any) -> Iterator[str]:
    """Problems of what was given as tokenizer."""
    if not hasattr(collator, "tokenizer"):
        return
    tokenizer = collator.tokenizer
    if hasattr(tokenizer, "pad") and not isinstance(tokenizer, type):
        return
    found = f"tokenizer is {kind_of(tokenizer)}"
    if tokenizer is None:
        yield f"{found}; give the tokenizer of your model, for example AutoTokenizer.from_pretrained(name)"
    elif isinstance(tokenizer, str):
        yield f"{found}, not a tokenizer; give AutoTokenizer.from_pretrained({shown(tokenizer)})"
    elif isinstance(tokenizer, type):
        name = tokenizer.__name__
        yield f"tokenizer is the class {name}; give an instance, for example {name}.from_pretrained(name)"
    elif hasattr(getattr(tokenizer, "tokenizer", None), "pad"):
        yield f"{found}, which has no method pad; give its tokenizer: processor.tokenizer"
    elif type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        instead = "PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=...)"
        yield f"{found} of the package tokenizers, which has no method pad; give {instead}"
    else:
        yield f"{found}, which has no method pad; give a tokenizer of transformers"


def unknown(collator: Any) -> Iterator[str]:
    """Values of options that no collator knows."""
    multiple = getattr(collator, "pad_to_multiple_of", None)
    if multiple is not None and (not isinstance(multiple, numbers.Integral) or multiple <= 0):
        yield f"pad_to_multiple_of is {shown(multiple)}; it must be a positive int or None"
    padding = getattr(collator, "padding", True)
    if not any(padding is known or padding == known for known in _PADDINGS):
        yield f"padding is {shown(padding)}; it must be True, False, 'longest', 'max_length' or 'do_not_pad'"
    framework = getattr(collator, "return_tensors", "pt")
    if framework not in ("pt", "np", "tf", "jax", "mlx", None):
        yield unknown_framework(framework)
    label = getattr(collator, "label_pad_token_id", -100)
    if not isinstance(label, numbers.Real):
        yield f"label_pad_token_id is {shown(label)}; it must be an int, usually -100"
    probability = getattr(collator, "plm_probability", 1)
    if not isinstance(probability, numbers.Real) or not 0 < float(probability) <= 1:
        yield f"plm_probability is {shown(probability)}; it must be a number above 0 and up to 1, such as 1/6"
    longest = getattr(collator, "max_span_length", 1)
    if not isinstance(longest, numbers.Integral) or longest < 1:
        yield f"max_span_length is {shown(longest)}; it must be a positive int"


def unknown_framework(return_tensors: Any) -> str:
    """What to say about a value of `return_tensors`."""
    return f"return_tensors is {shown(return_tensors)}; it must be 'pt' or 'np'"


def pads(collator: Any) -> bool:
    """Whether the collator's options ask for padding."""
    return getattr(collator, "padding", True) not in (False, "do_not_pad")


def no_pad_token(collator: Any, *, rows_of_one_length: bool = False) -> Iterator[str]:
    """What padding needs of the tokenizer. rows_of_one_length: whether they could go without padding."""
    tokenizer = collator.tokenizer
    if getattr(tokenizer, "pad_token", "") is None:
        remedy = "tokenizer.pad_token = tokenizer.eos_token"
        if getattr(tokenizer, "eos_token", None) is None:
            remedy = "tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        otherwise = ", or use padding=False" if rows_of_one_length and hasattr(collator, "padding") else ""
        yield f"{type(tokenizer).__name__} has no pad token; set one, for example {remedy}{otherwise}"


def padding_side(collator: Any) -> Iterator[str]:
    """Problems of the side on which rows are padded."""
    side = getattr(collator.tokenizer, "padding_side", "right")
    if side not in ("right", "left"):
        yield f"padding_side is {shown(side)}; set tokenizer.padding_side to 'right' or 'left'"


def beyond_max_length(collator: Any, column: str, values: Sequence[Any], what: str) -> Iterator[str]:
    """Rows longer than `max_length`, which a collator leaves as they are."""
    limit = getattr(collator, "max_length", None) if getattr(collator, "padding", True) == "max_length" else None
    if limit is None:
        return
    lengths = [length_of(value) or 0 for value in values]
    longest = max(lengths)
    if longest > limit:
        yield (
            f"column '{column}', row {lengths.index(longest)} has {longest} {what}, more than max_length={limit}, and "
            "a collator does not truncate; tokenize with truncation=True and this max_length, or raise max_length"
        )
