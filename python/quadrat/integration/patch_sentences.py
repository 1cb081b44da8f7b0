"""`encode` and `predict` of sentence-transformers, in batches by token budget: a part of `patch_transformers`.

Their loop gets a few thousand texts as one batch, which its model computes in batches by length.
"""

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import batch_to_device

from quadrat.batching.any_loop import by_length
from quadrat.batching.budget import usual_budget
from quadrat.input.rows import MAIN
from quadrat.integration.patch_pipelines import Told, log
from quadrat.integration.switch import Swap, Switch
from quadrat.ops.pad import pad
from quadrat.support.tensors import is_tensor

_WINDOW = 2048  # texts that are one batch for the loop
_USUAL = 32  # texts of a batch
_AT_A_TIME = 64  # of these, texts of similar length that are tokenised together
_MASK, _TOKENS = "attention_mask", "token_embeddings"
_INPUTS = ("inputs", "sentences")
# Each class, its method, and what this takes of a model's outputs.
LOOPS = (SentenceTransformer, "encode", "sentence_embedding"), (CrossEncoder, "predict", "scores")


class _Unknown(Exception):  # noqa: N818 - a signal
    """Why the loop, or a text, cannot be known here."""


class InWindows:
    """A model as its own loop gets it: a batch of the loop is computed in batches of rows of similar length."""

    def __init__(self, model: Any, output: str, given: dict[str, Any]) -> None:
        self._model, self._output = model, output
        self._batch_size, self._keeps_tokens = given["batch_size"], given.get("output_value") == _TOKENS

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # which errors name
        return type(self._model)

    def __getattr__(self, name: str) -> Any:
        if name in ("forward", "tokenize"):  # a loop of another version
            raise _Unknown("this version of sentence-transformers has another loop")
        return getattr(self._model, name)

    def preprocess(self, inputs: list[str], **options: Any) -> dict[str, Any]:
        """The tokens of the texts, each without padding."""
        rows: list[dict[str, Any]] = [{}] * len(inputs)
        order, rest = np.argsort([*map(self._model._input_length, inputs)]), dict[str, Any]()
        for numbers in np.split(order, range(_AT_A_TIME, len(order), _AT_A_TIME)):
            rest = dict(self._model.preprocess([inputs[number] for number in numbers.tolist()], **options))
            columns = {name: rest.pop(name) for name in list(rest) if is_tensor(rest[name])}
            sizes = self._sizes(columns)
            for at, (number, size) in enumerate(zip(numbers.tolist(), sizes, strict=True)):
                rows[number] = {name: column[at, :size] for name, column in columns.items()}
        return {"rows": rows, "rest": rest}

    def _sizes(self, columns: dict[str, Any]) -> Any:
        mask = columns.get(_MASK)
        if not (MAIN in columns and mask is not None and set(columns) <= set(self._model.tokenizer.model_input_names)):
            raise _Unknown(f"the model reads {', '.join(columns)}, and not tokens with an attention mask alone")
        used = mask.numpy() != 0
        sizes = used.sum(1)
        if not (used == (np.arange(used.shape[1]) < sizes[:, None])).all() or not used.size:
            raise _Unknown("rows are padded on the left, or have no tokens, so padding may change results")
        return np.maximum(sizes, 1).tolist()

    def __call__(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The outputs for the texts, in their order."""
        rows, rest = features["rows"], features["rest"]

        def computed(batch: dict[str, Any]) -> dict[str, Any]:
            sizes = batch[_MASK].sum(1).clamp(min=1).tolist()  # a module may change the mask
            made = self._model(batch_to_device({**batch, **rest}, self._model.device), **options)
            kept = {self._output: made[self._output]} if self._output in made else {}
            if self._keeps_tokens:
                kept[_TOKENS] = [values[:size] for values, size in zip(made[_TOKENS], sizes, strict=True)]
            return kept

        batches = by_length(rows, collator=self.collated, max_tokens=functools.partial(usual_budget, self._batch_size))
        outputs = batches.restore([computed(batch) for _, batch in batches])
        return {**outputs, _MASK: [row[_MASK] for row in rows]}

    def collated(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch of the rows."""
        fills = {MAIN: self._model.tokenizer.pad_token_id, "token_type_ids": self._model.tokenizer.pad_token_type_id}
        return {name: pad([row[name] for row in rows], padding_value=fills.get(name, 0)) for name in rows[0]}


def _reasons_against(model: Any, cls: type, inputs: Any, given: dict[str, Any]) -> Iterator[str]:
    """Why the batches of a model stay as they are; none if they do not."""
    if type(model) is not cls:
        yield f"only a {cls.__name__} itself has batches by length"
    if type(model[0]).__name__ != "Transformer" or "text" not in getattr(model, "modalities", ()):
        yield "its first module is not a Transformer for text"
    if getattr(model, "backend", "torch") != "torch" or model.device.type == "hpu":
        yield f"it runs with {model.backend} on {model.device.type}"
    if model._can_flatten_inputs():
        yield "they have no padding"
    if model.tokenizer.padding_side != "right" or model.tokenizer.pad_token_id is None:
        yield "padding may change its results: its tokenizer pads on the left, or has no pad token"
    if given.get("pool") is not None or isinstance(given.get("device"), list):
        yield "several processes share them"
    if given.get("output_value", _TOKENS) not in ("sentence_embedding", _TOKENS):
        yield f"output_value={given['output_value']!r} returns what depends on the batch"
    if not all(isinstance(part, str) for one in inputs for part in (one if isinstance(one, (list, tuple)) else [one])):
        yield "inputs are not all texts"
    if type(given["batch_size"]) is not int or given["batch_size"] < 1:
        yield f"batch_size is {given['batch_size']!r}"


def _by_length(cls: Any, name: str, output: str, told: Told) -> Swap:
    name = "_inference" if "_inference" in vars(cls) else name  # which has the loop in newer versions
    original = vars(cls)[name]
    names = list(inspect.signature(original).parameters)[1:]

    @functools.wraps(original)
    def loop(self: Any, *args: Any, **options: Any) -> Any:
        given = {"batch_size": _USUAL, **dict(zip(names, args)), **options}  # noqa: B905
        key = next((one for one in _INPUTS if one in given), None)
        if key is None or len(args) > len(names) or (name != "_inference" and self.is_singular_input(given[key])):
            return original(self, *args, **options)
        if not isinstance(inputs := given[key], list):
            given[key] = inputs = inputs.tolist() if isinstance(inputs, np.ndarray) else list(inputs)
        if len(inputs) < 2:
            return original(self, **given)
        reason = next(_reasons_against(self, cls, inputs, given), None)
        if reason is None:
            try:
                made = original(InWindows(self, output, given), **{**given, "batch_size": _WINDOW})
            except _Unknown as unknown:
                reason = str(unknown)
            else:
                told(self, None)
                return made
        told(self, reason)
        return original(self, **given)

    return Swap(original, loop)


def swaps(told: Told = log) -> list[Swap]:
    """The swaps in `PLACES`; `told` gets each model with several inputs, and why its batches stay, if they do."""
    return [_by_length(*one, told) for one in LOOPS]


PLACES = SentenceTransformer, CrossEncoder
SENTENCES = Switch(swaps, others=lambda: PLACES)
