"""The contents and the layout of a flattened batch: the options from which collators make a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from quadrat.input.columns import BatchLayout
from quadrat.input.items import SEQ_LENGTHS, is_packed
from quadrat.input.rows import MAIN, first_mapping
from quadrat.planning.diagnosis.options import not_a_tokenizer
from quadrat.planning.extra_columns import check_pad_values
from quadrat.planning.fallback import FallBack
from quadrat.planning.plan_cache import Labelling
from quadrat.support.memory import WIDEST, Framework
from quadrat.varlen.names import check_names, parts_of

_NOTHING: Mapping[str, Any] = {}


class Flattening(NamedTuple):
    """What a flattened batch holds; the outputs come in this order. seq_idx are padded with -1."""

    framework: Framework
    # "shifted": a row's first label is `separator_id`, so that no row's last token predicts the next row's first.
    labels: Literal["shifted", "as they are", "none"]
    label: str | None = None  # the column that labels are made of, and their name; None: of input_ids, as `labels`
    position_ids: bool = True
    seq_idx: bool = False
    consumer: str | None = None  # whose names say where the rows begin, see `quadrat.varlen.names`; None: nothing does
    extra: Mapping[str, Any] = _NOTHING  # more columns with one number per token, and what pads each
    layout: BatchLayout = BatchLayout(separator=-100)
    input_pad: Any = 0
    label_pad: Any = -100
    labelling: Labelling | None = None  # with labels "none": how `labels` are made from the joined ids
    packed: bool = False  # whether rows are packed, and their documents are what the outputs tell apart

    @classmethod
    def of(cls, collator: Any, framework: Framework, labels: Any, label: Any, extra: Any, **more: Any) -> Flattening:
        """With the options of a collator."""
        layout = BatchLayout(
            multiple_of=collator.pad_to_multiple_of or 1,
            separator=more.pop("separator", -100),
            start=collator.position_ids_start if collator.return_position_ids else 0,
            align_to=collator.align_to or 0,
            total=collator.total_length or 0,
            continue_positions=bool(collator.continue_positions),
        )
        return cls(
            framework,
            labels,
            label,
            bool(collator.return_position_ids),
            bool(collator.return_seq_idx),
            collator.kwargs_for or ("transformers" if collator.return_flash_attn_kwargs else None),
            extra,
            layout,
            **more,
        )

    @property
    def padded(self) -> bool:
        """Whether there may be padding."""
        return self.layout.multiple_of > 1 or self.layout.align_to > 0 or self.layout.total > 0

    @property
    def defers(self) -> bool:
        """Whether a device can make the batch; others are made before they are sent."""
        layout = self.layout
        plain = layout.align_to == layout.total == 0 and layout.continue_positions
        return plain and self.consumer not in ("megatron", "mask")

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The outputs that the consumer gets, and what each is."""
        return parts_of(self.consumer, aligned=self.layout.align_to > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, input_ids first."""
        looked_at = () if self.labelling is None else self.labelling.omits
        documents = (SEQ_LENGTHS,) if self.packed else ()
        return MAIN, *(() if self.label is None else (self.label,)), *self.extra, *looked_at, *documents


def check_pad_to_multiple_of(value: Any, name: str = "pad_to_multiple_of") -> None:
    """Raises ValueError unless the value is None or a positive int, of tokens that memory may hold."""
    if value is not None and (type(value) is not int or not 0 < value <= WIDEST):
        raise ValueError(f"{name} must be a positive int up to 2**48, or None, not {value!r}")


def check_layout(collator: Any) -> None:
    """Raises ValueError for layout options of a flat batch that are invalid, or conflict."""
    check_pad_to_multiple_of(collator.pad_to_multiple_of)
    check_names(collator.kwargs_for)
    multiple, total = collator.pad_to_multiple_of, collator.total_length
    for name in ("align_to", "total_length"):
        check_pad_to_multiple_of(getattr(collator, name), name)
    if total is not None and multiple is not None:
        raise ValueError("pad_to_multiple_of and total_length both set the length of a batch: give one of them")
    for name, value in (("pad_to_multiple_of", multiple), ("total_length", total)):
        if collator.align_to is not None and value is not None and value % collator.align_to:
            raise ValueError(f"{name}={value} must be a multiple of align_to={collator.align_to}")


def padding_free_plan(
    collator: Any,
    features: Any,
    framework: Framework,
    *,
    labels: Literal["shifted", "as they are", "none"],
    label: str | None = None,
    label_pad: Any = -100,
    labelling: Labelling | None = None,
) -> Flattening:
    """The flattening of features that the collator's tokenizer would pad, with the collator's options.

    Its columns are input_ids, `label`, those the tokenizer pads besides the attention mask, and those of `pad_values`.
    Raises TypeError or ValueError, and FallBack for packed rows that must be taken apart.
    """
    for problem in not_a_tokenizer(collator):
        raise TypeError(problem)
    check_pad_values(collator)
    check_layout(collator)
    first = first_mapping(features)
    if first is None:
        raise ValueError("padding_free needs a list of features, one mapping per row, and at least one row")
    tokenizer = collator.tokenizer
    for option in ("pad_to_multiple_of", "align_to", "total_length"):
        if getattr(collator, option) is not None and tokenizer.pad_token_id is None:
            raise ValueError(f"{option} needs a pad token: set tokenizer.pad_token")
    if collator.align_to is not None and labels == "none" and labelling is not None:
        raise ValueError("align_to cannot be used with mlm: mask first, then give the batch to quadrat.varlen.align")
    pads = {"token_type_ids": tokenizer.pad_token_type_id, "special_tokens_mask": 1, **(collator.pad_values or {})}
    looked_at = () if labelling is None else labelling.omits
    extra = {name: pads[name] for name in first if name in pads and name not in (label, *looked_at)}
    if MAIN not in first:
        raise ValueError(f"padding_free joins '{MAIN}', which is missing; the features have {list(first)}")
    known = (MAIN, label, "attention_mask", *looked_at, *extra)
    packed, unknown = is_packed(features), [name for name in first if name not in known]
    if packed and unknown != [SEQ_LENGTHS]:
        raise FallBack("packed rows have other columns")
    if unknown and not packed:
        raise ValueError(
            f"padding_free cannot join column '{unknown[0]}': remove it, or, if it has one number per token, give "
            f"pad_values={{'{unknown[0]}': value}}"
        )
    pads = {"input_pad": tokenizer.pad_token_id or 0, "label_pad": label_pad}
    return Flattening.of(collator, framework, labels, label, extra, labelling=labelling, packed=packed, **pads)
