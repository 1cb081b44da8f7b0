"""`pad_values`: ragged columns beyond those the reference pads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from quadrat.installed.originals import PADS_LABELS
from quadrat.ops.pad import pad
from quadrat.ragged import source_of
from quadrat.support.arrays import fill_value
from quadrat.support.columns import DEEP, PAD, ROWS, inferred_kind
from quadrat.support.kinds import BOOL, INT64, KINDS, Framework, default_float_kind

LABELS = ("label", "labels", "label_ids")
_PADDED = ("attention_mask", "token_type_ids", "special_tokens_mask")


def check_pad_values(collator: Any, made: Set[str] = frozenset()) -> None:
    """Raises TypeError unless `pad_values` is a mapping, ValueError for columns that are padded or made without."""
    if collator.pad_values is None:
        return
    if not isinstance(collator.pad_values, Mapping):
        raise TypeError(f"pad_values must map column names to values, not {collator.pad_values!r}")
    for name, value in collator.pad_values.items():
        try:
            fill_value(value, None)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"pad_values: column '{name}' padded with {value!r}: {error}") from error
    if taken := made & set(collator.pad_values):
        raise ValueError(f"pad_values: {sorted(taken)} are made by the collator; leave them out")
    if made:  # rows are joined: a tokenizer, if the collator has one, pads nothing
        return
    inputs = getattr(collator.tokenizer, "model_input_names", ())
    if taken := {*inputs[:1], *_PADDED} & set(collator.pad_values):
        raise ValueError(
            f"pad_values: {sorted(taken)} are padded by the tokenizer; set its pad_token or pad_token_type_id instead"
        )
    if isinstance(collator, PADS_LABELS) and (taken := {"label", "labels"} & set(collator.pad_values)):
        raise ValueError(f"pad_values: {sorted(taken)} are padded with label_pad_token_id; set that instead")


def pad_extra_columns(
    collator: Any, reference: Callable[[Any], Any], features: Any, framework: Framework | None
) -> Any:
    """The reference's batch of the columns it knows, with those of `pad_values` added in their places."""
    if features and all(isinstance(feature, Mapping) for feature in features):
        for name in collator.pad_values:  # labels may be absent, for predictions
            if name not in LABELS and not any(name in feature for feature in features):
                raise ValueError(f"pad_values: no feature has a column '{name}'; the columns are {list(features[0])}")
    names = [name for name in features[0] if name in collator.pad_values] if features else []
    if not names:
        return reference(features)
    if framework not in ("pt", "np"):
        raise ValueError(f"pad_values needs return_tensors 'pt' or 'np', not {framework!r}")
    rest = [{name: feature[name] for name in features[0] if name not in names} for feature in features]
    batch = reference(rest)
    names = [name for name in names if name not in batch or not name.startswith("decoder_")]  # which a model made
    main = collator.tokenizer.model_input_names[0]
    tokens = [len(feature[main]) for feature in features]
    label_action = getattr(collator, "_label_action", lambda: None)()
    for name in names:
        rows, value = [feature[name] for feature in features], collator.pad_values[name]
        try:
            width = None  # that of its own longest row
            if [len(row) for row in rows] == tokens:
                width = int(batch[main].shape[1])
            elif follows_labels(name, label_action) and batch.get("labels") is not None:
                width = int(batch["labels"].shape[1])
            source = source_of(rows)
            forms, _, kinds, *_ = source.columns.describe(0)
            kind = extra_kind(forms, kinds, default_float_kind(framework), type(value))
            if kind is None or source.own is not None:
                raise TypeError("its rows hold different kinds of numbers, or such as no kernel knows")
            batch[name] = pad(
                rows,
                padding_side=collator.tokenizer.padding_side,
                max_length=width,
                pad_to_multiple_of=collator.pad_to_multiple_of if width is None else None,
                padding_value=value,
                dtype=KINDS[kind],
                return_tensors=framework,
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"pad_values: column '{name}' padded with {value!r}: {error}") from error
    last = ("label", "labels") if isinstance(collator, PADS_LABELS) else ()
    order = dict.fromkeys([*(name for name in features[0] if name in batch and name not in last), *batch])
    ordered = {name: batch[name] for name in order}
    if isinstance(batch, dict):
        return ordered
    batch.data = ordered
    return batch


def follows_labels(name: str, label_action: int | None) -> bool:
    """True if a column is as wide as the labels: the model compares what its decoder makes of it with them."""
    return label_action == PAD and name.startswith("decoder_")


def extra_kind(forms: int, kinds: int, float_kind: int | None, value_type: type) -> int | None:
    """The kind of a padded column of `pad_values`; None when its rows are not rows of numbers of one kind."""
    if forms & ~(ROWS | DEEP):
        return None
    kind = inferred_kind(kinds, float_kind) if kinds else INT64
    return INT64 if kind == BOOL and value_type is not bool else kind
