"""The tokens and labels of a batch, as `quadrat run` counts them, and the batches that no collator of quadrat makes.

These are batches of pipelines, of sentence-transformers, and of tokenizers in a loop of the script.
"""

import contextlib
import functools
import math
import time
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.batching.row_tokens import MASK
from quadrat.cli.waste import LITTLE_PADDING
from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import MAIN
from quadrat.support.around import replaced
from quadrat.support.tensors import is_tensor

UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"
COUNTED = "batches", "rows", "computed", "tokens"
_PIPELINES, _SENTENCES, _TOKENIZERS = "pipelines", "sentence-transformers", "tokenizer calls"
_TRAINING = "training of sentence-transformers"
_ADVICE = {
    **dict.fromkeys((_PIPELINES, _SENTENCES, _TRAINING), ""),
    _TOKENIZERS: "quadrat.batching.map_by_length makes batches by length, and returns results in order",
}
_KNOWN = (
    *("TextClassificationPipeline", "TokenClassificationPipeline", "FeatureExtractionPipeline", "FillMaskPipeline"),
    *("ZeroShotClassificationPipeline", "QuestionAnsweringPipeline"),
)
_SUMMED = "computed", "tokens", "cut", "width"


class Sizes(NamedTuple):
    """The tokens of a batch; 0 of one without tokens."""

    computed: int = 0  # by a model
    tokens: int = 0  # that are not padding
    lengths: Sequence[int] = ()  # of the rows, each rounded up as the width of a batch is
    cut: int = 0  # in columns that are masked in every row
    width: int = 0
    is_unknown: bool = False  # True if there are tokens, and nothing says which of them are padding


