"""One pass over the columns that a collator reads: what is missing, broken, uneven, mixed or empty."""

import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quadrat.input.rows import MAIN
from quadrat.installed.imitated import imitation_of
from quadrat.planning.diagnosis import options
from quadrat.planning.diagnosis.values import (
    CERTAIN,
    DOUBTFUL,
    LEAST,
    UNEVEN,
    Column,
    Finding,
    Role,
    Shape,
    dimensions,
    kind_of,
    length_of,
    shape_of,
    wrong_value,
)
from quadrat.support.tensors import is_tensor

_MARKS = ("attention_mask", "token_type_ids", "special_tokens_mask")
_LABELS = ("label", "labels", "label_ids")
_WORDS = ("offset_mapping", "word_ids")
_PADDED = (Role.TOKENS, Role.MARKS, Role.TOKEN_LABELS, Role.TARGETS)
_PADS = ("padded", "choices")  # forms of batches that the tokenizer pads
_STACKED = (Role.LABEL, Role.OTHER, Role.NUMBER)

Rows = Mapping[str, Sequence[Any]]  # those of a batch, by column
Roles = Mapping[str, Role]


def first_problem(features: Sequence[Any], collator: Any) -> str | None:
    """The first of the surest problems of a list of features, or None."""
    best: Finding | None = None
    for finding in _problems(features, collator):
        if best is None or finding[0] < best[0]:
            best = finding
        if best[0] == CERTAIN:  # it may keep the rest from being looked at
            break
    return None if best is None else best[1]


def _problems(features: Sequence[Any], collator: Any) -> Iterator[Finding]:
    form = "roles" if hasattr(collator, "_roles") else imitation_of(collator).form
    bare = not isinstance(features[0], Mapping) and getattr(collator, "_takes_bare_rows", False)
    yield from _certain(options.not_rows(features, bare))
    if bare:
        features, form = [{"": feature} for feature in features], "bare"
    joined = getattr(collator, "join_columns", None) or ()  # rows may lack these
    features = [{name: value for name, value in feature.items() if name not in joined} for feature in features]
    roles = collator._roles(features) if form == "roles" else _ROLES[form](collator, features[0])
    yield from _certain(options.missing(features, roles, getattr(collator, "_instead", None)))
    rows, choices = {name: [feature[name] for feature in features] for name in roles}, 0
    if form == "choices":
        choices = length_of(rows[MAIN][0]) or 0
        yield from _choices(roles, rows, choices)
    columns = []
    for name, role in roles.items():
        if_uneven = _if_uneven(collator, form, name, role, rows)
        columns.append(Column(name, rows[name], role, 0 if role is Role.CHOICE else choices, if_uneven))
    lists = (column for column in columns if column.role is Role.TOKENS and isinstance(column.values[0], list))
    tokens = next(lists, columns[0])  # whose lengths and types the other columns follow
    lengths = [length_of(value) or 0 for value in tokens.values]
    if form in _PADS or (form in ("masked", "bare") and len(set(lengths)) > 1):
        yield from _certain(options.cannot_pad(collator, tokens))
    if form in _PADS and getattr(collator, "whole_word_mask", False) and not features[0].keys() & {*_WORDS}:
        lacks = "no column 'offset_mapping' or 'word_ids' says where words are"
        yield CERTAIN, f"{lacks}; tokenize with return_offsets_mapping=True"
    for column in columns:
        aligned = column.role is not Role.TARGETS and (form in _PADS or getattr(collator, "padding_free", False))
        yield from _findings(column, tokens if aligned or column.role is Role.TOKENS else None)
    if hasattr(collator, "plm_probability") and (longest := max(lengths)) % 2:
        where = tokens.place(lengths.index(longest))
        width = f"{where} is the longest with {longest} tokens, and the width of the batch must be even"
        yield LEAST, f"{width}; give rows of an even length, or add a padding token to the longest"


def _certain(texts: Iterator[str]) -> Iterator[Finding]:
    return ((CERTAIN, text) for text in texts)


