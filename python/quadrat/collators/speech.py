"""The collators that speech recognition scripts copy from transformers' examples."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchFeature

from quadrat import _core
from quadrat.input.items import normalise
from quadrat.input.rows import Rows, plain, values_of
from quadrat.installed import originals
from quadrat.installed.behaviour import only_hands_on
from quadrat.planning.diagnosis.values import Role
from quadrat.planning.fallback import FallBack, logger, raise_clearer
from quadrat.planning.feature_pad import MASK, FeaturePadOptions, feature_pad, only
from quadrat.planning.plan_cache import check_device
from quadrat.support import columns as col
from quadrat.support.kinds import INT32, INT64, kind_of, torch_dtype
from quadrat.support.memory import interop
from quadrat.tokenizers.pad import tokenizer_pad


class _Speech:
    """Names the row in errors, and warns of rows that the reference makes a wrong batch of without a word."""

    processor: Any
    dtypes: Mapping[str, Any] | None = None

    def __call__(self, features: Any) -> BatchFeature:
        """Collate `features` into a `BatchFeature` of torch tensors."""
        rows, kind = normalise(features, bare=False), self._kind
        try:
            batch = self._collate(rows)
            if kind is not None:  # the reference's, or another extractor's
                batch[self._column] = batch[self._column].to(torch_dtype(kind))
        except Exception as error:
            raise_clearer(error, plain(rows), self)
        shape = tuple(batch[self._column].shape)
        if len(shape) == 3 + self._has_frames and shape[1] == 1 and not vars(self).get("_quadrat_warned"):
            vars(self)["_quadrat_warned"] = True
            found = f"{type(self).__name__}: column '{self._column}', row 0 has shape {shape[1:]}, a batch of one clip"
            logger.warning("%s; take the clip out: row[0]", found)
        return batch

    def _collate(self, rows: Any) -> BatchFeature:
        raise NotImplementedError

    @property
    def _column(self) -> str:
        return str(self.processor.model_input_names[0])

    @property
    def _kind(self) -> int | None:
        """The kind that clips are cast to, if any. Raises ValueError or TypeError for dtypes of something else."""
        for name, dtype in (self.dtypes or {}).items():
            if name != self._column:
                raise ValueError(f"dtypes: only clips are cast, column '{self._column}'; leave '{name}' out")
            if 1 << kind_of(dtype) & col.FLOATS:
                return kind_of(dtype)
            raise ValueError(f"dtypes: column '{name}' holds floats: give a dtype of floats, not {dtype!r}")
        return None

    @property
    def _has_frames(self) -> bool:
        return getattr(getattr(self.processor, "feature_extractor", None), "feature_size", 1) > 1

    def _roles(self, features: Any) -> dict[str, Role]:
        masks = {MASK: Role.OTHER} if getattr(self, "forward_attention_mask", False) else {}
        return {self._column: Role.FRAMES if self._has_frames else Role.SAMPLES, **masks, "labels": Role.TOKENS}


@dataclass
class DataCollatorCTCWithPadding(_Speech):
    """Pad clips, and their labels with -100, for CTC models such as Wav2Vec2.

    The class of this name in transformers' example `run_speech_recognition_ctc.py`: same fields, same result.

    Args:
        processor: a processor of transformers with a feature extractor and a tokenizer.
        padding: True or "longest" pads clips and labels to their longest row; other values as in `processor.pad`.
        pad_to_multiple_of: rounds the width of the clips up to a multiple of this, in samples or frames.
        pad_to_multiple_of_labels: rounds the width of the labels up to a multiple of this, in tokens.
        feature_extractor_input_name: the column of clips, "input_values" or "input_features".
        dtypes: quadrat only: what clips are cast to while they are copied, `{"input_values": "bfloat16"}`.

    Called with features that have this column and `labels`, it returns a `BatchFeature`: the column, float32,
    `[rows, samples]` or `[rows, frames, ...]`; `attention_mask`, int64, if the feature extractor makes one; `labels`,
    int64, `[rows, tokens]`. Clips may be lists, arrays or tensors; rows of a `Dataset` are read in Arrow.

    Raises:
        KeyError: when a feature lacks a column. ValueError, TypeError, ...: as in `processor.pad`.

    Examples:
        >>> import quadrat, tokenizers
        >>> from transformers import PreTrainedTokenizerFast, Wav2Vec2FeatureExtractor, Wav2Vec2Processor
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1, "b": 2}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> processor = Wav2Vec2Processor(Wav2Vec2FeatureExtractor(), tokenizer)
        >>> collator = quadrat.speech.DataCollatorCTCWithPadding(processor)
        >>> clips = [{"input_values": [0.5, 1.0], "labels": [1]}, {"input_values": [2.0], "labels": [1, 2]}]
        >>> {name: values.tolist() for name, values in collator(clips).items()}
        {'input_values': [[0.5, 1.0], [2.0, 0.0]], 'labels': [[1, -100], [1, 2]]}
    """

    processor: Any
    padding: bool | str = "longest"
    pad_to_multiple_of: int | None = None
    pad_to_multiple_of_labels: int | None = None
    feature_extractor_input_name: str = "input_values"
    dtypes: Mapping[str, Any] | None = None

    @property
    def _column(self) -> str:
        return self.feature_extractor_input_name

    def _collate(self, rows: Any) -> BatchFeature:
        name, processor = self._column, self.processor
        labels = _labels_of(rows, name)
        options: dict[str, Any] = {"padding": self.padding, "return_tensors": "pt"}
        of_labels = options | {"pad_to_multiple_of": self.pad_to_multiple_of_labels}
        options["pad_to_multiple_of"] = self.pad_to_multiple_of
        own = vars(processor)
        if "pad" not in own and not own.get("_in_target_context_manager") and only_hands_on(type(processor).pad):
            batch = _pad(processor.feature_extractor, rows, name, (INT64, self._kind), **options)
            labels = tokenizer_pad(processor.tokenizer, labels, **of_labels)
        else:
            batch = processor.pad(only(rows, name), **options)
            labels = processor.pad(labels=labels, **of_labels)
        batch["labels"] = _masked(labels)
        if MASK in batch:
            batch[MASK] = batch[MASK].to(torch.long)
        return batch


@dataclass
class DataCollatorSpeechSeq2SeqWithPadding(_Speech):
    """Pad clips, and their labels with -100, for encoder-decoder models such as Whisper.

    The class of this name in transformers' example `run_speech_recognition_seq2seq.py`: same fields, same result.

    Args:
        processor: a processor of transformers with a feature extractor and a tokenizer.
        decoder_start_token_id: the model's; if all rows of labels begin with it, it is cut off.
        forward_attention_mask: whether the column `attention_mask` of the features is passed on.
        dtypes: as in `DataCollatorCTCWithPadding`.

    Features, result and errors are those of `DataCollatorCTCWithPadding`, with the processor's first input as column.
    `attention_mask` is int64 if asked for, otherwise as the feature extractor makes it: int32, or none.

    Examples:
        >>> import quadrat, tokenizers
        >>> from transformers import PreTrainedTokenizerFast, Wav2Vec2FeatureExtractor, Wav2Vec2Processor
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "<s>": 1, "a": 2}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> processor = Wav2Vec2Processor(Wav2Vec2FeatureExtractor(), tokenizer)
        >>> collator = quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(processor, 1, False)
        >>> clips = [{"input_values": [0.5, 1.0], "labels": [1]}, {"input_values": [2.0], "labels": [1, 2]}]
        >>> {name: values.tolist() for name, values in collator(clips).items()}
        {'input_values': [[0.5, 1.0], [2.0, 0.0]], 'labels': [[-100], [2]]}
    """

    processor: Any
    decoder_start_token_id: int
    forward_attention_mask: bool
    dtypes: Mapping[str, Any] | None = None

    def _collate(self, rows: Any) -> BatchFeature:
        name = self._column
        label_rows = _labels_of(rows, name)
        batch = _pad(self.processor.feature_extractor, rows, name, (INT32, self._kind), return_tensors="pt")
        if self.forward_attention_mask:
            batch[MASK] = _stacked_masks(rows)
        labels = _masked(tokenizer_pad(self.processor.tokenizer, label_rows, return_tensors="pt"))
        if (labels[:, 0] == self.decoder_start_token_id).all().item():
            labels = labels[:, 1:]
        batch["labels"] = labels
        return batch


def _labels_of(rows: Any, name: str) -> list[dict[str, Any]]:
    """Labels as a tokenizer pads them. Raises KeyError first where column `name` is missing."""
    if type(rows) is not Rows:
        [row[name] for row in rows]
    elif not rows.has(name):
        raise KeyError(name)
    return [{"input_ids": labels} for labels in values_of(rows, "labels")]


def _pad(extractor: Any, rows: Any, name: str, kinds: tuple[int, int | None], **options: Any) -> Any:
    """The result of the extractor's `pad` for this column; where quadrat makes it, of these kinds."""
    if originals.is_of(type(extractor).pad, originals.FEATURE_PAD) and "pad" not in vars(extractor):
        return feature_pad(extractor, rows, FeaturePadOptions(**options), kinds, name)
    return extractor.pad(only(rows, name), **options)


def _masked(labels: Any) -> torch.Tensor:
    padding: torch.Tensor = labels.attention_mask.ne(1)
    return labels["input_ids"].masked_fill(padding, -100)  # type: ignore[no-any-return]


def _stacked_masks(rows: Any) -> Any:
    found = _core.collect(rows, (MASK,), interop())
    forms, _, kinds, equal, *_ = (0, 0, 0, False) if found is None else col.column_shapes(found[1].signature(0, 1))[0]
    if found is not None and equal and forms == col.LIST and kinds == col.PYTHON_INTS:
        with contextlib.suppress(FallBack):
            check_device("pt")
            step = MASK, 0, col.STACK, INT64
            if type(made := found[1].run((step,), {}, interop(), True, col.BatchLayout())) is dict:
                return made[MASK]
    return torch.LongTensor(values_of(rows, MASK))