def sizes_of(batch: Any, multiple_of: Any, completions: int = 1) -> Sizes:
    """The sizes of a batch. Its rows may be those of the first completion, then of the next: they count as one row."""
    if isinstance(batch, DeferredBatch):  # which would be made here
        return Sizes(is_unknown=True)
    if not isinstance(batch, (dict, UserDict)):
        return Sizes()
    found = [
        _sizes(np.asarray(batch[name]) != 0, multiple_of, completions)  # packed rows count their sequences in it
        for name in batch
        if isinstance(name, str) and name.endswith(MASK) and _counts(batch, name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        lengths = [sum(each) for each in zip(*(one.lengths for one in found), strict=False)]
        computed, tokens, cut, width = (sum(getattr(one, name) for one in found) for name in _SUMMED)
        return Sizes(computed, tokens, lengths, cut, width)
    ids: Any
    ids, bounds = batch.get(MAIN), batch.get("cu_seq_lens_q")
    if bounds is None or getattr(ids, "ndim", 0) != 2:
        return Sizes(is_unknown=getattr(ids, "ndim", 0) > 1 and len(ids) > 1)
    joined = np.diff(bounds.tolist())
    return Sizes(ids.shape[1], int(joined.sum()), joined.tolist())


def _counts(batch: Any, name: str) -> bool:
    """True for the mask of tokens that a model reads: `attention_mask`, `chosen_attention_mask`; not the decoder's."""
    prefix, shape = name.removesuffix(MASK), _shape_of(batch[name])
    if prefix == "decoder_" or len(shape) not in (2, 3):
        return False
    return shape == _shape_of(batch.get(prefix + MAIN)) or (len(shape) == 2 and not prefix)


def _sizes(used: Any, multiple_of: Any, completions: int) -> Sizes:
    """Of the tokens of a mask, `[rows, width]` or `[rows, choices, width]`."""
    sizes, shape = np.add.reduce(used, -1), used.shape
    lengths: list[int] = sizes.ravel().tolist()
    computed, tokens, width, cut = math.prod(shape), sum(lengths), shape[-1], 0
    if max(lengths, default=0) < width:  # else no column is masked in all rows
        cut = computed // width * (width - _used_width(used, multiple_of or 1))
    multiple = multiple_of or 1
    sizes = -(-sizes // multiple) * multiple
    if len(shape) == 3:
        sizes = sizes.max(1) * shape[1]
    elif completions > 1 and shape[0] % completions == 0:
        sizes = sizes.reshape(completions, -1).max(0) * completions
    lengths = sizes.tolist()
    return Sizes(computed, tokens, lengths, cut, width)


def _used_width(used: Any, multiple_of: int) -> int:
    """The columns from the first to the last in which a row is not masked, as many as a multiple; all if none is."""
    width = used.shape[-1]
    columns = np.flatnonzero(used.reshape(-1, width).any(0))
    if not len(columns):
        return int(width)
    return min(int(width), -(-int(columns[-1] + 1 - columns[0]) // multiple_of) * multiple_of)


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or a tensor in host memory; empty for all else."""
    known = value.is_cpu if is_tensor(value) else isinstance(value, np.ndarray)
    return tuple(value.shape) if known else ()


def is_unlabelled(batch: Any) -> bool:
    """True if a batch has labels, and all are ignored."""
    labels: Any = batch.get("labels") if isinstance(batch, Mapping) and not isinstance(batch, DeferredBatch) else None
    if 0 in getattr(labels, "shape", (0,)):
        return False
    with contextlib.suppress(TypeError):  # bfloat16, which NumPy has not
        labels = np.asarray(labels)
    return bool((labels == -100).all())


def _patch_pipelines(tally: Any) -> None:
    """Counts the batches of pipelines for text that do not generate."""
    import transformers
    from transformers.pipelines.base import ChunkPipeline, Pipeline

    from quadrat.integration.switch import Patch, Swap, Switch

    original, places = Pipeline.forward, (Pipeline, ChunkPipeline)
    known = [getattr(transformers, name, None) for name in _KNOWN]

    @functools.wraps(original)
    def forward(self: Any, model_inputs: Any, **options: Any) -> Any:
        if type(self) in known:
            tally.add_elsewhere(_PIPELINES, sizes_of(model_inputs, None))
        return original(self, model_inputs, **options)

    Patch("run", Switch(lambda: [Swap(original, forward)], others=lambda: places))


def _patch_sentences(tally: Any) -> None:
    """Counts the batches of sentence-transformers."""
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.base.data_collator import BaseDataCollator

    def count_batch(batch: Any, *_: Any) -> None:
        if tally.own.computes:  # cards of models tokenise data sets, too
            tally.add_elsewhere(_SENTENCES, sizes_of(batch, None))

    def count_columns(batch: Any, *_: Any) -> None:
        tally.own.is_counted = True  # else the loader counts it
        tally.add_elsewhere(_TRAINING, sizes_of(batch, None))

    for cls, name in ((SentenceTransformer, "encode"), (CrossEncoder, "predict")):
        count_calls(tally, cls, "preprocess", count_batch)
        count_calls(tally, cls, name, lambda *_: None, "computes")
    count_calls(tally, BaseDataCollator, "__call__", count_columns)


def patch_tokenizers(tally: Any) -> None:
    """Counts the batches of tensors that tokenizers pad, unless a collator or a loader calls them."""
    from transformers import PreTrainedTokenizerBase

    def count_tensors(batch: Any, _: Any, options: dict[str, Any], *__: Any) -> None:
        if options.get("return_tensors") is not None and tally.own.fetcher is None:
            sizes = sizes_of(batch, None)
            if len(sizes.lengths) > 1 or sizes.is_unknown:
                tally.add_elsewhere(_TOKENIZERS, sizes)

    for name in ("__call__", "pad"):
        count_calls(tally, PreTrainedTokenizerBase, name, count_tensors)


def count_calls(
    tally: Any, cls: Any, name: str, count: Callable[[Any, Any, dict[str, Any], float], None], within: str = "inside"
) -> None:
    """Has calls of a method counted, unless another one that counts has called it: `within`, of `tally.own`.

    count: is given the result, the object, the options, and the seconds that the call took.
    """
    call = getattr(cls, name)

    @functools.wraps(call)
    def counting(self: Any, *args: Any, **options: Any) -> Any:
        own, start = tally.own, time.perf_counter()
        outer = getattr(own, within)
        with replaced((own, within, True)):
            batch = call(self, *args, **options)
        if not outer:
            count(batch, self, options, time.perf_counter() - start)
        return batch

    setattr(cls, name, counting)


def sentences(found: dict[str, int]) -> Iterator[str]:
    """The report on these batches."""
    for where, remedy in _ADVICE.items():
        batches, rows, computed, tokens = (found.get(f"{where} {name}", 0) for name in COUNTED)
        if batches:
            padding = 1 - tokens / max(computed, 1)
            helps = padding > LITTLE_PADDING and bool(remedy)
            text = f"{where}: {rows:,} rows in {batches:,} batches, {padding:.1%} of {computed:,} tokens were padding"
            yield text + f"; {remedy}" * helps


PATCHES = {"transformers.pipelines": _patch_pipelines, "sentence_transformers": _patch_sentences}