def _findings(column: Column, tokens: Column | None) -> Iterator[Finding]:
    """The problems in the rows of a column. tokens: the column of tokens whose lengths it has."""
    if column.role is Role.TARGETS and all(value is None for value in column.values):
        return  # as if the column was absent
    shapes, like = list(map(shape_of, column.values)), column if tokens is None else tokens
    for row, value in enumerate(column.values):
        where = column.place(row)
        yield from () if column.role is Role.WORDS else wrong_value(column, where, value)
        if tokens is not None:
            yield from _not_one_per_token(column, row, tokens)
        if column.if_uneven is not None:
            yield from _uneven(column, where, row, shapes)
        yield from _mixed(column, where, value, like)
    if column.role is Role.TOKENS and 0 in shapes[0] and not any(map(length_of, column.values)):
        yield LEAST, f"column '{column.name}' is empty in every row; leave empty rows out"


def _not_one_per_token(column: Column, row: int, tokens: Column) -> Iterator[Finding]:
    own_length, length = length_of(column.values[row]), length_of(tokens.values[row])
    is_short = column.role is Role.TOKEN_LABELS and (own_length or 0) < (length or 0)  # these are padded
    if (
        column.role in (Role.MARKS, Role.WORDS, Role.TOKEN_LABELS)
        and length is not None
        and own_length != length
        and not is_short
    ):
        has = f"{column.place(row)} has {'no length' if own_length is None else f'length {own_length}'}"
        yield UNEVEN, f"{has} where '{tokens.name}' has {length}; give {column.role.value.role}, or remove the column"


def _uneven(column: Column, where: str, row: int, shapes: Sequence[Shape]) -> Iterator[Finding]:
    if None in shapes[row]:
        yield UNEVEN, f"{where} holds rows of different lengths; {column.if_uneven}"
    if shapes[row] != shapes[0]:
        rows = ", ".join(f"{column.row_in_words(other)} {_has(shapes[other])}" for other in (0, row))
        yield UNEVEN, f"column '{column.name}' is ragged and not padded here: {rows}; {column.if_uneven}"


def _has(shape: Shape) -> str:
    if not shape:
        return "is one number"
    return f"has length {shape[0]}" if len(shape) == 1 else f"has shape {shape}"


def _mixed(column: Column, where: str, value: Any, like: Column) -> Iterator[Finding]:
    """A value of another type than the first one of `like`."""
    first, is_tuple = like.values[0], column.role in _PADDED and isinstance(value, tuple)
    follows = like is column or column.role in (Role.TOKENS, Role.MARKS) or is_tensor(value)
    differs = follows and column.role is not Role.TOKEN_LABELS and _type(value) is not _type(first)
    if is_tuple or (differs and None not in (dimensions(value), dimensions(first))):
        of = "row 0" if like.name == column.name else f"'{like.name}'"
        expected = "a list is expected" if is_tuple else f"{of} is {kind_of(first)}"
        give = "value.tolist()" if hasattr(value, "tolist") else "list(value)"
        yield DOUBTFUL, f"{where} is {kind_of(value)} where {expected}; give lists in every row, for example {give}"


def _type(value: Any) -> type:
    return next((kind for kind in (tuple, list, numbers.Real) if isinstance(value, kind)), type(value))


def _choices(roles: Roles, rows: dict[str, list[Any]], count: int) -> Iterator[Finding]:
    """Examples that do not have one row per choice. Makes rows of choices of them if they have."""
    for name in (name for name, role in roles.items() if role is not Role.CHOICE):
        for row, value in enumerate(rows[name]):
            where = f"column '{name}', row {row}"
            if not hasattr(value, "__getitem__") or isinstance(value, (str, Mapping)):
                instead = "tokenize each choice" if name == MAIN else "remove the column, or give it one"
                yield CERTAIN, f"{where} is {kind_of(value)}, not a list of one row per choice; {instead}"
            elif len(value) < max(count, 1):
                has = f"{where} has {len(value)} choices where '{MAIN}' of row 0 has {count}"
                yield CERTAIN, f"{has}; give every example the same number of choices, and at least one"
        rows[name] = [value[choice] for value in rows[name] for choice in range(count)]


def _stacked(collator: Any, first: Mapping[str, Any]) -> Roles:
    # What is None or a string in the first row is left out, unless it is the label, which comes first.
    label = next((name for name in ("label", "label_ids") if first.get(name) is not None), None)
    names = [name for name, value in first.items() if name == label or not isinstance(value, (str, type(None)))]
    flat = (dimensions(first.get(MAIN)) or 0) < 2  # others can be stacked
    roles = {MAIN: Role.TOKENS if flat else Role.OTHER, **dict.fromkeys(_LABELS, Role.LABEL)}
    return {name: roles.get(name, Role.OTHER) for name in sorted(names, key=lambda name: name != label)}


