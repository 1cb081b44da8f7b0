"""Pipelines of transformers, in batches by token budget: a part of `patch_transformers`."""

import functools
import inspect
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import transformers
from transformers.pipelines.base import ChunkPipeline, Pipeline
from transformers.pipelines.pt_utils import PipelineIterator

from quadrat.batching.any_loop import map_by_length, note
from quadrat.batching.budget import usual_budget
from quadrat.integration.switch import Swap, Switch
from quadrat.ops._restored import named
from quadrat.support.tensors import is_tensor

Told = Callable[[Any, "str | None"], None]

logger = logging.getLogger("quadrat")
_WINDOW = 2048  # items that are read at once
_FEATURES = 256  # of these where each keeps the features of its tokens, and the caller may read one by one
_ZERO_SHOT = ("candidate_label", "sequence", "is_last", "logits")  # models may add the states of all tokens
_NAMES = (
    *("TextClassificationPipeline", "TokenClassificationPipeline", "FeatureExtractionPipeline", "FillMaskPipeline"),
    *("ZeroShotClassificationPipeline", "QuestionAnsweringPipeline"),
)


def knows(pipeline: Any) -> bool:
    """True for the pipelines whose batches are chosen here; a class derived from theirs may do something else."""
    cls = type(pipeline)
    return cls.__name__ in _NAMES and cls is getattr(transformers, cls.__name__, None)


def reason_against(pipeline: Any, batch_size: Any) -> str | None:
    """Why the batches of a pipeline stay as they are; None if they do not."""
    tokenizer, model = pipeline.tokenizer, pipeline.model
    if pipeline._pipeline_calls_generate:
        return "it generates, and most of the time goes into decoding"
    if not knows(pipeline) or tokenizer is None or getattr(pipeline, "framework", "pt") != "pt":
        return "only encoder pipelines of transformers for text, in torch, have batches by length"
    if type(batch_size) is not int or batch_size < 1:
        return f"batch_size is {batch_size!r}"
    if tokenizer.padding_side != "right" or "attention_mask" not in tokenizer.model_input_names:
        return "padding may change its results: its tokenizer pads on the left, or makes no attention mask"
    padding = tokenizer.pad_token_id, getattr(model.config, "pad_token_id", None)
    if padding[0] is None or padding[0] != padding[1]:
        return f"set tokenizer.pad_token_id ({padding[0]}) and model.config.pad_token_id ({padding[1]}) to the same"
    return None


class _Outputs:
    """The outputs of the items of a loader, in their order, computed in batches of items of similar length."""

    def __init__(self, pipeline: Any, models: Any, collate: Callable[[Any], Any], batch_size: int, inputs: Any) -> None:
        self._loader, self._forward, self._params = models.loader, models.infer, models.params
        self._is_read_once = hasattr(inputs, "__next__") and not self._loader.num_workers
        self._results: Iterator[Any] | None = None
        self._collate, self._batch_size, self._window = collate, batch_size, _WINDOW
        self._finish: Callable[[Any, int, int], Any] = lambda output, *_: output
        self._more: dict[str, Any] = {}
        name = type(pipeline).__name__
        if name.startswith("ZeroShot"):
            self._finish = lambda output, *_: {key: output[key] for key in _ZERO_SHOT}
        elif name.startswith("Feature"):
            self._finish, self._window = _features, _WINDOW if isinstance(inputs, list) else _FEATURES
            if "use_cache" in inspect.signature(pipeline.model.forward).parameters:
                self._more = {"use_cache": False}  # a cache cannot be split into rows

    def __len__(self) -> int:
        return len(self._loader.dataset)

    def __iter__(self) -> Iterator[Any]:
        if self._results is not None and self._is_read_once:
            return self._results  # a loop that was left has read inputs ahead
        self._results = map_by_length(
            self._compute,
            map(_Row(), self._loader),  # which goes on after an error
            collator=list,
            max_tokens="auto" if self._batch_size == 1 else functools.partial(usual_budget, self._batch_size),
            window=self._window,
        )
        return self._results

    def finish_with(self, iterator: Any) -> None:
        """Do what an iterator does with each output at once, so that outputs are not held for a whole window."""
        function, params = iterator.infer, iterator.params
        self._finish = lambda output, *_: function(output, **params)
        iterator.infer, iterator.params = _same, {}

    def _compute(self, rows: list[dict[str, Any]]) -> list[Any]:
        try:
            parts = [rows] if _fit([row["item"] for row in rows]) else [[row] for row in rows]
            return list(itertools.chain.from_iterable(map(self._of_batch, parts)))
        except Exception as error:
            if "is_last" in rows[0]["item"]:
                inputs = np.unique([row["input"] for row in rows])
                note(error, f"rows are parts of inputs here: {named(inputs)} of those that the pipeline was given")
            raise

    def _of_batch(self, rows: list[dict[str, Any]]) -> list[Any]:
        items, sizes = [row["item"] for row in rows], [len(row["input_ids"]) for row in rows]
        batch = items[0] if len(items) == 1 else {**self._collate(items), **self._more}
        outputs = PipelineIterator([batch], self._infer, self._params, loader_batch_size=len(items))
        return [self._finish(output, size, max(sizes)) for output, size in zip(outputs, sizes, strict=True)]

    def _infer(self, batch: Any, **params: Any) -> Any:
        """The outputs that a pipeline reads: not states and attentions of layers, which do not split into rows."""
        output = self._forward(batch, **params)
        if not isinstance(output, dict):
            return output
        left_out = {key for key, one in output.items() if isinstance(one, tuple) or key == "past_key_values"}
        return type(output)({key: one for key, one in output.items() if key not in left_out})


