"""One value of a column: values that cannot become tensors, and what to do about them."""

import enum
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from quadrat.support.arrays import fast_form
from quadrat.support.tensors import is_tensor


class Role(enum.Enum):
    """The role of a column for a collator."""

    TOKENS = "token ids"
    MARKS = "one number per token"
    WORDS = "which word each token belongs to"
    TOKEN_LABELS = "one label per token"
    FLAT = "one number per token of a flattened row"
    TARGETS = "token ids with lengths of their own"
    NUMBER = "one number per example"
    SIZES = "lengths of documents"
    CHOICE = "the number of the right choice"
    LABEL = "a label per row, or a column with the name of one"
    OTHER = "anything that stacks"


# The roles that need rows, and what to say of a single number.
_NOT_A_ROW = {
    Role.TOKENS: "not a row of token ids; for a row of one token give a list",
    Role.MARKS: "not one number per token; remove the column",
    Role.TOKEN_LABELS: "not one label per token; for one label per row use DataCollatorWithPadding",
    Role.FLAT: "not one number per token; for one label per row use DataCollatorWithFlattening(scalar_labels=True)",
    Role.TARGETS: "not a row of token ids; for one label per row use DataCollatorWithPadding",
    Role.SIZES: "not the lengths of the row's documents; give a list of them",
}
_NONE = {
    Role.TOKENS: "give the row its token ids, or leave it out",
    Role.NUMBER: "give every example a number",
    Role.SIZES: "give the row the lengths of its documents",
    Role.CHOICE: f"give {Role.CHOICE.value}; any number will do where you do not need it",
}
_GAP = dict.fromkeys((Role.TOKEN_LABELS, Role.FLAT, Role.TARGETS), "give -100 where there is no label")
_TEXT = {
    Role.TOKENS: "tokenize it: tokenizer(text)['input_ids']",
    Role.TARGETS: "tokenize it: tokenizer(text_target=text)['input_ids']",
}
_GIVE = "give every row a value, or remove the column"
_WORD = dict.fromkeys(_TEXT, "give token ids: tokenizer.convert_tokens_to_ids(row)")
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


def broken(column: Column) -> Iterator[str]:
    """Values that make the reference fail."""
    if all(value is None for value in column.values) and column.role not in _NONE:
        yield f"column '{column.name}' is None in every row; {_removal(column)}"
    for row, value in enumerate(column.values):
        yield from (problem for certain, problem in _problems(column, column.place(row), value) if certain)


def doubtful(column: Column) -> Iterator[str]:
    """Values that make some collators fail."""
    for row, value in enumerate(column.values):
        yield from (problem for certain, problem in _problems(column, column.place(row), value) if not certain)


def _problems(column: Column, where: str, value: Any, inside: bool = False) -> Iterator[tuple[bool, str]]:
    """The error of a value, and whether it makes the reference fail in any case. inside: it is in a row."""
    given = _Value(column, value, inside)
    problem = next((one for one in _PROBLEMS if column.role in one.roles and one.is_of(given)), None)
    if problem is not None:
        text = problem.text(given)
        yield from () if text is None else [(problem.is_certain, f"{where} {text}")]
    elif given.is_list and not _is_good(value, column.role):
        gaps = column.name == "word_ids"  # special tokens are of no word
        for position, element in ((p, one) for p, one in enumerate(value) if not gaps or one is not None):
            yield from _problems(column, f"{where}, position {position}", element, inside=True)


class _Value(NamedTuple):
    column: Column
    value: Any
    inside: bool

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, (list, tuple))

    @property
    def size(self) -> int:
        return dimensions(self.value) or 0

    @property
    def is_number(self) -> bool:
        return dimensions(self.value) == 0

    @property
    def dtype(self) -> str:
        return str(getattr(self.value, "dtype", "")).removeprefix("torch.")


class _Problem(NamedTuple):
    roles: Container[Role]
    is_of: Callable[[_Value], bool]
    text: Callable[[_Value], str | None]  # None: there is no problem after all
    is_certain: bool = True  # whether the reference fails in any case


def _text_of_none(given: _Value) -> str:
    role = given.column.role
    if given.inside:
        return f"is None; {_GAP.get(role, 'give a number there, or leave the row out')}"
    return f"is None; {_NONE.get(role, _GIVE)}"