def _joined(collator: Any, first: Mapping[str, Any]) -> Roles:
    roles = dict.fromkeys(getattr(collator, "pad_values", None) or (), Role.MARKS)
    if hasattr(collator, "tokenizer"):  # without padding
        roles |= {**dict.fromkeys(_MARKS[1:], Role.MARKS), "label": Role.FLAT}
    if not getattr(collator, "scalar_labels", False):
        roles["labels"] = Role.FLAT
    roles[MAIN] = Role.TOKENS
    return {name: roles[name] for name in (MAIN, *first) if name in roles}


def _padded(collator: Any, first: Mapping[str, Any]) -> Roles:
    inputs, labels = collator.tokenizer.model_input_names, imitation_of(collator).labels or Role.LABEL
    roles = {name: Role.MARKS for name in _MARKS if name != "attention_mask" or name in inputs}
    roles |= dict.fromkeys(_LABELS, Role.LABEL if labels in _PADDED else labels)
    roles |= {"label" if "label" in first else "labels": labels, inputs[0]: Role.TOKENS}
    roles |= dict.fromkeys(_WORDS if getattr(collator, "whole_word_mask", False) else (), Role.WORDS)
    return {name: roles.get(name, Role.OTHER) for name in (inputs[0], *first)}


def _of_choices(collator: Any, first: Mapping[str, Any]) -> Roles:
    label = "labels" if "labels" in first and "label" not in first else "label"
    return {**_padded(collator, first), label: Role.CHOICE}


# By the form of batches: the columns that a collator reads, given the first row, and their roles.
_ROLES: dict[str, Callable[[Any, Mapping[str, Any]], Roles]] = {
    "padded": _padded,
    "stacked": _stacked,
    "joined": _joined,
    "choices": _of_choices,
    "masked": lambda collator, first: {MAIN: Role.TOKENS},
    "bare": lambda collator, first: {"": Role.TOKENS},
}


def _if_uneven(collator: Any, form: str, name: str, role: Role, rows: Rows) -> str | None:
    """The remedy for a column whose rows differ in shape; None where they may differ."""
    if role is Role.CHOICE:
        return "give the number of the right choice"
    if role in (Role.TOKENS, Role.TARGETS) and form in _PADS:
        return None if options.pads(collator) else "use padding=True"
    if name in (getattr(collator, "pad_values", None) or ()):
        return None
    return _to_stack(collator, form, name, rows) if form == "stacked" or role in _STACKED else None


def _to_stack(collator: Any, form: str, name: str, rows: Rows) -> str:
    padding, extends = _padding_collator(name, rows), "pad_values" in vars(collator)
    shapes = [shape_of(value) for value in rows[name]]
    if name in (MAIN, *_MARKS):
        if form != "stacked":
            return "add it to tokenizer.model_input_names, which does not list it, or remove the column"
        use = f"use {padding or 'DataCollatorWithPadding'}(tokenizer), which pads"
        is_flat = all(len(shape) == 1 for shape in shapes)
        return use if is_flat else f"tokenize without return_tensors, or make a feature of each of its rows, and {use}"
    can_pad = len({shape[1:] for shape in shapes}) == 1 and all(shape and None not in shape for shape in shapes)
    if not can_pad or not (extends or (padding and form == "stacked")):
        return "give all rows one shape, or remove it"
    if name in _LABELS and imitation_of(collator).labels is Role.OTHER:
        return f"{type(collator).__name__} makes labels of its own: remove the column"
    if name in _LABELS and padding:
        or_here = f", or give pad_values={{'{name}': -100}}" if extends else ""
        return f"use {padding}(tokenizer), which pads it with -100{or_here}"
    extra = f"pad_values={{'{name}': 0}}"
    return f"{f'give {extra}' if extends else f'use {padding}(tokenizer, {extra})'}, or remove it"


def _padding_collator(name: str, rows: Rows) -> str | None:
    """The collator that pads a column beside the tokens; None without these."""
    if MAIN not in rows:
        return None
    labels = (label for label in (name, *_LABELS) if label in _LABELS and label in rows)
    label = next((label for label in labels if any(dimensions(row) == 1 for row in rows[label])), None)
    if label is None:
        return "DataCollatorWithPadding"
    aligned = list(map(length_of, rows[label])) == list(map(length_of, rows[MAIN]))
    return "DataCollatorForTokenClassification" if aligned else "DataCollatorForSeq2Seq"
