"""Batches that no collator makes: those of pipelines, and of tokenizers that a script calls in a loop."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from quadrat.cli.batch_sizes import Sizes, sizes_of
from quadrat.cli.waste import LITTLE_PADDING

Count = Callable[[str, Sizes], None]

COUNTED = "batches", "rows", "computed", "tokens"
_PIPELINES, _TOKENIZERS = "pipelines", "tokenizer calls"
_ADVICE = {
    _PIPELINES: "--inference computes rows of similar length together",
    _TOKENIZERS: "quadrat.batching.map_by_length makes batches by length, and returns results in order",
}


def patch_pipelines(count: Count, told: Callable[[Any, str | None], None] | None) -> None:
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


def patch_tokenizers(count: Count, of_thread: Callable[[], threading.local]) -> None:
    """Counts the batches of tensors that tokenizers pad, but where a collator calls them: `of_thread().inside`."""
    from transformers import PreTrainedTokenizerBase

    def counted(call: Any) -> Any:
        @functools.wraps(call)
        def counting(self: Any, *args: Any, **options: Any) -> Any:
            own = of_thread()
            outer, own.inside = getattr(own, "inside", False), True
            try:
                batch = call(self, *args, **options)
            finally:
                own.inside = outer
            if not outer and options.get("return_tensors") is not None:
                sizes = sizes_of(batch, None)
                if len(sizes.lengths) > 1:
                    count(_TOKENIZERS, sizes)
            return batch

        return counting

    for name in ("__call__", "pad"):
        setattr(PreTrainedTokenizerBase, name, counted(getattr(PreTrainedTokenizerBase, name)))


def sentences(found: dict[str, int], *, asked: bool) -> Iterator[str]:
    """The report on these batches; `asked`: whether pipelines have batches by length."""
    for where, remedy in _ADVICE.items():
        batches, rows, computed, tokens = (found.get(f"{where} {name}", 0) for name in COUNTED)
        if batches:
            padding, alone = 1 - tokens / max(computed, 1), where == _PIPELINES and rows == batches > 1
            helps = (padding > LITTLE_PADDING or alone) and not (asked and where == _PIPELINES)
            text = f"{where}: {rows:,} rows in {batches:,} batches, {padding:.1%} of {computed:,} tokens were padding"
            yield text + f"; {remedy}" * helps
