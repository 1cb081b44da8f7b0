"""Columns whose rows do not fit together, and the collator or option that makes them fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quadrat.planning.diagnosis.values import Column, Role, dimensions, length_of

MARKS = ("attention_mask", "token_type_ids", "special_tokens_mask")
WORDS = ("offset_mapping", "word_ids")
LABELS = ("label", "labels", "label_ids")
MAIN = "input_ids"

_ONE_PER_TOKEN = {
    Role.MARKS: "one number per token, or remove the column",
    Role.WORDS: "one entry per token, as the tokenizer does",
}

Shape = tuple[int | None, ...]


def shape_of(value: Any) -> Shape:
    """Lengths by dimension; None where rows inside differ."""
    if isinstance(value, (list, tuple)):
        if not value or (not isinstance(value[0], (list, tuple)) and not hasattr(value[0], "ndim")):
            return (len(value),)
        inner = {shape_of(row) for row in value}
        return (len(value), *(inner.pop() if len(inner) == 1 else (None,)))
    return tuple(value.shape) if hasattr(value, "shape") else ()


def uneven(column: Column, remedy: str) -> Iterator[str]:
    """Rows that do not stack."""
    shapes = [shape_of(value) for value in column.values]
    first = shapes[0]
    for row, shape in enumerate(shapes):
        if None in shape:
            yield f"column '{column.name}', row {row} holds rows of different lengths; {remedy}"
        if shape != first:
            yield (
                f"column '{column.name}' is ragged and not padded here: row 0 {_has(first)}, row {row} {_has(shape)}; "
                f"{remedy}"
            )


def _has(shape: Shape) -> str:
    if not shape:
        return "is one number"
    return f"has length {shape[0]}" if len(shape) == 1 else f"has shape {shape}"


def to_stack(collator: Any, column: Column, rows: Mapping[str, Sequence[Any]]) -> str:
    """What to do about a column that does not stack. rows: all columns of the batch."""
    padding = _padding_collator(rows)
    flat = all(dimensions(value) == 1 for value in column.values)
    if column.name in (MAIN, *MARKS):
        return _to_pad(column, padding or "DataCollatorWithPadding")
    if not flat or (padding is None and not hasattr(collator, "pad_values")):
        return "give all rows one shape, or remove it"
    if column.name in LABELS and padding is not None:
        return _to_pad_labels(collator, column, rows)
    if hasattr(collator, "pad_values"):
        return f"give pad_values={{'{column.name}': 0}} to pad it with 0, or remove it"
    if hasattr(collator, "tokenizer"):
        return "give all rows one length, or remove it"
    return f"use {padding}(tokenizer, pad_values={{'{column.name}': 0}}), which pads it with 0, or remove it"


def _to_pad(column: Column, collator: str) -> str:
    """What to do about columns of tokens where nothing is padded."""
    shapes = list(map(shape_of, column.values))
    if all(len(shape) == 1 for shape in shapes):
        return f"use {collator}(tokenizer), which pads, or pad while tokenizing: padding='max_length'"
    if all(len(shape) == 2 and shape[0] == 1 for shape in shapes):
        made = "tokenizer(text, return_tensors=...) gives such rows: tokenize without return_tensors"
        return f"{made}, and use {collator}(tokenizer), which pads"
    return f"make a feature of each of its rows, and use {collator}(tokenizer), which pads"


def _to_pad_labels(collator: Any, column: Column, rows: Mapping[str, Sequence[Any]]) -> str:
    name = _padding_collator({**rows, "labels": column.values})
    if hasattr(collator, "mlm_probability"):
        return (
            f"{type(collator).__name__} makes labels of its own: remove the column, or, to keep it, use "
            f"{name}(tokenizer), which pads it with -100"
        )
    pad_values = f", or give pad_values={{'{column.name}': -100}}" if hasattr(collator, "pad_values") else ""
    return f"use {name}(tokenizer), which pads it with -100{pad_values}"


def _padding_collator(rows: Mapping[str, Sequence[Any]]) -> str | None:
    """The collator that pads these columns; None without tokens."""
    if MAIN not in rows:
        return None
    label = next((name for name in LABELS if name in rows and any(dimensions(row) == 1 for row in rows[name])), None)
    if label is None:
        return "DataCollatorWithPadding"
    lengths = list(map(length_of, rows[label]))
    aligned = lengths == list(map(length_of, rows[MAIN]))
    return "DataCollatorForTokenClassification" if aligned else "DataCollatorForSeq2Seq"


def not_one_per_token(columns: Sequence[Column], tokens: Column) -> Iterator[str]:
    """Columns that need one value per token."""
    expected = list(map(length_of, tokens.values))
    for column in columns:
        for row, (value, length) in enumerate(zip(column.values, expected, strict=True)):
            found = length_of(value)
            where = f"column '{column.name}', row {row}"
            if column.role is Role.TOKEN_LABELS and found is not None and length is not None and found > length:
                yield f"{where} has {found} labels for the {length} tokens of '{tokens.name}'; give one label per token"
            if column.role in _ONE_PER_TOKEN and found != length:
                has = "no length" if found is None else f"length {found}"
                yield f"{where} has {has} where '{tokens.name}' has {length}; give {_ONE_PER_TOKEN[column.role]}"
