"""How each collator uses its features, and the errors that follow."""

import itertools
import math
import numbers
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from quadrat.input.rows import MAIN
from quadrat.installed.imitated import imitation_of
from quadrat.planning.diagnosis import options
from quadrat.planning.diagnosis.options import missing, not_mappings, not_rows
from quadrat.planning.diagnosis.values import Column, Role, broken, dimensions, doubtful, kind_of, length_of, shown
from quadrat.support.tensors import is_tensor

_MARKS = ("attention_mask", "token_type_ids", "special_tokens_mask")
_WORDS = ("offset_mapping", "word_ids")
_LABELS = ("label", "labels", "label_ids")
_PADDED = (Role.TOKENS, Role.MARKS)
_FOLLOW_TOKENS = (Role.TOKEN_LABELS, Role.TARGETS)  # labels that are padded

_ONE_PER_TOKEN = {
    Role.MARKS: "one number per token, or remove the column",
    Role.WORDS: "one entry per token, for example those of tokenizer(text)",
}

Shape = tuple[int | None, ...]


def problems(features: Sequence[Any], collator: Any) -> Iterator[str]:
    """Those of a list of features, by the kind of collator."""
    if not isinstance(features[0], Mapping) and getattr(collator, "_takes_bare_rows", False):
        yield from not_rows(features)
        yield from _masked(collator, Column("", features, Role.TOKENS))
        return
    yield from not_mappings(features)
    if joined := getattr(collator, "join_columns", None):  # rows may lack these
        features = [{name: value for name, value in one.items() if name not in joined} for one in features]
    if hasattr(collator, "_roles"):
        yield from of_roles(features, collator._roles(features), collator)
    else:
        yield from _FORMS[imitation_of(collator).form](collator, features)


def _of_masked(collator: Any, features: Sequence[Any]) -> Iterator[str]:
    yield from _no_tokens(MAIN, features, "whose tokens are masked")
    yield from missing(features, [MAIN])
    yield from _masked(collator, Column(MAIN, [feature[MAIN] for feature in features], Role.TOKENS))


def _of_padded(collator: Any, features: Sequence[Any]) -> Iterator[str]:
    yield from _no_tokens(collator.tokenizer.model_input_names[0], features, "which the tokenizer pads")
    yield from missing(features, features[0])
    yield from _padded(collator, {name: [feature[name] for feature in features] for name in features[0]})


def of_roles(features: Sequence[Any], roles: Mapping[str, Role], collator: Any = None) -> Iterator[str]:
    """Problems of columns that play these roles."""
    yield from missing(features, roles, getattr(collator, "_instead", "give the row that column"))
    columns = [Column(name, [feature[name] for feature in features], role) for name, role in roles.items()]
    for column in columns:
        yield from broken(column)
        if column.role is Role.TOKENS and getattr(collator, "_joins_lists", False):
            yield from _not_lists(column, object)
    for column in columns:
        if column.role in (Role.NUMBER, Role.OTHER, Role.LABEL):
            yield from _uneven(column, "give all rows one shape")
        if column.role is Role.OTHER:
            yield from _not_lists(column, object)
        if column.role is Role.TOKENS:
            yield from _all_empty(column)
        if column.role is Role.SIZES:
            yield from _wrong_sizes(column, columns[0])
        yield from doubtful(column)
        yield from _mixed(column, column)
    if getattr(collator, "padding_free", False):
        yield from _not_one_per_token(columns, columns[0])


def _padded(collator: Any, rows: dict[str, list[Any]], choices: int = 0) -> Iterator[str]:
    main, pads = collator.tokenizer.model_input_names[0], options.pads(collator)
    columns = [Column(name, values, _role(collator, name, main, rows), choices) for name, values in rows.items()]
    tokens = next(column for column in columns if column.role is Role.TOKENS)
    targets = [column for column in columns if column.role is Role.TARGETS]
    extra = {*(getattr(collator, "pad_values", None) or ()), "word_ids"}  # which the reference does not pad
    if getattr(collator, "whole_word_mask", False) and not any(column.role is Role.WORDS for column in columns):
        yield "no column 'offset_mapping' or 'word_ids' says where words are; tokenize with return_offsets_mapping=True"
    if pads:
        even = len(set(map(length_of, tokens.values))) == 1 and hasattr(collator, "padding")
        yield from options.lacks_token(collator.tokenizer, "pad_token", ", or use padding=False" if even else "")
        side = getattr(collator.tokenizer, "padding_side", "right")
        if side not in ("right", "left"):
            yield f"padding_side is {shown(side)}; set tokenizer.padding_side to 'right' or 'left'"
    yield from options.beyond_max_length(collator, tokens, "tokens")
    for column in columns:
        if column not in targets or any(value is not None for value in column.values):
            yield from broken(column)
    yield from options.not_in_numpy(collator, (column for column in columns if column.role not in _PADDED))
    for column in targets:
        yield from _targets(collator, column)
    yield from _not_one_per_token(columns, tokens)
    for column in columns:
        if column.role in (Role.WORDS, Role.LABEL, Role.OTHER) and column.name not in extra:
            yield from _uneven(column, _not_padded(collator, column, rows) or _to_stack(collator, column, rows))
    if not pads:
        yield from _uneven(tokens, "use padding=True")
    for column in columns:
        if column.role not in (Role.TARGETS, Role.TOKEN_LABELS):
            yield from _mixed(column, tokens)
        yield from doubtful(column)
    padded = (column for column in columns if column.role in (*_PADDED, Role.TOKEN_LABELS, Role.TARGETS))
    yield from itertools.chain.from_iterable(_not_lists(column, tuple) for column in padded)


