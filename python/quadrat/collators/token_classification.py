"""`DataCollatorForTokenClassification`: padding of tokens and of one label per token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import MixinCollator
from quadrat.input.rows import first_mapping
from quadrat.installed import originals
from quadrat.installed.behaviour import numpy_token_labels_are_like_torch
from quadrat.ops.flatten import Names
from quadrat.planning.conversion import faster_reference
from quadrat.planning.flat import flatten, padding_free_plan
from quadrat.planning.padded import LabelColumn, padded_spec, require_tokenizer
from quadrat.planning.plan_cache import PADDING_FIELDS, PadOptions, make
from quadrat.support.columns import PAD
from quadrat.support.kinds import Framework


@dataclass
class DataCollatorForTokenClassification(MixinCollator, originals.DataCollatorForTokenClassification):
    """Pad features and the labels of their tokens; replaces the transformers class.

    The result is that of `transformers.DataCollatorForTokenClassification`: one tensor per column, `[rows, width]` for
    the columns that the tokenizer pads and for `label` or `labels`. Labels are int64, padded with `label_pad_token_id`,
    and last in the batch.

    Args:
        tokenizer: a tokenizer of transformers. It gives the padding token, the padding side and the columns to pad.
        padding, max_length, pad_to_multiple_of, return_tensors, pad_values, deferred, trim: as in
            `DataCollatorWithPadding`.
        label_pad_token_id: the padding value of labels; torch losses ignore -100.
        padding_free: quadrat only: no padding: the rows and their labels are joined, as in
            `DataCollatorForLanguageModeling`.
        return_position_ids, return_flash_attn_kwargs, return_seq_idx, position_ids_start: with `padding_free`: as in
            `DataCollatorWithFlattening`.
        kwargs_for, align_to, total_length, continue_positions: likewise.

    Raises:
        ValueError, TypeError, KeyError, ...: as in transformers, with the column, the row and the lengths added.
        ValueError: with `padding_free`, for a column whose row is not as long as its input_ids.

    Examples:
        >>> from tokenizers import Tokenizer, models
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> import quadrat
        >>> rows = [{"input_ids": [1, 2, 3], "labels": [7, 8, 9]}, {"input_ids": [2], "labels": [8]}]
        >>> quadrat.DataCollatorForTokenClassification(tokenizer)(rows)["labels"].tolist()
        [[7, 8, 9], [8, -100, -100]]
        >>> quadrat.DataCollatorForTokenClassification(tokenizer, padding_free=True)(rows)["labels"].tolist()
        [[7, 8, 9, 8]]
    """

    pad_values: Mapping[str, Any] | None = None
    padding_free: bool = False
    return_position_ids: bool = True
    return_flash_attn_kwargs: bool = False
    return_seq_idx: bool = False
    position_ids_start: int = 0
    deferred: bool = False
    kwargs_for: Names | None = None
    align_to: int | None = None
    total_length: int | None = None
    continue_positions: bool = True
    trim: bool = False

    _imitates: ClassVar[str] = "DataCollatorForTokenClassification"
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (*PADDING_FIELDS, "label_pad_token_id", "padding_free")

    @property
    def _joins_rows(self) -> bool:  # type: ignore[override]
        return self.padding_free

    def _is_own(self, features: Any) -> bool:
        return self.padding_free

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
        if self.padding_free:
            return self._flatten(features, framework)
        refusal = None
        require_tokenizer(self.tokenizer)
        if self.tokenizer.model_input_names[0] != "input_ids":
            refusal = "labels are as long as 'input_ids'", "list it first in tokenizer.model_input_names"
        if framework == "np" and not numpy_token_labels_are_like_torch():
            refusal = "this transformers makes NumPy labels in its own way", "use return_tensors='pt'"
        label = LabelColumn(("label", "labels"), PAD, refusal=refusal)
        options = PadOptions(self.padding, self.max_length, self.pad_to_multiple_of)
        spec = padded_spec(self, framework, options, label=label, label_value=self.label_pad_token_id)
        return make(self, spec, features)

    def _flatten(self, features: Any, framework: Framework) -> Any:
        if self.padding == "max_length":
            raise ValueError("padding_free does not pad rows: leave out padding='max_length'")
        first = first_mapping(features) or ()
        label = next((name for name in ("label", "labels") if name in first), None)
        plan = padding_free_plan(
            self,
            features,
            framework,
            labels="none" if label is None else "as they are",
            label=label,
            label_pad=self.label_pad_token_id,
        )
        return flatten(self, features, plan)
