"""Batches that no collator of quadrat makes: of pipelines, sentence-transformers, and tokenizers in a script's loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quadrat.cli.batch_sizes import sizes_of
from quadrat.cli.waste import LITTLE_PADDING

Told = Callable[[Any, "str | None"], None] | None

COUNTED = "batches", "rows", "computed", "tokens"
_PIPELINES, _SENTENCES, _TOKENIZERS = "pipelines", "sentence-transformers", "tokenizer calls"
_TRAINING = "training of sentence-transformers"
_ADVICE = {
    **dict.fromkeys((_PIPELINES, _SENTENCES), "--inference computes rows of similar length together"),
    _TRAINING: "--max-tokens auto trains on rows of similar length together",
    _TOKENIZERS: "quadrat.batching.map_by_length makes batches by length, and returns results in order",
}


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

    def count_batch(batch: Any, _: Any) -> None:
        if tally.own.computes:  # cards of models tokenise data sets, too
            tally.add_elsewhere(_SENTENCES, sizes_of(batch, None))

    def count_columns(batch: Any, _: Any) -> None:
        tally.own.is_counted = True  # else the loader counts it
        tally.add_elsewhere(_TRAINING, sizes_of(batch, None))

    for cls in PLACES:
        _count(tally, cls, "preprocess", count_batch)
    _count(tally, BaseDataCollator, "__call__", count_columns)
    if told is not None:
        _count(tally, InWindows, "preprocess", lambda *_: None)
        _count(tally, InWindows, "collated", count_batch)
        changed = swaps(told)
        Patch("run", Switch(lambda: changed, others=lambda: PLACES))
    for cls, name, _ in LOOPS:
        _count(tally, cls, name, lambda *_: None, within="computes")


def patch_tokenizers(tally: Any) -> None:
    """Counts the batches of tensors that tokenizers pad, unless a collator or a loader calls them."""
    from transformers import PreTrainedTokenizerBase

    def count_tensors(batch: Any, options: dict[str, Any]) -> None:
        if options.get("return_tensors") is not None and tally.own.fetcher is None:
            sizes = sizes_of(batch, None)
            if len(sizes.lengths) > 1 or sizes.is_unknown:
                tally.add_elsewhere(_TOKENIZERS, sizes)

    for name in ("__call__", "pad"):
        _count(tally, PreTrainedTokenizerBase, name, count_tensors)


def _count(
    tally: Any, cls: Any, name: str, count: Callable[[Any, dict[str, Any]], None], *, within: str = "inside"
) -> None:
    """Has results of a method counted, unless another one that counts has called it: `within`, of `tally.own`."""
    call = getattr(cls, name)

    @functools.wraps(call)
    def counting(self: Any, *args: Any, **options: Any) -> Any:
        own = tally.own
        outer = getattr(own, within)
        setattr(own, within, True)
        try:
            batch = call(self, *args, **options)
        finally:
            setattr(own, within, outer)
        if not outer:
            count(batch, options)
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