def _role(collator: Any, name: str, main: str, names: Collection[str]) -> Role:
    if name == main:
        return Role.TOKENS
    asked = getattr(getattr(collator, "_options", None), "return_attention_mask", None)
    pads_mask = "attention_mask" in collator.tokenizer.model_input_names if asked is None else asked
    if name in _MARKS and (name != "attention_mask" or pads_mask):
        return Role.MARKS
    if name in _WORDS and getattr(collator, "whole_word_mask", False):
        return Role.WORDS
    labels = imitation_of(collator).labels
    if labels in _FOLLOW_TOKENS:
        labels = labels if name == ("label" if "label" in names else "labels") else Role.LABEL
    return (labels or Role.LABEL) if name in _LABELS else Role.OTHER


def _mixed(column: Column, like: Column) -> Iterator[str]:
    """Values of other types than the first one of `like`, or of the column itself."""
    first = like.values[0]
    of = "row 0" if like.name == column.name else f"'{like.name}'"
    for row, value in enumerate(column.values):
        alike = _form(value) == _form(first) or None in (dimensions(value), dimensions(first))
        if not alike and (like is column or column.role in _PADDED or is_tensor(value)):
            yield (
                f"{column.place(row)} is {kind_of(value)} where {of} is {kind_of(first)}; give lists in every row, for "
                "example value.tolist()"
            )


def _form(value: Any) -> type:
    return next((kind for kind in (tuple, list, numbers.Real) if isinstance(value, kind)), type(value))


def _not_lists(column: Column, kind: type) -> Iterator[str]:
    for row, value in enumerate(column.values):
        if isinstance(value, kind) and not isinstance(value, list):
            give = "value.tolist()" if hasattr(value, "tolist") else "list(value)"
            yield f"{column.place(row)} is {kind_of(value)} where a list is expected; give {give}"


def _no_tokens(main: str, features: Sequence[Mapping[str, Any]], why: str) -> Iterator[str]:
    first = features[0]
    if main in first:
        return
    if any(main in feature for feature in features):
        yield from missing(features, [main], "give the row its token ids, or leave it out")
    text = next((name for name, value in first.items() if isinstance(value, str)), None)
    remedy = f"tokenize the texts: tokenizer(row['{text}'])" if text is not None else "tokenize the texts"
    yield (
        f"no column '{main}', {why}; the features have {shown(list(first))}: {remedy}, and if Trainer removed it, give "
        "TrainingArguments(remove_unused_columns=False)"
    )


def _targets(collator: Any, column: Column) -> Iterator[str]:
    if isinstance(column.values[0], list):
        yield from _mixed(column, column)
    if not options.pads(collator):
        yield from _uneven(column, "use padding=True")
    yield from options.beyond_max_length(collator, column, "labels")


def _stacked(collator: Any, features: Sequence[Any]) -> Iterator[str]:
    """`default_data_collator`: what is None or a string in the first row is left out, unless it is the label."""
    yield from missing(features, features[0])
    rows = {name: [feature[name] for feature in features] for name in features[0]}
    label = next((name for name in ("label", "label_ids") if name in rows and rows[name][0] is not None), None)
    columns = [
        Column(name, values, _stacked_role(name, values))
        for name, values in rows.items()
        if name == label or not isinstance(values[0], (str, type(None)))
    ]
    columns.sort(key=lambda column: column.name != label)  # the reference makes labels first
    yield from options.not_in_numpy(collator, columns)
    for column in columns:
        yield from broken(column)
        yield from _uneven(column, _to_stack(collator, column, rows))
    for column in columns:
        if column.name == label:
            yield from _not_a_label(column)
        yield from _mixed(column, column)
        yield from doubtful(column)


