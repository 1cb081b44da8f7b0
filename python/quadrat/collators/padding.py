"""The collators that pad: features alone, with a label per token, with rows of labels, and with several choices."""

import copy
from collections import UserDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.collators.options import ColumnOptions, PaddingFreeOptions
from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import names_of
from quadrat.installed import originals
from quadrat.installed.behaviour import (
    multiple_choice_takes_labels,
    numpy_token_labels_are_like_torch,
    pad_warns_of_fast_tokenizers,
)
from quadrat.installed.imitated import PADDING, Imitation, code_of
from quadrat.planning import padded
from quadrat.planning.diagnosis.values import Role
from quadrat.planning.facts import ENTRY, Fact, joined_facts, padding_facts
from quadrat.planning.fallback import FallBack, require_names
from quadrat.planning.flat import flatten, padding_free_spec
from quadrat.planning.padded import LabelColumn, Padded, PadOptions
from quadrat.planning.pads_by_lists import faster_reference
from quadrat.support.columns import NUMBERS, PAD, PAD_OWN, STACK
from quadrat.support.kinds import Framework

# The reference takes empty rows of labels through floats; beyond this, floats leave out some ints.
_EXACT_IN_FLOATS = range(-(2**53), 2**53 + 1)


def _make_padded(form: type[Padded], collator: Any, features: Any, framework: Any, **fields: Any) -> Any:
    options = PadOptions(collator.padding, collator.max_length, collator.pad_to_multiple_of)
    deferred = collator.deferred and form is not _Choices
    return form.of(collator, framework, options, deferred=deferred, **fields).make(collator, features)


def _labels(collator: Any, action: int, **fields: Any) -> LabelColumn:
    value = collator.label_pad_token_id
    return LabelColumn(("label", "labels"), action, value if type(value) is int else None, **fields)


def _row(name: str, *others: str, **fields: Any) -> Imitation:
    return Imitation(name, code_of(name, *others) + PADDING, **fields)