class _Row:
    """Items as rows that can be measured, with the number of their input."""

    def __init__(self) -> None:
        self._input = 0

    def __call__(self, item: Any) -> dict[str, Any]:
        ids = item.get("input_ids")
        count = ids.shape[-1] if is_tensor(ids) and ids.ndim else 0
        row = {"input_ids": range(max(1, count)), "item": item, "input": self._input}
        self._input += bool(item.get("is_last", True))
        return row


def _fit(items: list[Any]) -> bool:
    """True for items that one batch can have, without a change to their results."""
    keys = items[0].keys()
    return "attention_mask" in keys and all(
        item.keys() == keys and is_tensor(ids := item["input_ids"]) and ids.ndim == 2 and len(ids) == 1
        for item in items
    )


def _features(output: Any, size: int, width: int) -> tuple[Any]:
    """The first output, which is what the pipeline takes of it, without the padding of its batch."""
    first = output if is_tensor(output) else output[0]
    return (first[:, :size].clone() if size < width and first.shape[1:2] == (width,) else first,)


def _same(output: Any) -> Any:
    return output


def _by_length(original: Any, told: Told) -> Any:
    @functools.wraps(original)
    def get_iterator(self: Any, inputs: Any, num_workers: int, batch_size: int, *params: Any, **options: Any) -> Any:
        if isinstance(inputs, list) and len(inputs) == 1:
            return original(self, inputs, num_workers, batch_size, *params, **options)
        reason = reason_against(self, batch_size)
        told(self, reason)
        if reason is not None:
            return original(self, inputs, num_workers, batch_size, *params, **options)
        collate = original(self, [], 0, 2, {}, {}, {}).loader.loader.collate_fn
        made = original(self, inputs, num_workers, 1, *params, **options)  # whose loader gives items one by one
        models = made.loader
        models.loader = _Outputs(self, models, collate, batch_size, inputs)
        models.infer, models.params = _same, {}
        if not (type(self).__name__.startswith("Feature") or isinstance(self, ChunkPipeline)):
            models.loader.finish_with(made)
        return made

    return get_iterator


def log(pipeline: Any, reason: str | None) -> None:
    """Warns, once, of batches that stay as they are."""
    if reason is not None:
        _warn_once(f"batches of {type(pipeline).__name__} are as before: {reason}")


_warn_once = functools.cache(logger.warning)


def swaps(told: Told = log) -> list[Swap]:
    """The swaps in `PLACES`; `told` gets each pipeline with several inputs, and why its batches stay, if they do."""
    return [Swap(one, _by_length(one, told)) for one in (Pipeline.get_iterator, ChunkPipeline.get_iterator)]


PLACES = (Pipeline, ChunkPipeline)
PIPELINES = Switch(swaps, others=lambda: PLACES)
