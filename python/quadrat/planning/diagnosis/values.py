"""One value of a column: values that cannot become tensors, and what to do about them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from quadrat.support.memory import is_tensor


class Role(enum.Enum):
    """What a column is for a collator."""

    TOKENS = "token ids"
    MARKS = "one number per token"
    WORDS = "which word each token belongs to"
    TOKEN_LABELS = "one label per token"
    FLAT = "one number per token of a flattened row"
    TARGETS = "token ids with lengths of their own"
    CHOICE = "the number of the right choice"
    LABEL = "a label per row, or a column with the name of one"
    OTHER = "anything that stacks"


# What to say of a value that is one number, None or a text, by role; the first are the roles that need rows.
_NOT_A_ROW = {
    Role.TOKENS: "not a row of token ids; for a row of one token give a list",
    Role.MARKS: "not one number per token; remove the column",
    Role.TOKEN_LABELS: "not one label per token; for one label per row use DataCollatorWithPadding",
    Role.FLAT: "not one number per token; for one label per row use DataCollatorWithFlattening(scalar_labels=True)",
    Role.TARGETS: "not a row of token ids; for one label per row use DataCollatorWithPadding",
}
_NONE = {
    Role.TOKENS: "give the row its token ids, or leave it out",
    Role.CHOICE: f"give {Role.CHOICE.value}; any number will do where you do not need it",
}
_GAP = dict.fromkeys((Role.TOKEN_LABELS, Role.FLAT, Role.TARGETS), "give -100 where there is no label")
_TEXT = {
    Role.TOKENS: "tokenize it: tokenizer(text)['input_ids']",
    Role.TARGETS: "tokenize it: tokenizer(text_target=text)['input_ids']",
}
_WORD = dict.fromkeys(_TEXT, "give token ids: tokenizer.convert_tokens_to_ids(row)")
_LABELS = (Role.TOKEN_LABELS, Role.FLAT, Role.CHOICE, Role.LABEL)
_NUMBERS = (int, float, complex, np.number, np.bool_)
_MOST_SHOWN = 12
_LONGEST_SHOWN = 60


class Column(NamedTuple):
    """A column of the batch."""

    name: str  # "" for rows that no mapping holds
    values: Sequence[Any]
    role: Role

    def place(self, row: int) -> str:
        """Where a value stands, in words."""
        return f"column '{self.name}', row {row}" if self.name else f"row {row}"


def shown(value: Any) -> str:
    """The repr of a value, cut short."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value[:_MOST_SHOWN]))}{', ...' if len(value) > _MOST_SHOWN else ''}]"
    if isinstance(value, (str, bytes)):
        return repr(value[:_LONGEST_SHOWN]) + ("..." if len(value) > _LONGEST_SHOWN else "")
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def kind_of(value: Any) -> str:
    """The type of a value, as "a list"."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the string {shown(value)}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def dimensions(value: Any) -> int | None:
    """How many dimensions a value has, by its first elements; None for what is neither numbers nor rows of them."""
    if isinstance(value, (list, tuple)):
        inner = dimensions(value[0]) if len(value) else 0
        return None if inner is None else 1 + inner
    if hasattr(value, "ndim") and hasattr(value, "shape"):
        return int(value.ndim)
    return 0 if isinstance(value, _NUMBERS) else None


def length_of(value: Any) -> int | None:
    """How many elements; None for what has no length."""
    return len(value) if hasattr(value, "__len__") and getattr(value, "ndim", True) else None


def broken(column: Column) -> Iterator[str]:
    """Values that make the reference fail."""
    if all(value is None for value in column.values) and column.role is not Role.CHOICE:
        yield f"column '{column.name}' is None in every row; {_removal(column)}"
    for row, value in enumerate(column.values):
        where = column.place(row)
        if value is None:
            yield f"{where} is None; {_NONE.get(column.role, 'give every row a value, or remove the column')}"
        elif isinstance(value, (str, bytes)):
            instead = _instead_of_text(column, _TEXT, column.values)
            yield f"{where} is {kind_of(value)}, which no tensor can hold; {instead}"
        elif column.role in _NOT_A_ROW and dimensions(value) == 0:
            yield f"{where} is the number {shown(value)}, {_NOT_A_ROW[column.role]}"
        elif column.role in _NOT_A_ROW and (dimensions(value) or 0) > 1 and not _is_array_of_masks(column, value):
            yield f"{where} {_nested(value)}"
        elif isinstance(value, (list, tuple)):
            yield from _broken_elements(column, where, value)
        elif is_tensor(value) and value.is_meta:
            yield f"{where} is a tensor on the device 'meta', which has no numbers; give tensors on the CPU"
        elif isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim:
            yield from _broken_elements(column, where, value.tolist())
        else:
            yield from _beyond_int64(where, value)


def doubtful(column: Column) -> Iterator[str]:
    """Values that make some collators fail."""
    for row, value in enumerate(column.values):
        where = column.place(row)
        if hasattr(value, "ndim") and hasattr(value, "dtype"):
            yield from _doubtful_array(column, where, value)
        elif not isinstance(value, (list, tuple)):
            if not isinstance(value, (*_NUMBERS, str, bytes)) and value is not None:
                yield f"{where} is {kind_of(value)}, which no tensor can hold; {_removal(column)}"
        else:
            yield from _doubtful_elements(column, where, value)


def _doubtful_array(column: Column, where: str, value: Any) -> Iterator[str]:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        yield f"{where} is an array of Python objects; give numbers, for example row.astype('int64')"
    elif column.role is Role.TOKENS and (value.is_floating_point() if is_tensor(value) else value.dtype.kind == "f"):
        remedy = "row.long()" if is_tensor(value) else "row.astype('int64')"
        yield f"{where} holds {str(value.dtype).removeprefix('torch.')} numbers, and token ids are ints; give {remedy}"


def _doubtful_elements(column: Column, where: str, value: Sequence[Any]) -> Iterator[str]:
    kinds = list(map(type, value))
    for kind in dict.fromkeys(kinds):
        at = kinds.index(kind)
        place = f"{where}, position {at}"
        if column.role is Role.TOKENS and issubclass(kind, (float, np.floating)):
            yield f"{place} is the float {shown(value[at])}, and token ids are ints; give [int(token) for token in row]"
        elif not issubclass(kind, (*_NUMBERS, list, tuple, str, bytes)) and not hasattr(kind, "ndim"):
            yield f"{place} is {kind_of(value[at])}, which no tensor can hold; {_removal(column)}"


def _broken_elements(column: Column, where: str, value: Sequence[Any]) -> Iterator[str]:
    kinds = set(map(type, value))
    if kinds <= {int, bool}:  # all that is looked at in a good row, however long
        if value and not (_fits_int64(min(value)) and _fits_int64(max(value))):
            at = next(position for position, element in enumerate(value) if not _fits_int64(element))
            yield from _beyond_int64(f"{where}, position {at}", value[at])
        return
    if all(issubclass(kind, (float, np.number, np.bool_)) for kind in kinds):
        return
    for position, element in enumerate(value):
        place = f"{where}, position {position}"
        if element is None:
            instead = _GAP.get(column.role, "give a number there, or leave the row out")
            yield f"{place} is None where a number is expected; {instead}"
        elif isinstance(element, (str, bytes)):
            words = chain.from_iterable(row for row in column.values if isinstance(row, (list, tuple)))
            instead = _instead_of_text(column, _WORD, words)
            yield f"{place} is {kind_of(element)} where a number is expected; {instead}"
        elif isinstance(element, (list, tuple)):
            if column.role in _NOT_A_ROW:
                yield f"{place} is {kind_of(element)} where a number is expected; give one flat row of numbers"
            else:
                yield from _broken_elements(column, place, element)
        else:
            yield from _beyond_int64(place, element)


def _fits_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _beyond_int64(where: str, value: Any) -> Iterator[str]:
    if isinstance(value, int) and not _fits_int64(value):
        yield f"{where} is {shown(value)}, beyond int64; give a number from -2**63 to 2**63 - 1"


def _is_array_of_masks(column: Column, value: Any) -> bool:
    """Attention masks of more dimensions, which the reference stacks as they are."""
    return column.name == "attention_mask" and not isinstance(value, (list, tuple))


def _nested(value: Any) -> str:
    if len(value) != 1:
        return f"holds {len(value)} rows where one row of numbers is expected; make a feature of each"
    if isinstance(value, (list, tuple)):
        found, instead = (
            "is a row inside a list, like the result of tokenizer([text])",
            "one text at a time, tokenizer(text)",
        )
    else:
        found = f"has shape {tuple(value.shape)}, like the result of tokenizer(text, return_tensors=...)"
        instead = "without return_tensors"
    return f"{found}; tokenize {instead}, or take the row out in every column: value[0]"


def _instead_of_text(column: Column, known: Mapping[Role, str], texts: Iterable[Any]) -> str:
    return _mapping(texts) if column.role in _LABELS else known.get(column.role) or _removal(column)


def _removal(column: Column) -> str:
    return (
        f"remove the column before collating, for example dataset.remove_columns('{column.name}'); of a BatchedDataset "
        "or PackedDataset, Trainer removes no columns: name those to keep with columns="
    )


def _mapping(labels: Iterable[Any]) -> str:
    """How labels that are words become numbers, with those of this batch as the example."""
    words = sorted({label for label in labels if isinstance(label, str)})
    example = {word: number for number, word in enumerate(words)} if len(words) <= 8 else None
    if example is None or any(len(word) > 30 for word in words):
        return "map labels to numbers, for example label2id[label]"
    return f"map labels to numbers, for example {example}[label]"