def _text_of_float(given: _Value) -> str:
    are, one = ("token ids", "token") if given.column.role is Role.TOKENS else ("labels", "label")
    return f"is the float {given.value}, and {are} are ints; give [int({one}) for {one} in row]"


def _text_of_float_tokens(given: _Value) -> str:
    to_ints = "row.long()" if is_tensor(given.value) else "row.astype('int64')"
    return f"holds {given.dtype} numbers, and token ids are ints; give {to_ints}"


def _text_of_another_type(given: _Value) -> str | None:
    column, value = given.column, given.value
    is_kind, unknown = f"is {kind_of(value)},", dimensions(value) is None
    if column.role in (Role.LABEL, Role.CHOICE) and given.is_number and value != value:  # noqa: PLR0124 - NaN
        return f"{is_kind} NaN, which `datasets` makes of null in this format; {_NONE.get(column.role, _GIVE)}"
    if not given.inside and (unknown or column.role in _NOT_A_ROW) and (form := fast_form(value)) is not None:
        return f"{is_kind} not a list, array or tensor of numbers; give {form}"
    return f"{is_kind} which no tensor can hold; {_removal(column)}" if unknown else None


def _is_nested(given: _Value) -> bool:
    # The reference stacks attention masks of more dimensions.
    return not given.inside and given.size > 1 and (given.is_list or given.column.name != "attention_mask")


_ALL = frozenset(Role)
# The first that a value has is told.
_PROBLEMS = (
    _Problem(_ALL, lambda given: given.value is None, _text_of_none),
    _Problem(
        _ALL,
        lambda given: isinstance(given.value, (str, bytes)),
        lambda given: (
            f"is {kind_of(given.value)}, which no tensor can hold; {_instead_of_text(given.column, given.inside)}"
        ),
    ),
    _Problem(
        _NOT_A_ROW,
        lambda given: given.is_number and not given.inside,
        lambda given: f"is the number {shown(given.value)}, {_NOT_A_ROW[given.column.role]}",
    ),
    _Problem(
        _NOT_A_ROW,
        lambda given: given.is_list and given.inside,
        lambda given: f"is {kind_of(given.value)} where a number is expected; give one flat row of numbers",
    ),
    _Problem(_NOT_A_ROW, _is_nested, lambda given: _nested(given.value)),
    _Problem({Role.TOKENS}, lambda given: "float" in given.dtype, _text_of_float_tokens, is_certain=False),
    _Problem({Role.TOKENS, Role.FLAT}, lambda given: isinstance(given.value, float), _text_of_float, is_certain=False),
    _Problem(
        _ALL,
        lambda given: isinstance(given.value, int) and not _fits_int64(given.value),
        lambda given: f"is {shown(given.value)}, beyond int64; give a number from -2**63 to 2**63 - 1",
    ),
    _Problem(_ALL, lambda given: not given.is_list, _text_of_another_type, is_certain=False),
)


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
    found = "is a row inside a list, like the result of tokenizer([text]); tokenize one text at a time, tokenizer(text)"
    if not isinstance(value, (list, tuple)):
        made = f"has shape {tuple(value.shape)}, like the result of tokenizer(text, return_tensors=...)"
        found = f"{made}; tokenize without return_tensors"
    return f"{found}, or take the row out in every column: value[0]"


def _removal(column: Column) -> str:
    return (
        f"remove the column before collating: dataset.remove_columns('{column.name}'), of a Trainer "
        "TrainingArguments(remove_unused_columns=True), of a BatchedDataset or PackedDataset columns=[...] without it"
    )


def _instead_of_text(column: Column, inside: bool) -> str:
    if column.role is Role.CHOICE:
        return "give the number of the right choice, counted from 0"
    if column.role in (Role.NUMBER, Role.SIZES):
        return "give numbers"
    if column.role not in _LABELS:
        return (_WORD if inside else _TEXT).get(column.role) or _removal(column)
    # A batch may lack a class: names are taken from the whole dataset.
    name = column.name
    if inside:
        every = f"{{label for row in dataset for label in row['{name}']}}"
        return f"number the labels of the whole dataset: names = sorted({every}), then names.index(label) for each"
    return (
        f"number the labels of the whole dataset: dataset.class_encode_column('{name}') of a datasets.Dataset; of "
        f"others names = sorted({{row['{name}'] for row in dataset}}), then names.index(row['{name}'])"
    )
