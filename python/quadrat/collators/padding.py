"""`DataCollatorWithPadding`: dynamic padding as `transformers.DataCollatorWithPadding` does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.installed import originals
from quadrat.planning.conversion import faster_reference
from quadrat.planning.padded import padded_spec
from quadrat.planning.plan_cache import PADDING_FIELDS, PadOptions, make


@dataclass
class DataCollatorWithPadding(Collator, originals.DataCollatorWithPadding):
    """Pad features to the longest one, or as `padding` says; replaces the transformers class.

    The result is that of `transformers.DataCollatorWithPadding`: a `BatchEncoding` with one tensor per column, in the
    order of the first feature's keys. Columns that the tokenizer pads are `[rows, width]`; `label` and `label_ids` are
    renamed `labels`. Rows may be lists, 1-D NumPy arrays or 1-D torch tensors. Like every collator of quadrat, it also
    takes features as columns: a mapping of them, a slice of a `datasets.Dataset`, an Arrow table.

    Args:
        tokenizer: a tokenizer of transformers. It gives the padding token, the padding side and the columns to pad.
        padding: True or "longest" pads to the longest row of the batch, "max_length" to `max_length`; False or
            "do_not_pad" does not pad.
        max_length: the width in tokens for `padding="max_length"`; by default that of the tokenizer.
        pad_to_multiple_of: rounds the width up to a multiple of this.
        return_tensors: "pt" or "np"; "tf" or "jax" if that library is installed.
        pad_values: quadrat only: extra columns of rows of different lengths, and the value to pad each with, for
            example `{"labels": -100}`. They are padded to the width of the batch if every row is as long as its tokens,
            otherwise to their own longest row, rounded up to `pad_to_multiple_of`.
        deferred: quadrat only: returns a `DeferredBatch`, which becomes this batch on the device it is sent to.
        trim: quadrat only: for rows that were stored padded: leaves out the columns at the sides of the batch that
            `attention_mask` masks in every row; the width stays a multiple of `pad_to_multiple_of`. All outputs with a
            value for each token lose them. A batch with labels other than -100 there stays as it is, with a warning.

    Raises:
        ValueError, TypeError, KeyError, ...: as in transformers, with the column, the row and the lengths added.

    Examples:
        >>> from tokenizers import Tokenizer, models
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> import quadrat
        >>> collator = quadrat.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)
        >>> batch = collator([{"input_ids": [1, 2, 3], "label": 0}, {"input_ids": [2], "label": 1}])
        >>> {name: values.tolist() for name, values in batch.items()}
        {'input_ids': [[1, 2, 3, 0], [2, 0, 0, 0]], 'attention_mask': [[1, 1, 1, 0], [1, 0, 0, 0]], 'labels': [0, 1]}
    """

    pad_values: Mapping[str, Any] | None = None
    deferred: bool = False
    trim: bool = False

    _imitates: ClassVar[str] = "DataCollatorWithPadding"
    _explains_columns: ClassVar[bool] = False
    _quadrat_guarded: ClassVar[tuple[str, ...]] = PADDING_FIELDS

    def __call__(self, features: Any) -> dict[str, Any]:
        """Collate `features` into a `BatchEncoding`."""
        return self._collate(features, self.return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return super(DataCollatorWithPadding, faster_reference(self, framework)).__call__  # type: ignore[no-any-return]

    def _plan(self, features: Any, framework: Any) -> Any:
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        return make(self, padded_spec(self, framework, options, renames=("label", "label_ids")), features)
