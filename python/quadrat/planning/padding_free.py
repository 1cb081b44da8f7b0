"""`padding_free=True`: flattening with the options of a collator that otherwise pads with its tokenizer."""

from __future__ import annotations

from typing import Any, Literal

from quadrat.input.rows import first_mapping
from quadrat.planning.diagnosis.options import not_a_tokenizer
from quadrat.planning.extra_columns import check_pad_values
from quadrat.planning.flattening import MAIN, Flattening, check_layout
from quadrat.planning.labels import Labelling
from quadrat.support.memory import Framework


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
    Raises TypeError or ValueError.
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
    unknown = [name for name in first if name not in known]
    if unknown:
        raise ValueError(
            f"padding_free cannot join column '{unknown[0]}': remove it, or, if it has one number per token, give "
            f"pad_values={{'{unknown[0]}': value}}"
        )
    return Flattening(
        framework,
        labels,
        label,
        bool(collator.return_position_ids),
        bool(collator.return_seq_idx),
        collator.kwargs_for or ("transformers" if collator.return_flash_attn_kwargs else None),
        extra,
        collator.pad_to_multiple_of,
        position_ids_start=collator.position_ids_start,
        input_pad=tokenizer.pad_token_id or 0,
        label_pad=label_pad,
        labelling=labelling,
        align_to=collator.align_to,
        total_length=collator.total_length,
        continue_positions=bool(collator.continue_positions),
    )
