"""`DataCollatorForSeq2Seq`: padding of source tokens and of target tokens, each to their own longest row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.deferred.batch import DeferredBatch
from quadrat.installed import originals
from quadrat.planning.conversion import faster_reference
from quadrat.planning.fallback import FallBack
from quadrat.planning.padded import LabelColumn, padded_spec
from quadrat.planning.plan_cache import PADDING_FIELDS, PadOptions, make
from quadrat.support.columns import PAD, PAD_OWN, STACK
from quadrat.support.kinds import Framework

# The reference takes empty rows of labels through floats; beyond this, floats leave out some ints.
_EXACT_IN_FLOATS = range(-(2**53), 2**53 + 1)


@dataclass
class DataCollatorForSeq2Seq(Collator, originals.DataCollatorForSeq2Seq):
    """Pad features, and their labels to the longest row of labels; replaces the transformers class.

    The result is that of `transformers.DataCollatorForSeq2Seq`: a `BatchEncoding` with one tensor per column,
    `[rows, width]` for the columns that the tokenizer pads; then `labels`, `[rows, label width]`, int64, padded with
    `label_pad_token_id`, or None if the features have neither `label` nor `labels`; then `decoder_input_ids` if `model`
    makes them.

    Args:
        tokenizer: a tokenizer of transformers. It gives the padding token, the padding side and the columns to pad.
        model: if it has `prepare_decoder_input_ids_from_labels`, it makes `decoder_input_ids` from the labels.
        padding, max_length, pad_to_multiple_of, return_tensors, pad_values, deferred, trim: as in
            `DataCollatorWithPadding`; with `padding="max_length"`, the columns `decoder_...` of `pad_values` are padded
            like the labels.
        label_pad_token_id: the padding value of labels; torch losses ignore -100.

    Raises:
        ValueError, TypeError, KeyError, ...: as in transformers, with the column, the row and the lengths added.

    Examples:
        >>> from tokenizers import Tokenizer, models
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> import quadrat
        >>> collator = quadrat.DataCollatorForSeq2Seq(tokenizer)
        >>> batch = collator([{"input_ids": [1, 2, 3], "labels": [2, 3]}, {"input_ids": [2], "labels": [1]}])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[1, 2, 3], [2, 0, 0]], [[2, 3], [1, -100]])
    """

    pad_values: Mapping[str, Any] | None = None
    deferred: bool = False
    trim: bool = False

    _imitates: ClassVar[str] = "DataCollatorForSeq2Seq"
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (*PADDING_FIELDS, "label_pad_token_id")

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        call = super(DataCollatorForSeq2Seq, faster_reference(self, framework)).__call__
        return lambda rows: call(rows, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        if type(self.label_pad_token_id) is int and self.label_pad_token_id not in _EXACT_IN_FLOATS:
            raise FallBack("label_pad_token_id is beyond the ints that floats hold", "give -100")
        column = LabelColumn(("label", "labels"), self._label_action(), "labels", optional=True, lists=True)
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        own = {"label": column, "label_value": self.label_pad_token_id, "finish": _with_decoder_ids}
        return make(self, padded_spec(self, framework, options, **own), features)

    def _label_action(self) -> int:
        if self.padding is False or self.padding == "do_not_pad":
            return STACK
        return PAD if self.padding == "max_length" and self.max_length is not None else PAD_OWN


def _with_decoder_ids(collator: DataCollatorForSeq2Seq, batch: Any, features: Any) -> Any:
    model = collator.model
    if model is None or not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return batch
    if isinstance(batch, DeferredBatch):
        batch = batch.to("cpu")  # the model makes its ids of labels that are there
    labels = batch.data["labels"]
    if labels is not None:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=labels)
    return batch
