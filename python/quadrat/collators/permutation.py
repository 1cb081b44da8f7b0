"""`DataCollatorForPermutationLanguageModeling`: spans to predict, and which tokens each token may see, as for XLNet."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.input.rows import plain
from quadrat.installed import originals
from quadrat.masking.spans import Masked, mask_spans
from quadrat.planning.bare_rows import make_rows, rows_spec
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import FallBack, fall_back, raise_clearer
from quadrat.support.kinds import Framework


@dataclass
class DataCollatorForPermutationLanguageModeling(MixinCollator, originals.DataCollatorForPermutationLanguageModeling):
    """Mask spans of tokens and draw the order in which to predict them; replaces the transformers class.

    The result is that of `transformers.DataCollatorForPermutationLanguageModeling`: `input_ids` and `labels`, `[rows,
    width]` int64, `perm_mask` and `target_mapping`, `[rows, width, width]` float32. Only `input_ids` of the features
    are read; features may also be bare rows of token ids. Random numbers come from the generators that transformers
    uses, torch's for "pt", Python's and NumPy's for "np", and leave them in the same state.

    Args:
        tokenizer: a tokenizer of transformers with a mask token and a padding token.
        plm_probability: the ratio of the length of a masked span to the length of its context.
        max_span_length: the length of the longest span, in tokens.
        return_tensors, deferred: as in `DataCollatorWithPadding`.

    Raises:
        ValueError, ...: as in transformers, with the row and its length added, for example for rows of odd length.

    Examples:
        >>> import quadrat, tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[MASK]": 1, "a": 2, "b": 3, "c": 4}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", mask_token="[MASK]")
        >>> batch = quadrat.DataCollatorForPermutationLanguageModeling(tokenizer)([[2, 3, 4, 3], [3, 3, 2, 4]])
        >>> {name: tuple(values.shape) for name, values in batch.items()}
        {'input_ids': (2, 4), 'perm_mask': (2, 4, 4), 'target_mapping': (2, 4, 4), 'labels': (2, 4)}
    """

    deferred: bool = False

    _imitates: ClassVar[str] = "DataCollatorForPermutationLanguageModeling"
    _takes_bare_rows: ClassVar[bool] = True
    _quadrat_guarded: ClassVar[tuple[str, ...]] = ("tokenizer",)
    _lacks: ClassVar[Mapping[str, str]] = {"rng": "its spans are drawn one after the other"}

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def torch_mask_tokens(self, inputs: Any) -> Masked:
        """Mask `inputs`, `[rows, width]`, in place; returns them, `perm_mask`, `target_mapping` and labels."""
        return self._mask_tokens(inputs, "pt", super().torch_mask_tokens)

    def numpy_mask_tokens(self, inputs: Any) -> Masked:
        """As `torch_mask_tokens`, on NumPy arrays; returns a copy of the masked `inputs`."""
        return self._mask_tokens(inputs, "np", super().numpy_mask_tokens)

    def _plan(self, examples: Any, framework: Framework) -> dict[str, Any]:
        spec = rows_spec(self, framework, None, finish=functools.partial(_masked, framework))
        return make_rows(self, spec, examples)  # type: ignore[no-any-return]

    def _mask_tokens(self, inputs: Any, framework: Framework, reference: Any) -> Masked:
        try:
            self._require_known(NO_FEATURES, framework)
            return mask_spans(self, inputs, framework)
        except FallBack as reason:
            why = reason.args
        # A padded matrix says nothing of the features it was made of: whoever has them explains the error.
        return fall_back(self, lambda _: reference(inputs), NO_FEATURES, why)  # type: ignore[no-any-return]


def _masked(framework: Framework, collator: Any, batch: dict[str, Any], features: Any) -> dict[str, Any]:
    mask_tokens = collator.torch_mask_tokens if framework == "pt" else collator.numpy_mask_tokens
    try:
        inputs, perm_mask, target_mapping, labels = mask_tokens(batch["input_ids"])
    except Exception as error:
        raise_clearer(error, plain(features), collator)
    return {"input_ids": inputs, "perm_mask": perm_mask, "target_mapping": target_mapping, "labels": labels}
