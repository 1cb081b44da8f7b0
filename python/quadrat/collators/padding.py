"""`DataCollatorWithPadding`: dynamic padding as `transformers.DataCollatorWithPadding` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators import originals
from quadrat.collators._pad import pad_features
from quadrat.collators.base import AlwaysHandOver, HandOver, fall_back, hand_over
from quadrat.collators.deferring import deferring
from quadrat.collators.frameworks import collate_further, further_framework
from quadrat.collators.further import check_pad_values, pad_further_columns
from quadrat.collators.recall import PADDING_FIELDS, PadOptions, Remembering, as_encoding, noted
from quadrat.rows import UnevenColumns, rows_of


@dataclass
class DataCollatorWithPadding(Remembering, originals.DataCollatorWithPadding):
    """Pads a list of features to the longest one, or as `padding` says; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorWithPadding`: a `BatchEncoding` with one tensor per
    column, `[rows, width]` for the columns the tokenizer pads, in the order of the first feature's keys; `label` and
    `label_ids` come out as `labels`. Rows may be lists, 1-D NumPy arrays or 1-D torch tensors. Like every collator of
    quadrat's it also takes features that come as columns: a mapping of them, Arrow tables, see `quadrat.rows`.

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
        run = self.__dict__.get("_quadrat_np" if self.return_tensors == "np" else "_quadrat_pt")
        batch = None if run is None else run(self, features)
        if batch is not None:
            return batch if batch is not NotImplemented else fall_back(self, super().__call__, features)
        return self._collate(features)

    @deferring
    def _collate(self, features: Any) -> Any:
        reference = super().__call__
        try:
            rows = rows_of(features)
        except UnevenColumns as error:  # the reference takes mappings too, and says this in its own way
            return hand_over(self, str(error), reference, features)
        return self._decide(rows, reference) if rows is features else DataCollatorWithPadding.__call__(self, rows)

    def _decide(self, features: Any, reference: Any) -> Any:
        framework = self.return_tensors
        further = None if framework in ("pt", "np") else further_framework(framework)
        if further is not None:
            call = DataCollatorWithPadding.__call__
            return collate_further(self, further, features, call, None if self.pad_values else reference)
        check_pad_values(self)
        try:
            if framework not in ("pt", "np"):
                raise AlwaysHandOver(f"return_tensors={framework!r}")
            options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
            renames = ("label", "label_ids")
            return as_encoding(
                pad_features(self, features, framework, options, renames=renames, deferred=self.deferred)
            )
        except HandOver as reason:
            why = noted(self, "np" if framework == "np" else "pt", reason)
        if self.pad_values:
            return hand_over(self, why, lambda batch: pad_further_columns(self, reference, batch, framework), features)
        return hand_over(self, why, reference, features)
