"""Batches that no collator of quadrat makes: of pipelines, sentence-transformers, and tokenizers in a script's loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quadrat.cli.batch_sizes import Sizes, sizes_of
from quadrat.cli.waste import LITTLE_PADDING

Count = Callable[[str, Sizes], None]
Told = Callable[[Any, "str | None"], None] | None

COUNTED = "batches", "rows", "computed", "tokens"
_PIPELINES, _SENTENCES, _TOKENIZERS = "pipelines", "sentence-transformers", "tokenizer calls"
_TRAINING = "training of sentence-transformers"
_ADVICE = {
    **dict.fromkeys((_PIPELINES, _SENTENCES), "--inference computes rows of similar length together"),
    _TRAINING: "--max-tokens auto trains on rows of similar length together",
    _TOKENIZERS: "quadrat.batching.map_by_length makes batches by length, and returns results in order",
}


def _patch_pipelines(count: Count, told: Told, _: Any) -> None:
    """Counts the batches of pipelines; with `told`, they are chosen by length, see `patch_pipelines.swaps`."""
    from quadrat.integration.patch_pipelines import PLACES, knows, swaps
    from quadrat.integration.switch import Patch, Swap, Switch

    original = PLACES[0].forward

    @functools.wraps(original)
    def forward(self: Any, model_inputs: Any, **options: Any) -> Any:
        if knows(self):
            count(_PIPELINES, sizes_of(model_inputs, None))
        return original(self, model_inputs, **options)

    changed = [Swap(original, forward), *(() if told is None else swaps(told))]
    Patch("run", Switch(lambda: changed, others=lambda: PLACES))


def _patch_sentences(count: Count, told: Told, of_thread: Callable[[], Any]) -> None:
    """Counts the batches of sentence-transformers; with `told`, they are chosen by length."""
    from sentence_transformers.base.data_collator import BaseDataCollator

    from quadrat.integration.patch_sentences import LOOPS, PLACES, InWindows, swaps
    from quadrat.integration.switch import Patch, Switch

    def count_batch(batch: Any, _: Any) -> None:
        if getattr(of_thread(), "computes", False):  # cards of models tokenise data sets, too
            count(_SENTENCES, sizes_of(batch, None))

    def computing(call: Any) -> Any:
        @functools.wraps(call)
        def computes(self: Any, *args: Any, **options: Any) -> Any:
            own = of_thread()
            own.computes = True
            try:
                return call(self, *args, **options)
            finally:
                own.computes = False

        return computes

    def count_columns(batch: Any, _: Any) -> None:
        of_thread().is_counted = True  # else the loader counts it
        count(_TRAINING, sizes_of(batch, None))

    for cls in PLACES:
        cls.preprocess = _counted(cls.preprocess, count_batch, of_thread)
    BaseDataCollator.__call__ = _counted(BaseDataCollator.__call__, count_columns, of_thread)
    if told is not None:
        InWindows.preprocess = _counted(InWindows.preprocess, lambda *_: None, of_thread)  # type: ignore[method-assign]
        InWindows.collated = _counted(InWindows.collated, count_batch, of_thread)  # type: ignore[method-assign]
        changed = swaps(told)
        Patch("run", Switch(lambda: changed, others=lambda: PLACES))
    for cls, name, _ in LOOPS:
        setattr(cls, name, computing(getattr(cls, name)))


def patch_tokenizers(count: Count, of_thread: Callable[[], Any]) -> None:
    """Counts the batches of tensors that tokenizers pad, unless a collator or a loader calls them."""
    from transformers import PreTrainedTokenizerBase

    def count_tensors(batch: Any, options: dict[str, Any]) -> None:
        if options.get("return_tensors") is not None and of_thread().fetcher is None:
            sizes = sizes_of(batch, None)
            if len(sizes.lengths) > 1 or sizes.is_unknown:
                count(_TOKENIZERS, sizes)

    for name in ("__call__", "pad"):
        call = getattr(PreTrainedTokenizerBase, name)
        setattr(PreTrainedTokenizerBase, name, _counted(call, count_tensors, of_thread))


def _counted(call: Any, count: Callable[[Any, dict[str, Any]], None], of_thread: Callable[[], Any]) -> Any:
    """A method whose result is counted, unless another one that counts has called it: `of_thread().inside`."""

    @functools.wraps(call)
    def counting(self: Any, *args: Any, **options: Any) -> Any:
        own = of_thread()
        outer, own.inside = own.inside, True
        try:
            batch = call(self, *args, **options)
        finally:
            own.inside = outer
        if not outer:
            count(batch, options)
        return batch

    return counting


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
