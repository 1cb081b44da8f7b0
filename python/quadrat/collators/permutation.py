"""`DataCollatorForPermutationLanguageModeling`: spans to predict, and who may see whom, as XLNet is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.input.rows import plain
from quadrat.installed import originals
from quadrat.planning.bare_rows import columns_of_ids, stack_rows
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import FallBack, fall_back, raise_clearer, refuse_philox
from quadrat.planning.spans import Masked, mask_spans
from quadrat.support.memory import Framework


@dataclass
class DataCollatorForPermutationLanguageModeling(MixinCollator, originals.DataCollatorForPermutationLanguageModeling):
    """Masks spans of tokens and draws an order to predict them in; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorForPermutationLanguageModeling`: `input_ids` and
    `labels`, `[rows, width]` int64, `perm_mask` and `target_mapping`, `[rows, width, width]` float32. Of features only
    `input_ids` is read; rows may be given bare, too. The numbers come from the generators the reference draws from,
    torch's for "pt", Python's and NumPy's for "np", and leave them as it would.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, KeyError, ...: what the reference raises, naming row and lengths as well.
    """

    deferred: bool = False

    _takes_bare_rows: ClassVar[bool] = True

    def __init__(self, *args: Any, deferred: bool = False, **kwargs: Any) -> None:
        """The fields of the base class, and `deferred`. Raises ValueError for `rng="philox"`."""
        refuse_philox("DataCollatorForPermutationLanguageModeling", kwargs, "its spans are drawn one after the other")
        super().__init__(*args, **kwargs)
        self.deferred = deferred

    def torch_call(self, examples: Any) -> Any:
        """Collate `examples` into torch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def torch_mask_tokens(self, inputs: Any) -> Masked:
        """Mask `inputs`, `[rows, width]`, in place; returns them, `perm_mask`, `target_mapping` and labels."""
        return self._mask_tokens(inputs, "pt", super().torch_mask_tokens)

    def numpy_mask_tokens(self, inputs: Any) -> Masked:
        """As `torch_mask_tokens`, on NumPy arrays; returns a copy of the masked `inputs`."""
        return self._mask_tokens(inputs, "np", super().numpy_mask_tokens)

    def _reference(self, framework: Framework) -> Callable[[Any], Any]:
        return super().torch_call if framework == "pt" else super().numpy_call  # type: ignore[no-any-return]

    def _plan(self, examples: Any, framework: Framework) -> dict[str, Any]:
        ids = stack_rows(self.tokenizer, columns_of_ids(examples), framework, None)["input_ids"]
        mask_tokens = self.torch_mask_tokens if framework == "pt" else self.numpy_mask_tokens
        try:
            inputs, perm_mask, target_mapping, labels = mask_tokens(ids)
        except Exception as error:
            raise_clearer(error, plain(examples), self)
        return {"input_ids": inputs, "perm_mask": perm_mask, "target_mapping": target_mapping, "labels": labels}

    def _mask_tokens(self, inputs: Any, framework: Framework, reference: Any) -> Masked:
        try:
            return mask_spans(self, inputs, framework)
        except FallBack as reason:
            why = str(reason)
        # A padded matrix says nothing of the features it was made of: whoever has them explains the error.
        masked: Masked = fall_back(self, lambda _: reference(inputs), NO_FEATURES, why)
        return masked
