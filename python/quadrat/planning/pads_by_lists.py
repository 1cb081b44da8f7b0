"""Tokenizers that pad in their own way: the reference pads their rows as lists, and compiled code converts these."""

import sys
from typing import Any

from transformers import BatchEncoding

from quadrat.input.rows import SEQUENCES, Rows
from quadrat.installed import imitated, originals
from quadrat.installed.imitated import PADDING, Imitation
from quadrat.planning.compared import reference_is_running
from quadrat.planning.conversion import convert_to_tensors
from quadrat.planning.facts import PAD_ONE

TOKENIZER_PAD = Imitation("tokenizer_pad", PADDING[1:])


def by_lists(pad: Any, tokenizer: Any, encoded_inputs: Any, asked: dict[str, Any]) -> Any:
    """The result of the reference's `pad`: rows of lists are padded by it, and converted in compiled code."""
    return_tensors = asked["return_tensors"]
    known = imitated.changed(TOKENIZER_PAD) is None and not reference_is_running()
    if return_tensors is None or not known or not _holds_lists(tokenizer, encoded_inputs):
        return pad(tokenizer, encoded_inputs, **asked)
    return convert_to_tensors(pad(tokenizer, encoded_inputs, **asked | {"return_tensors": None}), return_tensors)


def _holds_lists(tokenizer: Any, encoded_inputs: Any) -> bool:
    """True if there are rows, and the first one is a list of numbers, so that the reference infers no framework."""
    data: Any = encoded_inputs.data if type(encoded_inputs) is BatchEncoding else encoded_inputs
    try:
        main = tokenizer.model_input_names[0]
        rows: Any = data.get(main) if type(data) is dict else None
        if type(data) in SEQUENCES and len(data) > 0:
            rows = [first_value(data, main)]
    except Exception:  # the reference fails in its own way
        return False
    first: Any = rows[0] if type(rows) in (list, tuple) and rows else None
    return type(first) in (list, tuple) and len(first) > 0 and type(first[0]) is int


def is_of_luke(method: Any) -> bool:
    """True if a method is `pad` of the installed LUKE or mLUKE, which pads entities and is the base's otherwise."""
    names = {"LukeTokenizer": "luke", "MLukeTokenizer": "mluke"}
    homes = {
        name: sys.modules.get(f"transformers.models.{module}.tokenization_{module}") for name, module in names.items()
    }
    methods = (getattr(getattr(home, name, None), "pad", None) for name, home in homes.items())
    return method is not None and any(method is known for known in methods)


def first_value(features: Any, main: str) -> Any:
    """The first row of a list of mappings; None where a look may do more than look."""
    if type(features) is Rows:
        return None  # what lies in columns becomes lists
    first = features[0]
    data = first.data if type(first) is BatchEncoding else first
    return data.get(main) if type(data) is dict else None


class PadsByLists:
    """A tokenizer for the reference's collators: it pads `by_lists`, and all else is the tokenizer's own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def pad(self, encoded_inputs: Any, *rest: Any, **asked: Any) -> Any:
        """The result of the tokenizer's method."""
        tokenizer = self._tokenizer
        if rest:
            return tokenizer.pad(encoded_inputs, *rest, **asked)
        method = type(tokenizer).pad
        method = originals.PAD if originals.is_of(method, originals.PAD) else method
        return by_lists(method, tokenizer, encoded_inputs, {"return_tensors": None} | asked)


def faster_reference(collator: Any, framework: Any) -> Any:
    """The collator, for a method of the reference: with a tokenizer that pads `by_lists`, where it pads its own way."""
    tokenizer = collator.tokenizer
    method = getattr(type(tokenizer), "pad", None)
    is_usual = originals.is_of(method, originals.PAD)
    pads_its_own_way = is_of_luke(method) or (is_usual and type(tokenizer)._pad is not PAD_ONE)
    if framework not in ("pt", "np") or not pads_its_own_way or "pad" in vars(tokenizer):
        return collator
    return collator._with({"tokenizer": PadsByLists(tokenizer)})
