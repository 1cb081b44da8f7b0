"""One value of a column: values that cannot become tensors, and what to do about them."""

import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.support.arrays import fast_form

# What is wrong, and how sure it is that the reference fails because of it: the lowest is told.
CERTAIN, UNEVEN, DOUBTFUL, LEAST = range(4)
Finding = tuple[int, str]
Shape = tuple[int | None, ...]


class Advice(NamedTuple):
    """The remedies for values that a role does not allow."""

    role: str
    number: str = ""  # about a single number; "" where one is right
    text: str = ""


_NOT_A_LABEL = "for one label per row use DataCollatorWithPadding"
_TOKENIZE = "tokenize it: tokenizer({}text)['input_ids'], of a list of tokens tokenizer.convert_tokens_to_ids(row)"


class Role(enum.Enum):
    """The role of a column for a collator."""

    TOKENS = Advice("token ids", "not a row of token ids; for a row of one token give a list", _TOKENIZE.format(""))
    MARKS = Advice("one number per token", "not one number per token; remove the column")
    TOKEN_LABELS = Advice("one label per token", f"not one label per token; {_NOT_A_LABEL}")
    FLAT = Advice(
        "one number per token of a flattened row",
        "not one number per token; for one label per row use DataCollatorWithFlattening(scalar_labels=True)",
    )
    TARGETS = Advice(
        "token ids with lengths of their own",
        f"not a row of token ids; {_NOT_A_LABEL}",
        _TOKENIZE.format("text_target="),
    )
    NUMBER = Advice("one number per example")
    SIZES = Advice("lengths of documents", "not the lengths of the row's documents; give a list of them")
    CHOICE = Advice("the number of the right choice", text="give the number of the right choice, counted from 0")
    LABEL = Advice("a label per row, or a column with the name of one")
    WORDS = Advice("one entry per token, for example those of tokenizer(text)")
    OTHER = Advice("anything that stacks")


_LABELS = (Role.TOKEN_LABELS, Role.FLAT, Role.LABEL)
_NUMBERS = (int, float, complex, np.number, np.bool_)
_MOST_SHOWN = 12
_LONGEST_SHOWN = 60


class Column(NamedTuple):
    """A column of the batch."""

    name: str  # "" for rows that no mapping holds
    values: Sequence[Any]
    role: Role
    choices: int = 0  # of each example, whose rows these are; 0: each row is an example
    if_uneven: str | None = None  # what to do where its rows differ in shape; None: they may

    def row_in_words(self, row: int) -> str:
        """Which row, in words."""
        return f"row {row // self.choices}, choice {row % self.choices}" if self.choices else f"row {row}"

    def place(self, row: int) -> str:
        """Where a value stands, in words."""
        return f"column '{self.name}', {self.row_in_words(row)}" if self.name else self.row_in_words(row)


def shown(value: Any) -> str:
    """The repr of a value, cut short."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value[:_MOST_SHOWN]))}{', ...' if len(value) > _MOST_SHOWN else ''}]"
    if isinstance(value, (str, bytes)):
        return repr(value[:_LONGEST_SHOWN]) + ("..." if len(value) > _LONGEST_SHOWN else "")
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def kind_of(value: Any) -> str:
    """The type of a value, for example "a list"."""
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


def shape_of(value: Any) -> Shape:
    """Lengths by dimension; None where rows inside differ."""
    if isinstance(value, (list, tuple)):
        if not value or (not isinstance(value[0], (list, tuple)) and not hasattr(value[0], "ndim")):
            return (len(value),)
        inner = {shape_of(row) for row in value}
        return (len(value), *(inner.pop() if len(inner) == 1 else (None,)))
    return tuple(value.shape) if hasattr(value, "shape") else ()


def wrong_value(column: Column, where: str, value: Any, inside: bool = False) -> Iterator[Finding]:
    """The problems of a value and of the values in it. inside: whether it is in a row."""
    problem = _problem(column, value, inside)
    if problem is not None:
        yield problem[0], f"{where} {problem[1]}"
    elif isinstance(value, (list, tuple)) and not _is_good(value, column.role):
        for position, element in enumerate(value):
            yield from wrong_value(column, f"{where}, position {position}", element, inside=True)


def _problem(column: Column, value: Any, inside: bool) -> Finding | None:
    advice, size, is_list = column.role.value, dimensions(value), isinstance(value, (list, tuple))
    certainty, text = CERTAIN, ""
    if value is None:
        remedy = "a number there, -100 where there is no label" if inside else "every row a value, remove the column"
        text = f"is None; give {remedy}, or leave the row out"
        if inside and column.role is Role.FLAT:
            certainty = DOUBTFUL  # the first label of a row may not be read
    elif isinstance(value, (str, bytes)):
        text = f"is {kind_of(value)}, which no tensor can hold; {_instead_of_text(column, inside)}"
    elif isinstance(value, int) and not _fits_int64(value):
        text = f"is {shown(value)}, beyond int64; give a number from -2**63 to 2**63 - 1"
    elif advice.number and size == 0 and not inside:
        text = f"is the number {shown(value)}, {advice.number}"
    elif advice.number and is_list and inside:
        text = f"is {kind_of(value)} where a number is expected; give one flat row of numbers"
    # The reference stacks attention masks of more dimensions.
    elif advice.number and (size or 0) > 1 and (is_list or column.name != "attention_mask"):
        text = _nested(value)
    elif not is_list:
        certainty = DOUBTFUL
        if column.role is Role.TOKENS and isinstance(value, float):
            text = f"is the float {value}, and token ids are ints; give [int(token) for token in row]"
        elif not inside and (size is None or advice.number) and (form := fast_form(value)) is not None:
            text = f"is {kind_of(value)}, not a list, array or tensor of numbers; give {form}"
        elif size is None:
            text = f"is {kind_of(value)}, which no tensor can hold; {_removal(column.name)}"
    return (certainty, text) if text else None


def _is_good(row: Sequence[Any], role: Role) -> bool:
    """True if a row holds numbers alone; a long one is not looked at number by number."""
    kinds = set(map(type, row))
    if kinds <= {int, bool}:
        return not row or (_fits_int64(min(row)) and _fits_int64(max(row)))
    return role is not Role.TOKENS and all(issubclass(kind, (float, np.number, np.bool_)) for kind in kinds)


def _fits_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _nested(value: Any) -> str:
    if len(value) != 1:
        return f"holds {len(value)} rows where one row of numbers is expected; make a feature of each"
    text = "is a row inside a list, like the result of tokenizer([text]); tokenize one text at a time, tokenizer(text)"
    if not isinstance(value, list):
        text = f"has shape {tuple(shape_of(value))}; tokenize without return_tensors"
    return f"{text}, or take the row out in every column: value[0]"


def _removal(name: str) -> str:
    return (
        f"remove the column before collating: dataset.remove_columns('{name}'), of a Trainer "
        "TrainingArguments(remove_unused_columns=True), of a BatchedDataset or PackedDataset columns=[...] without it"
    )


def _instead_of_text(column: Column, inside: bool) -> str:
    name = column.name
    if column.role not in _LABELS:
        return column.role.value.text or _removal(name)
    # A batch may lack a class: names are taken from the whole dataset.
    if inside:
        every = f"{{label for row in dataset for label in row['{name}']}}"
        return f"number the labels of the whole dataset: names = sorted({every}), then names.index(label) for each"
    return (
        f"number the labels of the whole dataset: dataset.class_encode_column('{name}') of a datasets.Dataset; of "
        f"others names = sorted({{row['{name}'] for row in dataset}}), then names.index(row['{name}'])"
    )
