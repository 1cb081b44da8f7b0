"""`DataCollatorForSeq2Seq`: padding of source tokens and of target tokens, each to their own longest row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat import _core
from quadrat.collators._base import Collator
from quadrat.input.columns import HOLD, PAD, PAD_OWN, STACK
from quadrat.input.rows import each_of
from quadrat.installed import originals
from quadrat.planning.conversion import faster_reference
from quadrat.planning.fallback import FallBack, first_feature, or_fall_back
from quadrat.planning.padded import LabelColumn, pad_features
from quadrat.planning.plan_cache import PADDING_FIELDS, PadOptions, as_encoding
from quadrat.support.memory import Framework

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
            `DataCollatorWithPadding`.
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
    _apart: ClassVar[tuple[str, ...]] = ("labels",)
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (*PADDING_FIELDS, "label_pad_token_id")

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        call = super(DataCollatorForSeq2Seq, faster_reference(self, framework)).__call__
        return lambda rows: call(rows, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        first = first_feature(features)
        name = "label" if "label" in first else "labels"
        if name == "label" and "labels" in first:
            raise FallBack("both 'label' and 'labels' are there", "remove one of the two columns")
        if type(self.label_pad_token_id) is int and self.label_pad_token_id not in _EXACT_IN_FLOATS:
            raise FallBack("label_pad_token_id is beyond the ints that floats hold", "give -100")
        column = LabelColumn(None, "labels", HOLD, lists=True)
        if name in first and first[name] is None:
            features = _without(features, name)
        elif name in first:
            column = LabelColumn(name, "labels", self._label_action(), lists=True)
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        batch = pad_features(self, features, framework, options, label=(column, self.label_pad_token_id))
        return self._with_decoder_ids(as_encoding(batch))

    def _label_action(self) -> int:
        if self.padding is False or self.padding == "do_not_pad":
            return STACK
        return PAD if self.padding == "max_length" and self.max_length is not None else PAD_OWN

    def _runner(self, recipe: _core.Recipe) -> Callable[[Any, Any], Any]:
        run = recipe.runner()

        def finished(collator: Any, features: Any) -> Any:
            batch = run(collator, features)
            return batch if batch is None or batch is NotImplemented else collator._with_decoder_ids(batch)

        return finished

    def _with_decoder_ids(self, batch: Any) -> Any:
        if self.model is None or not hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            return batch
        if self.deferred:
            batch = batch.to("cpu")  # the model makes its ids of labels that are there
        labels = batch.data["labels"]
        if labels is not None:
            batch["decoder_input_ids"] = self.model.prepare_decoder_input_ids_from_labels(labels=labels)
        return batch


def _without(features: Any, name: str) -> list[dict[str, Any]]:
    with or_fall_back(f"column '{name}' is not in every row", "give it to every row, or to none"):
        labels = [feature[name] for feature in each_of(features)]
        rest = [{key: value for key, value in feature.items() if key != name} for feature in each_of(features)]
    if any(label is not None for label in labels):
        raise FallBack(f"column '{name}' is None in some rows", "give it to every row, or to none")
    return rest