def _not_a_label(column: Column) -> Iterator[str]:
    """`label` must be one number per row, and `label_ids` a row of them."""
    for row, value in enumerate(column.values):
        if column.name == "label" and math.prod(getattr(value, "shape", ())) != 1:
            yield f"{column.place(row)} holds {len(value)} numbers, not one; name the column 'labels'"
        if column.name == "label_ids" and dimensions(value) == 0 and not is_tensor(value):
            yield f"{column.place(row)} is the number {shown(value)}, not a row of labels; name the column 'label'"


def _stacked_role(name: str, values: Sequence[Any]) -> Role:
    if name == MAIN and all((dimensions(value) or 0) < 2 for value in values):
        return Role.TOKENS
    return Role.LABEL if name in _LABELS else Role.OTHER


def _choices(collator: Any, examples: Sequence[Any]) -> Iterator[str]:
    yield from _no_tokens(MAIN, examples, "whose rows are the choices")
    yield from missing(examples, examples[0])
    columns = list(examples[0])
    label = "label" if "label" in columns else "labels"
    if label not in columns:
        lacks = f"the features have {shown(columns)}"
        yield from missing(examples, [name for name in ("label", "labels") if any(name in one for one in examples)])
        yield f"no column 'label' or 'labels', the number of the right choice; {lacks}: add it; any number will do"
    count = length_of(examples[0][MAIN]) or 0
    for row, example in enumerate(examples):
        for column, value in example.items():
            where = f"column '{column}', row {row}"
            if column == label:
                if dimensions(value) != 0 and not isinstance(value, (str, NoneType)):
                    yield f"{where} is {kind_of(value)}; give the number of the right choice"
            elif not hasattr(value, "__getitem__") or isinstance(value, (str, Mapping)):
                instead = "tokenize each choice" if column == MAIN else "remove the column, or give it one"
                yield f"{where} is {kind_of(value)}, not a list of one row per choice; {instead}"
            elif len(value) < max(count, 1):
                yield (
                    f"{where} has {len(value)} choices where '{MAIN}' of row 0 has {count}; give every example the "
                    "same number of choices, and at least one"
                )
    right = Column(label, [example[label] for example in examples], Role.CHOICE)
    yield from broken(right)
    yield from doubtful(right)
    columns.remove(label)
    choices = {name: [example[name][choice] for example in examples for choice in range(count)] for name in columns}
    yield from _padded(collator, choices, count)


def _flattened(collator: Any, features: Sequence[Any]) -> Iterator[str]:
    yield from _no_tokens(MAIN, features, "which is flattened")
    shifted = not hasattr(collator, "tokenizer")
    labels = ("label", "labels")[shifted:] if not getattr(collator, "scalar_labels", False) else ()
    marks = (*(() if shifted else _MARKS[1:]), *(getattr(collator, "pad_values", None) or ()))
    names = [MAIN, *(name for name in features[0] if name in (*labels, *marks))]
    yield from missing(features, names)
    for name in names:
        values = [feature[name] for feature in features]
        if shifted and name == "labels":  # a row's first label is left out
            values = [[0, *value[1:]] if isinstance(value, list) and value else value for value in values]
        column = Column(name, values, {MAIN: Role.TOKENS}.get(name, Role.MARKS if name in marks else Role.FLAT))
        yield from broken(column)
        yield from _not_lists(column, tuple)
        yield from doubtful(column)
    yield from _all_empty(Column(MAIN, [feature[MAIN] for feature in features], Role.TOKENS))


def _masked(collator: Any, column: Column) -> Iterator[str]:
    yield from broken(column)
    if len(set(map(length_of, column.values))) > 1:
        yield from options.lacks_token(collator.tokenizer, "pad_token")
    yield from _mixed(column, column)
    yield from doubtful(column)
    if hasattr(collator, "plm_probability"):
        yield from options.lacks_token(collator.tokenizer, "mask_token")
        yield from options.lacks_token(collator.tokenizer, "pad_token")
        yield from _odd(column)


def _odd(column: Column) -> Iterator[str]:
    lengths = [length_of(row) or 0 for row in column.values]
    if 0 in lengths:
        yield f"{column.place(lengths.index(0))} is empty; remove it"
    longest = max(lengths)
    if longest % 2:
        yield (
            f"{column.place(lengths.index(longest))} is the longest with {longest} tokens, and the width of the batch "
            "must be even; give rows of an even length, or add a padding token to the longest"
        )


def shape_of(value: Any) -> Shape:
    """Lengths by dimension; None where rows inside differ."""
    if isinstance(value, (list, tuple)):
        if not value or (not isinstance(value[0], (list, tuple)) and not hasattr(value[0], "ndim")):
            return (len(value),)
        inner = {shape_of(row) for row in value}
        return (len(value), *(inner.pop() if len(inner) == 1 else (None,)))
    return tuple(value.shape) if hasattr(value, "shape") else ()


