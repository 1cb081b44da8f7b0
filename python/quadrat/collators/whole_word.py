"""`DataCollatorForWholeWordMask`: masked language modelling by whole words, as transformers 4.x does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import raise_clearer, refuse_philox
from quadrat.planning.word_masking import Reference, mask_words
from quadrat.support.memory import Framework


class DataCollatorForWholeWordMask(MixinCollator, Reference):
    """Masks whole words, "##..." continuing a word; a drop-in for the class of transformers 4.x, there on 5.x too.

    Fields are those of `transformers.DataCollatorForLanguageModeling`. Features are mappings with `input_ids` and, if
    words are known better, `chinese_ref` (positions that continue the word before them), or bare rows of ids; other
    columns are left out. The result is a dict of `input_ids` and `labels`, int64, `[rows, width]`; labels are -100
    where nothing is masked. Words are shuffled by Python's `random`, or with a `seed` by the collator's own generator.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, AttributeError, ...: what the reference raises, with what quadrat can add to it.
    """

    _takes_bare_rows: ClassVar[bool] = True

    def __init__(self, *args: Any, deferred: bool = False, **kwargs: Any) -> None:
        """The fields of the reference, and `deferred`. Raises ValueError for `rng="philox"`."""
        why = "words are shuffled, not drawn one by one; DataCollatorForLanguageModeling(whole_word_mask=True) has it"
        refuse_philox("DataCollatorForWholeWordMask", kwargs, why)
        try:
            super().__init__(*args, **kwargs)
        except Exception as error:
            raise_clearer(error, NO_FEATURES, self)
        self.deferred = deferred

    def torch_call(self, examples: Any) -> Any:
        """Collate and mask `examples` into torch tensors."""
        self._make_generator()
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate and mask `examples` into NumPy arrays."""
        self._make_generator()
        return self._collate(examples, "np")

    def _make_generator(self) -> None:
        if self.seed and self.generator is None:
            self.create_rng()

    def _reference(self, framework: Framework) -> Callable[[Any], Any]:
        return super().torch_call if framework == "pt" else super().numpy_call  # type: ignore[no-any-return]

    def _plan(self, features: Any, framework: Framework) -> Any:
        return mask_words(self, features, framework)
