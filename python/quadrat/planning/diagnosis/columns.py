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
    name, flat = column.name, all(dimensions(value) == 1 for value in column.values)
    padding, extends = _padding_collator(rows), hasattr(collator, "pad_values")
    use = f"use {padding or 'DataCollatorWithPadding'}(tokenizer), which pads"
    if name in (MAIN, *MARKS):
        if flat:
            return f"{use}, or pad while tokenizing: padding='max_length'"
        return f"tokenize without return_tensors, or make a feature of each of its rows, and {use}"
    if not flat or not (extends or (padding is not None and not hasattr(collator, "tokenizer"))):
        return "give all rows one shape, or remove it"
    if name in LABELS and padding is not None:
        use = f"use {_padding_collator({**rows, 'labels': column.values})}(tokenizer), which pads it with -100"
        if hasattr(collator, "mlm_probability"):
            return f"{type(collator).__name__} makes labels of its own: remove the column, or, to keep it, {use}"
        return f"{use}, or give pad_values={{'{name}': -100}}" if extends else use
    extra = f"pad_values={{'{name}': 0}}"
    return f"{f'give {extra}' if extends else f'use {padding}(tokenizer, {extra})'}, or remove it"


def _padding_collator(rows: Mapping[str, Sequence[Any]]) -> str | None:
    """The collator that pads these columns; None without tokens."""
    if MAIN not in rows:
        return None
    label = next((name for name in LABELS if name in rows and any(dimensions(row) == 1 for row in rows[name])), None)
    if label is None:
        return "DataCollatorWithPadding"
    aligned = list(map(length_of, rows[label])) == list(map(length_of, rows[MAIN]))
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
