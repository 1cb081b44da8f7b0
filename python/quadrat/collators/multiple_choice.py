"""`DataCollatorForMultipleChoice`: padding of all choices of all examples to one length."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.input.columns import NUMBERS, collect_nested
from quadrat.installed import originals
from quadrat.installed.behaviour import multiple_choice_takes_labels, pad_warns_of_fast_tokenizers
from quadrat.planning.fallback import FallBack, first_feature
from quadrat.planning.padded import check_tokenizer, pad_features
from quadrat.planning.padded_plan import LabelColumn
from quadrat.planning.plan_cache import PadOptions

_WARNING = "Asking-to-pad-a-fast-tokenizer"


@dataclass
class DataCollatorForMultipleChoice(MixinCollator, originals.DataCollatorForMultipleChoice):
    """Pads the choices of every example to one length; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorForMultipleChoice`. Each column of a feature holds one
    row per choice, as many as the first example's `input_ids` have; `label` or `labels` is the number of the right one.
    The result is a dict with one tensor per column, `[examples, choices, width]`, and then `labels`, `[examples]`,
    int64. Features are left as they are; before 5.23 transformers takes the labels out of them.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, KeyError, IndexError, ...: what the reference raises, naming column, example, choice and
            lengths as well.
    """

    deferred: bool = False

    _quadrat_guarded: ClassVar[tuple[str, ...]] = ("tokenizer", "deferred")

    def torch_call(self, examples: Any) -> Any:
        """Collate `examples` into torch tensors."""
        return self._collate(examples, "pt")

    def tf_call(self, features: Any) -> Any:
        """Collate `features` into TensorFlow tensors, which transformers 4.x knows how to."""
        return super().tf_call(_spared(features))

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        del framework
        call = super().torch_call
        return lambda examples: call(_spared(examples))

    def _plan(self, examples: Any, framework: Any) -> dict[str, Any]:
        tokenizer, first = self.tokenizer, first_feature(examples)
        check_tokenizer(tokenizer)
        if _warns(tokenizer):
            raise FallBack("transformers 4.x warns about padding with a fast tokenizer first")
        label = "label" if "label" in first else "labels"
        if label not in first or (label == "label" and "labels" in first):
            raise FallBack("one of 'label' and 'labels' must be there")
        rows = first.get("input_ids")
        if not isinstance(rows, (list, tuple)):
            raise FallBack("column 'input_ids' is not made of lists of choices")
        choices = len(rows)
        collected = collect_nested(examples, label, choices)
        if collected is None:
            raise FallBack("examples differ in their keys or in their number of choices")
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        column = LabelColumn(label, "labels", NUMBERS)
        batch = pad_features(self, None, framework, options, collected=collected, label=(column, None), remembers=False)
        labels = batch.pop("labels")
        return {
            **{name: rows.view(len(examples), choices, -1) for name, rows in batch.items()},
            "labels": labels,
        }


def _warns(tokenizer: Any) -> bool:
    """Whether padding makes the reference warn that this is a fast tokenizer, which it does once."""
    return (
        pad_warns_of_fast_tokenizers()
        and type(tokenizer).__name__.endswith("Fast")
        and not tokenizer.deprecation_warnings.get(_WARNING)
    )


def _spared(examples: Any) -> Any:
    """What the reference may take the labels out of."""
    if not multiple_choice_takes_labels() or not isinstance(examples, (list, tuple)):
        return examples
    return [_copied(example) for example in examples]


def _copied(example: Any) -> Any:
    if not isinstance(example, MutableMapping):
        return example
    try:
        return copy.copy(example) if isinstance(example, (dict, UserDict)) else copy.deepcopy(example)
    except Exception:  # one that Python cannot copy loses its labels, as it does without quadrat
        return example