def _uneven(column: Column, remedy: str) -> Iterator[str]:
    shapes = [shape_of(value) for value in column.values]
    first = shapes[0]
    for row, shape in enumerate(shapes):
        if None in shape:
            yield f"{column.place(row)} holds rows of different lengths; {remedy}"
        if shape != first:
            yield (
                f"column '{column.name}' is ragged and not padded here: {column.row_in_words(0)} {_has(first)}, "
                f"{column.row_in_words(row)} {_has(shape)}; {remedy}"
            )


def _has(shape: Shape) -> str:
    if not shape:
        return "is one number"
    return f"has length {shape[0]}" if len(shape) == 1 else f"has shape {shape}"


def _to_stack(collator: Any, column: Column, rows: Mapping[str, Sequence[Any]]) -> str:
    """The remedy for a column that does not stack. rows: all columns of the batch."""
    name, flat = column.name, all(dimensions(value) == 1 for value in column.values)
    padding, extends = _padding_collator(rows), "pad_values" in vars(collator)
    shapes = [shape_of(value) for value in column.values]
    pads = len({shape[1:] for shape in shapes}) == 1 and all(shape and None not in shape for shape in shapes)
    use = f"use {padding or 'DataCollatorWithPadding'}(tokenizer), which pads"
    if name in (MAIN, *_MARKS):
        if flat:
            return f"{use}, or pad while tokenizing: padding='max_length'"
        return f"tokenize without return_tensors, or make a feature of each of its rows, and {use}"
    if not pads or not (extends or (padding is not None and not hasattr(collator, "tokenizer"))):
        return "give all rows one shape, or remove it"
    if name in _LABELS and padding is not None:
        use = f"use {_padding_collator({**rows, 'labels': column.values})}(tokenizer), which pads it with -100"
        if imitation_of(collator).labels is Role.OTHER:
            return f"{type(collator).__name__} makes labels of its own: remove the column, or, to keep it, {use}"
        return f"{use}, or give pad_values={{'{name}': -100}}" if extends else use
    extra = f"pad_values={{'{name}': 0}}"
    return f"{f'give {extra}' if extends else f'use {padding}(tokenizer, {extra})'}, or remove it"


def _not_padded(collator: Any, column: Column, rows: Mapping[str, Sequence[Any]]) -> str | None:
    if column.name == "attention_mask":
        return "add it to tokenizer.model_input_names, which does not list it, or remove the column"
    if column.name == "labels" and "label" in rows and imitation_of(collator).labels in _FOLLOW_TOKENS:
        return "'label' has the labels: remove one of the two columns"
    return None


def _padding_collator(rows: Mapping[str, Sequence[Any]]) -> str | None:
    """The collator that pads these columns; None without tokens."""
    if MAIN not in rows:
        return None
    label = next((name for name in _LABELS if name in rows and any(dimensions(row) == 1 for row in rows[name])), None)
    if label is None:
        return "DataCollatorWithPadding"
    aligned = list(map(length_of, rows[label])) == list(map(length_of, rows[MAIN]))
    return "DataCollatorForTokenClassification" if aligned else "DataCollatorForSeq2Seq"


def _all_empty(column: Column) -> Iterator[str]:
    if set(map(length_of, column.values)) == {0}:
        yield f"column '{column.name}' is empty in every row; leave empty rows out"


def _wrong_sizes(sizes: Column, tokens: Column) -> Iterator[str]:
    for row, (value, ids) in enumerate(zip(sizes.values, tokens.values, strict=True)):
        if sum(value) != length_of(ids):
            found = f"{sizes.place(row)} adds up to {sum(value)} where '{tokens.name}' has length {length_of(ids)}"
            yield f"{found}; give the row the lengths of its documents"


def _not_one_per_token(columns: Sequence[Column], tokens: Column) -> Iterator[str]:
    expected = list(map(length_of, tokens.values))
    for column in columns:
        for row, (value, length) in enumerate(zip(column.values, expected, strict=True)):
            found = length_of(value)
            where = column.place(row)
            if column.role is Role.TOKEN_LABELS and found is not None and length is not None and found > length:
                yield f"{where} has {found} labels for the {length} tokens of '{tokens.name}'; give one label per token"
            if column.role in _ONE_PER_TOKEN and length is not None and found != length:
                has = "no length" if found is None else f"length {found}"
                yield f"{where} has {has} where '{tokens.name}' has {length}; give {_ONE_PER_TOKEN[column.role]}"


_FORMS = {
    "padded": _of_padded,
    "stacked": _stacked,
    "joined": _flattened,
    "masked": _of_masked,
    "choices": _choices,
}
