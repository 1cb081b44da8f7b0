"""`DataCollatorForMultipleChoice`: padding of all choices of all examples to one length."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.installed import originals
from quadrat.installed.behaviour import pad_warns_of_fast_tokenizers
from quadrat.planning.fallback import FallBack, first_feature
from quadrat.planning.padded import FAST_WARNING, LabelColumn, check_tokenizer, padded_spec, warns_of_fast
from quadrat.planning.plan_cache import ENTRY, PADDING_FIELDS, Fact, PadOptions, make
from quadrat.support.columns import NUMBERS


@dataclass
class DataCollatorForMultipleChoice(MixinCollator, originals.DataCollatorForMultipleChoice):
    """Pad the choices of every example to one length; replaces the transformers class.

    The result is that of `transformers.DataCollatorForMultipleChoice`. Each column of a feature holds one row per
    choice, as many as the first example's `input_ids` have; `label` or `labels` is the number of the right choice. The
    result is a dict with one tensor per column, `[examples, choices, width]`, and then `labels`, `[examples]`, int64.
    Features do not change; before 5.23 transformers removes the labels from them.

    Args:
        tokenizer: a tokenizer of transformers. It gives the padding token, the padding side and the columns to pad.
        padding, max_length, pad_to_multiple_of, return_tensors, deferred, trim: as in `DataCollatorWithPadding`.

    Raises:
        ValueError: as in transformers, with the column, example, choice and lengths added. TypeError, KeyError,
            IndexError and all other errors likewise.

    Examples:
        >>> from tokenizers import Tokenizer, models
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> import quadrat
        >>> example = {"input_ids": [[1, 2, 3], [1, 2]], "label": 0}
        >>> batch = quadrat.DataCollatorForMultipleChoice(tokenizer)([example])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[[1, 2, 3], [1, 2, 0]]], [0])
    """

    deferred: bool = False
    trim: bool = False

    _imitates: ClassVar[str] = "DataCollatorForMultipleChoice"
    _quadrat_guarded: ClassVar[tuple[str, ...]] = tuple(name for name in PADDING_FIELDS if name != "pad_values")

    def tf_call(self, features: Any) -> dict[str, Any]:
        """Collate `features` into TensorFlow tensors, as transformers 4.x does."""
        return super().tf_call(_spared(features))  # type: ignore[no-any-return]

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        call = super(MixinCollator, self).torch_call
        return lambda examples: call(_spared(examples))

    def _plan(self, examples: Any, framework: Any) -> dict[str, Any]:
        tokenizer, first = self.tokenizer, first_feature(examples)
        check_tokenizer(tokenizer)
        if warns_of_fast(tokenizer):
            raise FallBack("transformers 4.x warns about padding with a fast tokenizer first")
        label, other = ("label", "labels") if "label" in first else ("labels", "label")
        if label not in first or other in first:
            raise FallBack("exactly one of 'label' and 'labels' must be there", "give one to each example")
        if tokenizer.model_input_names[0] != "input_ids":
            raise FallBack("choices are counted in 'input_ids'", "list it first in tokenizer.model_input_names")
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        own: dict[str, Any] = {"label": LabelColumn((label,), NUMBERS, "labels"), "facts": _warning_facts(tokenizer)}
        mismatch = "'input_ids' holds no choices, or examples differ", "give each a list per choice"
        form: dict[str, Any] = {"plain": label, "absent": (other,), "mismatch": mismatch}
        return make(self, padded_spec(self, framework, options, **own, **form), examples)  # type: ignore[no-any-return]


def _warning_facts(tokenizer: Any) -> tuple[Fact, ...] | None:
    """The facts that make `warns_of_fast` false; None where they are not known."""
    if not pad_warns_of_fast_tokenizers() or not type(tokenizer).__name__.endswith("Fast"):
        return ()
    given = tokenizer.__dict__.get("deprecation_warnings")
    if type(given) is not dict:
        return None
    held = ENTRY, tokenizer.__dict__, "deprecation_warnings", given
    return held, (ENTRY, given, FAST_WARNING, given.get(FAST_WARNING))


def _spared(examples: Any) -> Any:
    """Copies of the examples: before 5.23 the reference takes the labels out of what it is given."""
    return [_copied(example) for example in examples] if isinstance(examples, (list, tuple)) else examples


def _copied(example: Any) -> Any:
    if not isinstance(example, MutableMapping):
        return example
    try:
        return copy.copy(example) if isinstance(example, (dict, UserDict)) else copy.deepcopy(example)
    except Exception:  # one that Python cannot copy loses its labels, as it does without quadrat
        return example
