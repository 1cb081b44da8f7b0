"""`DataCollatorWithPadding`: dynamic padding as `transformers.DataCollatorWithPadding` does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.input.rows import UnevenColumns
from quadrat.installed import originals
from quadrat.planning.by_lists import faster_reference
from quadrat.planning.fallback import FallBack
from quadrat.planning.padded import pad_features
from quadrat.planning.plan_cache import PADDING_FIELDS, PadOptions, as_encoding


@dataclass
class DataCollatorWithPadding(Collator, originals.DataCollatorWithPadding):
    """Pads a list of features to the longest one, or as `padding` says; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorWithPadding`: a `BatchEncoding` with one tensor per
    column, `[rows, width]` for the columns the tokenizer pads, in the order of the first feature's keys; `label` and
    `label_ids` come out as `labels`. Rows may be lists, 1-D NumPy arrays or 1-D torch tensors. Like every collator of
    quadrat's it also takes features that come as columns: a mapping of them, Arrow tables, see `quadrat.input.rows`.

    Args:
        pad_values: opt-in, beyond the reference: further ragged columns and the value to pad each with, for example
            `{"labels": -100}`. They are padded to the width of the batch where every row is as long as its tokens,
            else to their own longest row, rounded up to `pad_to_multiple_of`.
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, KeyError, ...: what the reference raises, naming column, row and lengths as well.
    """

    pad_values: Mapping[str, Any] | None = None
    deferred: bool = False

    _quadrat_guarded: ClassVar[tuple[str, ...]] = PADDING_FIELDS

    def __call__(self, features: Any) -> Any:
        """Collate `features` into a `BatchEncoding`."""
        return self._collate(features, self.return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        reference: Callable[[Any], Any] = super(DataCollatorWithPadding, faster_reference(self, framework)).__call__
        return reference

    def _normalise(self, features: Any) -> Any:
        try:
            return super()._normalise(features)
        except UnevenColumns as error:  # the reference takes mappings too, and says this in its own way
            raise FallBack(str(error)) from error

    def _plan(self, features: Any, framework: Any) -> Any:
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        renames = ("label", "label_ids")
        return as_encoding(pad_features(self, features, framework, options, renames=renames))