@dataclass
class DataCollatorWithPadding(ColumnOptions, originals.DataCollatorWithPadding):
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
        return_tensors: "pt" or "np"; transformers makes the batch for other frameworks that it knows.
        pad_values: quadrat only: extra columns of rows of different lengths, and the value to pad each with, for
            example `{"labels": -100}`. They are padded to the width of the batch if every row is as long as its tokens,
            otherwise to their own longest row, rounded up to `pad_to_multiple_of`. Integers become int64, floats the
            default dtype; float16 and bfloat16 stay. Each row must have the column; labels may be absent from all rows.
        deferred: quadrat only: returns a `DeferredBatch`, which becomes this batch on the device it is sent to.
        join_columns: quadrat only: columns whose rows, `[n, ...]`, are put one after the other, `[sum of n, ...]`, such
            as `pixel_values` and `image_grid_thw`. Arrays and tensors keep their dtype. Rows without the column, or
            with None, add nothing; a batch in which none has it has no such output.
        pad_axes: quadrat only: the axes, an int or several, along which columns of `pad_values` are padded. Rows
            `[3, n]` padded along -1 become `[rows, 3, width]`; an axis of one element after the first becomes that of
            the rows: `[3, 1, n]` become `[3, rows, width]`. The width is that of the batch if every row is as long as
            its tokens along the one axis, and padding is then on the tokenizer's side; otherwise it is that of the
            largest row, padded at the end. The name of a column in place of axes asks for its mask,
            `{"pixel_values": (-2, -1), "pixel_mask": "pixel_values"}`: `[rows, ...]` int64, of the padded axes.
        dtypes: quadrat only: dtypes that columns are cast to while they are copied, for example `{"pixel_values":
            "bfloat16"}`; they are rounded as torch rounds.

    Raises:
        ValueError, TypeError, KeyError, ...: as in transformers, with the column, the row and the lengths added.
        KeyError: for a row without a column of `pad_values`.
        ValueError: for a batch that transformers would make, with options that it lacks.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> collator = quadrat.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)
        >>> batch = collator([{"input_ids": [1, 2, 3], "label": 0}, {"input_ids": [2], "label": 1}])
        >>> {name: values.tolist() for name, values in batch.items()}
        {'input_ids': [[1, 2, 3, 0], [2, 0, 0, 0]], 'attention_mask': [[1, 1, 1, 0], [1, 0, 0, 0]], 'labels': [0, 1]}
    """

    _imitates: ClassVar[Imitation] = _row("DataCollatorWithPadding")
    _explains_columns: ClassVar[bool] = False

    def __call__(self, features: Any) -> dict[str, Any]:
        """Collate `features` into a `BatchEncoding`."""
        return self._collate(features, self.return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return super(DataCollatorWithPadding, faster_reference(self, framework)).__call__  # type: ignore[no-any-return]

    def _plan(self, features: Any, framework: Any) -> Any:
        return _make_padded(
            Padded, self, features, framework, facts=padding_facts(self), renames=("label", "label_ids")
        )


@dataclass
class DataCollatorForTokenClassification(
    PaddingFreeOptions, MixinCollator, originals.DataCollatorForTokenClassification
):
    """Pad features and the labels of their tokens; replaces the transformers class.

    Result and errors are those of `transformers.DataCollatorForTokenClassification`: one tensor per column, `[rows,
    width]` for the columns that the tokenizer pads and for `label` or `labels`. Labels are int64, padded with
    `label_pad_token_id`, and last in the batch. Errors name the column, the row and the lengths.

    Args:
        tokenizer, padding, max_length, pad_to_multiple_of, return_tensors, deferred: as in
            `DataCollatorWithPadding`.
        pad_values, join_columns, pad_axes, dtypes: as there.
        label_pad_token_id: the padding value of labels; torch losses ignore -100.
        padding_free: quadrat only: no padding: the rows and their labels are joined, as in
            `DataCollatorForLanguageModeling`. Each row of a column must be as long as its input_ids.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> rows = [{"input_ids": [1, 2, 3], "labels": [7, 8, 9]}, {"input_ids": [2], "labels": [8]}]
        >>> quadrat.DataCollatorForTokenClassification(tokenizer)(rows)["labels"].tolist()
        [[7, 8, 9], [8, -100, -100]]
        >>> quadrat.DataCollatorForTokenClassification(tokenizer, padding_free=True)(rows)["labels"].tolist()
        [[7, 8, 9, 8]]
    """

    _imitates: ClassVar[Imitation] = _row(
        "DataCollatorForTokenClassification", "DataCollatorMixin", labels=Role.TOKEN_LABELS
    )

    def torch_call(self, features: Any) -> dict[str, Any]:
        """Collate `features` into torch tensors."""
        return self._collate(features, "pt")

    def numpy_call(self, features: Any) -> dict[str, Any]:
        """Collate `features` into NumPy arrays."""
        return self._collate(features, "np")

    def _reference(self, framework: Framework) -> Callable[[Any], Any]:
        reference: Any = super(MixinCollator, faster_reference(self, framework))
        return reference.torch_call if framework == "pt" else reference.numpy_call  # type: ignore[no-any-return]

    def _plan(self, features: Any, framework: Framework) -> Any:
        facts, refusal = padding_facts(self), None
        if self.padding_free:
            return self._flatten(features, framework, facts)
        padded.require_tokenizer(self.tokenizer)
        if self.tokenizer.model_input_names[0] != "input_ids":
            refusal = "labels are as long as 'input_ids'", "list it first in tokenizer.model_input_names"
        if framework == "np" and not numpy_token_labels_are_like_torch():
            refusal = "this transformers makes NumPy labels in its own way", "use return_tensors='pt'"
        label = _labels(self, PAD, refusal=refusal)
        return _make_padded(Padded, self, features, framework, facts=facts, label=label)

    def _flatten(self, features: Any, framework: Framework, facts: Any) -> Any:
        if self.padding == "max_length":
            raise ValueError("padding_free does not pad rows: leave out padding='max_length'")
        names = names_of(features) or ()
        label = next((name for name in ("label", "labels") if name in names), None)
        form: dict[str, Any] = {"labels": "none" if label is None else "as they are", "label": label}
        spec = padding_free_spec(
            self, features, framework, **form, label_pad=self.label_pad_token_id, facts=facts, deferred=self.deferred
        )
        return flatten(self, features, spec)


@dataclass
class DataCollatorForSeq2Seq(ColumnOptions, originals.DataCollatorForSeq2Seq):
    """Pad features, and their labels to the longest row of labels; replaces the transformers class.

    Result and errors are those of `transformers.DataCollatorForSeq2Seq`: a `BatchEncoding` with one tensor per column,
    `[rows, width]` for the columns that the tokenizer pads; then `labels`, `[rows, label width]`, int64, padded with
    `label_pad_token_id`, or None if the features have neither `label` nor `labels`; then `decoder_input_ids` if `model`
    makes them. Errors name the column, the row and the lengths.

    Args:
        model: if it has `prepare_decoder_input_ids_from_labels`, it makes `decoder_input_ids` from the labels.
        tokenizer, padding, max_length, pad_to_multiple_of, return_tensors, deferred: as in
            `DataCollatorWithPadding`.
        pad_values, join_columns, pad_axes, dtypes: as there; with `padding="max_length"`, the columns
            `decoder_...` of `pad_values` are padded like the labels.
        label_pad_token_id: the padding value of labels; torch losses ignore -100.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> collator = quadrat.DataCollatorForSeq2Seq(tokenizer)
        >>> batch = collator([{"input_ids": [1, 2, 3], "labels": [2, 3]}, {"input_ids": [2], "labels": [1]}])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[1, 2, 3], [2, 0, 0]], [[2, 3], [1, -100]])
    """

    _imitates: ClassVar[Imitation] = _row("DataCollatorForSeq2Seq", labels=Role.TARGETS)

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        call = super(DataCollatorForSeq2Seq, faster_reference(self, framework)).__call__
        return lambda rows: call(rows, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        facts = padding_facts(self)
        if type(self.label_pad_token_id) is int and self.label_pad_token_id not in _EXACT_IN_FLOATS:
            raise FallBack("label_pad_token_id is beyond the ints that floats hold", "give -100")
        action = PAD if self.padding == "max_length" and self.max_length is not None else PAD_OWN
        if self.padding is False or self.padding == "do_not_pad":
            action = STACK
        label = _labels(self, action, output="labels", optional=True)
        return _make_padded(_WithDecoderIds, self, features, framework, facts=facts, label=label)


class _WithDecoderIds(Padded):
    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        if self.options.warns:
            super().finish(collator, batch, features)
        if not hasattr(collator.model, "prepare_decoder_input_ids_from_labels"):
            return batch
        if isinstance(batch, DeferredBatch):
            batch = batch.to("cpu")  # the model makes its ids of labels that are there
        if (labels := batch.data["labels"]) is not None:
            batch["decoder_input_ids"] = collator.model.prepare_decoder_input_ids_from_labels(labels=labels)
        return batch


@dataclass
class DataCollatorForMultipleChoice(MixinCollator, originals.DataCollatorForMultipleChoice):
    """Pad the choices of every example to one length; replaces the transformers class.

    Result and errors are those of `transformers.DataCollatorForMultipleChoice`. Each column of a feature holds one row
    per choice, as many as the first example's `input_ids` have; `label` or `labels` is the number of the right choice.
    The result is a dict with one tensor per column, `[examples, choices, width]`, and then `labels`, `[examples]`,
    int64. Errors name the column, the example, the choice and the lengths. Features do not change; before 5.23
    transformers removes the labels from them.

    Args:
        tokenizer, padding, max_length, pad_to_multiple_of, return_tensors, deferred: as in
            `DataCollatorWithPadding`.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> example = {"input_ids": [[1, 2, 3], [1, 2]], "label": 0}
        >>> batch = quadrat.DataCollatorForMultipleChoice(tokenizer)([example])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[[1, 2, 3], [1, 2, 0]]], [0])
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = _row("DataCollatorForMultipleChoice", "DataCollatorMixin", form="choices")

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        call: Callable[[Any], Any] = super(MixinCollator, self).torch_call
        return (lambda examples: call(_spared(examples))) if multiple_choice_takes_labels() else call

    def _plan(self, examples: Any, framework: Any) -> Any:
        names, facts = require_names(examples), padding_facts(self)
        tokenizer = self.tokenizer
        facts = joined_facts(facts, _warning_facts(tokenizer))
        padded.check_tokenizer(tokenizer)
        if padded.warns_of_fast(tokenizer):
            raise FallBack("transformers 4.x warns about padding with a fast tokenizer first")
        label, other = ("label", "labels") if "label" in names else ("labels", "label")
        if label not in names or other in names:
            raise FallBack("exactly one of 'label' and 'labels' must be there", "give one to each example")
        if tokenizer.model_input_names[0] != "input_ids":
            raise FallBack("choices are counted in 'input_ids'", "list it first in tokenizer.model_input_names")
        column = LabelColumn((label,), NUMBERS, output="labels")
        return _make_padded(_Choices, self, examples, framework, facts=facts, label=column, absent=(other,))


class _Choices(Padded):
    wrapper = None
    mismatch = "'input_ids' holds no choices, or examples differ", "give each a list per choice"


def _warning_facts(tokenizer: Any) -> tuple[Fact, ...] | None:
    """The facts that make `warns_of_fast` false; None where they are not known."""
    if not pad_warns_of_fast_tokenizers() or not type(tokenizer).__name__.endswith("Fast"):
        return ()
    warnings = tokenizer.__dict__.get("deprecation_warnings")
    if type(warnings) is not dict:
        return None
    held = ENTRY, tokenizer.__dict__, "deprecation_warnings", warnings
    return held, (ENTRY, warnings, padded.FAST_WARNING, warnings.get(padded.FAST_WARNING))


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
