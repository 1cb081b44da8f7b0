"""Tokenizers that override padding, such as those for documents: they pad lists, and quadrat converts the lists."""

from __future__ import annotations

import sys
from typing import Any

from transformers import BatchEncoding

from quadrat.input.rows import Rows, first_of
from quadrat.installed import originals
from quadrat.planning.conversion import convert_to_tensors
from quadrat.planning.plan_cache import PAD_ONE, is_pad

PYTHON_ROWS = (list, tuple)


def by_lists(pad: Any, tokenizer: Any, encoded_inputs: Any, asked: dict[str, Any]) -> Any:
    """What `pad` of the reference gives: rows of lists are padded by it, and converted in compiled code.

    Most of its time goes into the conversion, above all that of rows with further dimensions, boxes for example.
    """
    return_tensors = asked["return_tensors"]
    if return_tensors is None or not _holds_lists(tokenizer, encoded_inputs):
        return pad(tokenizer, encoded_inputs, **asked)
    return convert_to_tensors(pad(tokenizer, encoded_inputs, **asked | {"return_tensors": None}), return_tensors)


def _holds_lists(tokenizer: Any, encoded_inputs: Any) -> bool:
    """Whether there are rows, and the first one is a list of numbers, so that the reference infers no framework."""
    data: Any = encoded_inputs.data if type(encoded_inputs) is BatchEncoding else encoded_inputs
    try:
        main = tokenizer.model_input_names[0]
        rows: Any = data.get(main) if type(data) is dict else None
        if type(data) in (*PYTHON_ROWS, Rows) and len(data) > 0:
            rows = [first_value(data, main)]
    except Exception:  # the reference fails in its own way
        return False
    first: Any = rows[0] if type(rows) in PYTHON_ROWS and rows else None
    return type(first) in PYTHON_ROWS and len(first) > 0 and type(first[0]) is int


def is_of_luke(method: Any) -> bool:
    """Whether a method is `pad` of the installed LUKE or mLUKE, which pads entities and is the base's otherwise."""
    for module, name in (("luke", "LukeTokenizer"), ("mluke", "MLukeTokenizer")):
        home = sys.modules.get(f"transformers.models.{module}.tokenization_{module}")
        if method is not None and method is getattr(getattr(home, name, None), "pad", None):
            return True
    return False


def first_value(features: Any, main: str) -> Any:
    """The first row of a list of mappings; None where a look may do more than look."""
    if type(features) is Rows and not features.handed_out:
        return None  # what lies in columns becomes lists
    first = first_of(features)
    data = first.data if type(first) is BatchEncoding else first
    return data.get(main) if type(data) is dict else None


class PadsByLists:
    """A tokenizer for the reference's collators: it pads `by_lists`, and all else is the tokenizer's own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def pad(self, encoded_inputs: Any, *rest: Any, **asked: Any) -> Any:
        """What the tokenizer's method gives."""
        tokenizer = self._tokenizer
        if rest:
            return tokenizer.pad(encoded_inputs, *rest, **asked)
        own = type(tokenizer).pad
        method = originals.PAD if is_pad(own) else own
        return by_lists(method, tokenizer, encoded_inputs, {"return_tensors": None} | asked)


def faster_reference(collator: Any, framework: Any) -> Any:
    """The collator, for a method of the reference: with a tokenizer that pads `by_lists`, where it pads its own way."""
    tokenizer = collator.tokenizer
    own = getattr(type(tokenizer), "pad", None)
    pads_its_own_way = is_of_luke(own) or (is_pad(own) and type(tokenizer)._pad is not PAD_ONE)
    if framework not in ("pt", "np") or not pads_its_own_way or "pad" in vars(tokenizer):
        return collator
    return collator._with({"tokenizer": PadsByLists(tokenizer)})
