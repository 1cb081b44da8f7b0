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

from quadrat.batching.trim import MASK, shape_of, span_of
from quadrat.cli.waste import LITTLE_PADDING
from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import MAIN
from quadrat.support.around import replaced

Told = Callable[[Any, "str | None"], None] | None

UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"
COUNTED = "batches", "rows", "computed", "tokens"
_PIPELINES, _SENTENCES, _TOKENIZERS = "pipelines", "sentence-transformers", "tokenizer calls"
_TRAINING = "training of sentence-transformers"
_ADVICE = {
    **dict.fromkeys((_PIPELINES, _SENTENCES), "--inference computes rows of similar length together"),
    _TRAINING: "--max-tokens auto trains on rows of similar length together",
    _TOKENIZERS: "quadrat.batching.map_by_length makes batches by length, and returns results in order",
}
_SUMMED = "computed", "tokens", "cut", "width"


class Sizes(NamedTuple):
    """The tokens of a batch; 0 of one without tokens."""

    computed: int = 0  # by a model
    tokens: int = 0  # that are not padding
    lengths: Sequence[int] = ()  # of the rows, each rounded up as the width of a batch is
    cut: int = 0  # by trim
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
    prefix, shape = name.removesuffix(MASK), shape_of(batch[name])
    if prefix == "decoder_" or len(shape) not in (2, 3):
        return False
    return shape == shape_of(batch.get(prefix + MAIN)) or (len(shape) == 2 and not prefix)


def _sizes(used: Any, multiple_of: Any, completions: int) -> Sizes:
    """Of the tokens of a mask, `[rows, width]` or `[rows, choices, width]`."""
    sizes, shape = np.add.reduce(used, -1), used.shape
    lengths: list[int] = sizes.ravel().tolist()
    computed, tokens, width, cut = math.prod(shape), sum(lengths), shape[-1], 0
    if max(lengths, default=0) < width:  # else no column is masked in all rows
        kept = span_of(used, multiple_of)
        cut = computed // width * (width - kept.stop + kept.start)
    multiple = multiple_of or 1
    sizes = -(-sizes // multiple) * multiple
    if len(shape) == 3:
        sizes = sizes.max(1) * shape[1]
    elif completions > 1 and shape[0] % completions == 0:
        sizes = sizes.reshape(completions, -1).max(0) * completions
    lengths = sizes.tolist()
    return Sizes(computed, tokens, lengths, cut, width)


def is_unlabelled(batch: Any) -> bool:
    """True if a batch has labels, and all are ignored."""
    labels: Any = batch.get("labels") if isinstance(batch, Mapping) and not isinstance(batch, DeferredBatch) else None
    if 0 in getattr(labels, "shape", (0,)):
        return False
    with contextlib.suppress(TypeError):  # bfloat16, which NumPy has not
        labels = np.asarray(labels)
    return bool((labels == -100).all())


def _patch_pipelines(tally: Any, told: Told) -> None:
    """Counts the batches of pipelines; with `told`, they are chosen by length, see `patch_pipelines.swaps`."""
    from quadrat.integration.patch_pipelines import PLACES, knows, swaps
    from quadrat.integration.switch import Patch, Swap, Switch

    original = PLACES[0].forward

    @functools.wraps(original)
    def forward(self: Any, model_inputs: Any, **options: Any) -> Any:
        if knows(self):
            tally.add_elsewhere(_PIPELINES, sizes_of(model_inputs, None))
        return original(self, model_inputs, **options)

    changed = [Swap(original, forward), *(() if told is None else swaps(told))]
    Patch("run", Switch(lambda: changed, others=lambda: PLACES))


def _patch_sentences(tally: Any, told: Told) -> None:
    """Counts the batches of sentence-transformers; with `told`, they are chosen by length."""
    from sentence_transformers.base.data_collator import BaseDataCollator

    from quadrat.integration.patch_sentences import LOOPS, PLACES, InWindows, swaps
    from quadrat.integration.switch import Patch, Switch

    def count_batch(batch: Any, *_: Any) -> None:
        if tally.own.computes:  # cards of models tokenise data sets, too
            tally.add_elsewhere(_SENTENCES, sizes_of(batch, None))

    def count_columns(batch: Any, *_: Any) -> None:
        tally.own.is_counted = True  # else the loader counts it
        tally.add_elsewhere(_TRAINING, sizes_of(batch, None))

    for cls in PLACES:
        count_calls(tally, cls, "preprocess", count_batch)
    count_calls(tally, BaseDataCollator, "__call__", count_columns)
    if told is not None:
        count_calls(tally, InWindows, "preprocess", lambda *_: None)
        count_calls(tally, InWindows, "collated", count_batch)
        changed = swaps(told)
        Patch("run", Switch(lambda: changed, others=lambda: PLACES))
    for cls, name, _ in LOOPS:
        count_calls(tally, cls, name, lambda *_: None, "computes")


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


def sentences(found: dict[str, int], given: Sequence[str]) -> Iterator[str]:
    """The report on these batches; `given`: the options of `quadrat run`."""
    for where, remedy in _ADVICE.items():
        batches, rows, computed, tokens = (found.get(f"{where} {name}", 0) for name in COUNTED)
        if batches:
            padding, alone = 1 - tokens / max(computed, 1), where == _PIPELINES and rows == batches > 1
            helps = (padding > LITTLE_PADDING or alone) and remedy.partition(" ")[0] not in given
            text = f"{where}: {rows:,} rows in {batches:,} batches, {padding:.1%} of {computed:,} tokens were padding"
            yield text + f"; {remedy}" * helps


PATCHES = {"transformers.pipelines": _patch_pipelines, "sentence_transformers": _patch_sentences}
