"""What is wrong with a batch, in words: column, row, lengths, and what to do. Runs only after an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quadrat.collators import originals

_INT64 = range(-(2**63), 2**63)
_PADDED = ("attention_mask", "token_type_ids", "special_tokens_mask")


def diagnose(features: Any, collator: Any) -> str | None:
    """The first problem found in `features` or the collator's options, or None."""
    if not isinstance(features, (list, tuple)):
        return None
    try:
        return next(_problems(features, collator), None)
    except Exception:  # a feature that fails to be looked at: the reference's error stands alone
        return None


def _problems(features: Sequence[Any], collator: Any) -> Iterator[str]:
    if not features:
        yield "the batch is empty: features has no rows; skip empty batches before they reach the collator"
        return
    if hasattr(collator, "plm_probability"):
        yield from _permuted(collator, features)
    elif isinstance(features[0], Mapping):
        yield from _of_mappings(features, collator)
    elif hasattr(collator, "mlm_probability"):
        yield from _bare_rows(collator, features)
    else:
        yield f"row 0 is {_name(features[0])}, not a mapping of column names to values"


def _of_mappings(features: Sequence[Any], collator: Any) -> Iterator[str]:
    first = features[0]
    columns = list(first.keys())
    if getattr(collator, "padding_free", hasattr(collator, "separator_id")):
        yield from _not_flattened(collator, features, columns)
        return
    yield from _missing(features, columns)
    tokenizer = getattr(collator, "tokenizer", None)
    if tokenizer is None:
        for column in columns:
            yield from _not_stackable(column, [feature[column] for feature in features])
        return
    if isinstance(collator, originals.DataCollatorForMultipleChoice):
        yield from _choices(collator, features, columns)
        return
    if isinstance(collator, originals.DataCollatorForSeq2Seq):
        label = "label" if "label" in columns else "labels"
        columns = [column for column in columns if column != label]
        yield from _padded_rows(collator, tokenizer, features, columns)
        if label in features[0]:
            yield from _targets(collator, label, [feature[label] for feature in features])
        return
    yield from _padded_rows(collator, tokenizer, features, columns)


def _bare_rows(collator: Any, rows: Sequence[Any]) -> Iterator[str]:
    """Problems of rows of token ids without a mapping around them."""
    lengths = _row_lengths(rows)
    for row, (value, length) in enumerate(zip(rows, lengths, strict=True)):
        if length is None:
            yield f"row {row} is {_name(value)}, neither a mapping nor a row of token ids"
    yield from _bad_elements("input_ids", rows)
    multiple = getattr(collator, "pad_to_multiple_of", None)
    if multiple is not None and (not isinstance(multiple, int) or multiple <= 0):
        yield f"pad_to_multiple_of is {multiple!r}; it must be a positive int or None"
    if collator.tokenizer.pad_token is None:
        for row, length in enumerate(lengths):
            if length != lengths[0]:
                yield (
                    f"row {row} has {length} tokens where row 0 has {lengths[0]}, and the tokenizer has no pad token; "
                    "set one, for example tokenizer.pad_token = tokenizer.eos_token"
                )


def _padded_rows(collator: Any, tokenizer: Any, features: Sequence[Any], columns: list[Any]) -> Iterator[str]:
    yield from _options(collator, tokenizer, features)
    main = tokenizer.model_input_names[0]
    if main not in columns:
        yield f"no column '{main}', which the tokenizer pads; the features have {columns}"
        return
    for column in columns:
        yield from _bad_elements(column, [feature[column] for feature in features])
    yield from _lengths(collator, features, columns, main)


def _not_flattened(collator: Any, features: Sequence[Any], columns: list[Any]) -> Iterator[str]:
    if "input_ids" not in columns:
        yield f"no column 'input_ids', which is flattened; the features have {columns}"
        return
    shifted = hasattr(collator, "separator_id")
    read = ("labels",) if shifted else ("label", "labels", "token_type_ids", "special_tokens_mask")
    names = ["input_ids", *(name for name in columns if name in read)]
    yield from _missing(features, names)
    for name in names:
        for row, feature in enumerate(features):
            value = feature[name]
            first = shifted and name == "labels" and isinstance(value, list)  # a row's first label is left out
            yield from _bad_elements(name, [0] * row + [[0, *value[1:]] if first else value])
            if isinstance(value, tuple):
                yield f"column '{name}', row {row} is a tuple where a list is expected"
            if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) != 1:
                yield f"column '{name}', row {row} is {_name(value)} where one number per token is expected"


def _choices(collator: Any, examples: Sequence[Any], columns: list[Any]) -> Iterator[str]:
    """Problems of examples that hold one row per choice; then those of the rows."""
    label = "label" if "label" in columns else "labels"
    nested = [column for column in columns if column != label]
    if label not in columns:
        yield f"no column 'label' or 'labels', the number of the right choice; the features have {columns}"
        return
    if "input_ids" not in columns:
        yield f"no column 'input_ids', whose rows are the choices; the features have {columns}"
        return
    for row, example in enumerate(examples):
        for column, value in example.items():  # each is indexed, those of this row only included
            if column != label and (not hasattr(value, "__getitem__") or isinstance(value, str)):
                yield f"column '{column}', row {row} is {_name(value)}, not a list of one row per choice"
    count = len(examples[0]["input_ids"])
    if count == 0:
        yield "column 'input_ids', row 0 has no choices; give every example at least one"
        return
    for row, example in enumerate(examples):
        for column, value in example.items():
            if column != label and len(value) < count:
                yield (
                    f"column '{column}', row {row} has {len(value)} choices where 'input_ids' of row 0 has {count}; "
                    "give every example the same number of choices"
                )
    yield from _bad_elements(label, [example[label] for example in examples])
    for row, example in enumerate(examples):
        if hasattr(example[label], "__len__") and getattr(example[label], "ndim", True):
            yield f"column '{label}', row {row} is {_name(example[label])}; give the number of the right choice"
    flat = [{column: example[column][i] for column in nested} for example in examples for i in range(count)]
    for problem in _padded_rows(collator, collator.tokenizer, flat, nested):
        yield f"{problem} (rows are the choices of all examples, {count} each)"


def _targets(collator: Any, label: str, values: Sequence[Any]) -> Iterator[str]:
    """Problems of labels that have lengths of their own."""
    if all(value is None for value in values):
        return
    yield from _bad_elements(label, values)
    lengths = _row_lengths(values)
    for row, (value, length) in enumerate(zip(values, lengths, strict=True)):
        if length is None:
            yield f"column '{label}', row {row} is {_name(value)}, not a row of token ids"
        if isinstance(values[0], list) and not isinstance(value, list):
            yield f"column '{label}', row {row} is {_name(value)} where row 0 is a list; give lists in every row"
    if collator.padding in (False, "do_not_pad"):
        yield from _ragged(label, lengths, "use padding=True")
    limit = collator.max_length if collator.padding == "max_length" else None
    for row, length in enumerate(lengths):
        if limit is not None and length is not None and length > limit:
            yield (
                f"column '{label}', row {row} has {length} labels, more than max_length={limit}, and a collator does "
                "not truncate; tokenize the targets with truncation=True or raise max_length"
            )


def _permuted(collator: Any, features: Sequence[Any]) -> Iterator[str]:
    """Permutation language modelling looks at the ids alone, with or without a mapping around them."""
    rows = features
    if isinstance(features[0], Mapping):
        yield from _missing(features, ["input_ids"])
        rows = [feature["input_ids"] for feature in features]
    yield from _bare_rows(collator, rows)
    tokenizer = collator.tokenizer
    for name in ("mask_token", "pad_token"):
        if getattr(tokenizer, name) is None:
            yield f"{type(tokenizer).__name__} has no {name.replace('_', ' ')}; set tokenizer.{name}"
    lengths = [length or 0 for length in _row_lengths(rows)]
    if 0 in lengths:
        yield f"row {lengths.index(0)} is empty; remove it"
    longest = max(lengths)
    if longest % 2:
        yield (
            f"row {lengths.index(longest)} is the longest with {longest} tokens, and the width of the batch must be "
            "even; give rows of an even length, or add a padding token to the longest"
        )


def _missing(features: Sequence[Any], columns: list[Any]) -> Iterator[str]:
    for row, feature in enumerate(features):
        if not isinstance(feature, Mapping):
            yield f"row {row} is {_name(feature)}, not a mapping of column names to values"
        for column in columns:
            if column not in feature:
                yield (
                    f"column '{column}' is missing in row {row}, which has {list(feature.keys())}; "
                    "the columns are those of row 0, and every row must have them"
                )


def _options(collator: Any, tokenizer: Any, features: Sequence[Any]) -> Iterator[str]:
    pads = getattr(collator, "padding", True) not in (False, "do_not_pad")
    if pads and tokenizer.pad_token is None:
        yield (
            f"{type(tokenizer).__name__} has no pad token; set one, for example "
            "tokenizer.pad_token = tokenizer.eos_token, or use padding=False for rows of equal length"
        )
    if tokenizer.padding_side not in ("right", "left"):
        yield f"padding_side is {tokenizer.padding_side!r}; set tokenizer.padding_side to 'right' or 'left'"
    multiple = getattr(collator, "pad_to_multiple_of", None)
    if multiple is not None and (not isinstance(multiple, int) or multiple <= 0):
        yield f"pad_to_multiple_of is {multiple!r}; it must be a positive int or None"
    limit = collator.max_length if getattr(collator, "padding", True) == "max_length" else None
    main = tokenizer.model_input_names[0]
    if limit is not None and main in features[0]:
        lengths = _row_lengths([feature[main] for feature in features])
        row, longest = max(enumerate(lengths), key=lambda pair: pair[1] if pair[1] is not None else -1)
        if longest is not None and longest > limit:
            yield (
                f"column '{main}', row {row} has {longest} tokens, more than max_length={limit}, and a collator does "
                "not truncate; tokenize with truncation=True or raise max_length"
            )


def _bad_elements(column: str, values: Sequence[Any]) -> Iterator[str]:
    for row, value in enumerate(values):
        if value is None:
            yield f"column '{column}', row {row} is None; drop the column or give every row a value"
        if isinstance(value, str):
            yield f"column '{column}', row {row} is a str, which no tensor holds; remove the column before collating"
        if isinstance(value, (list, tuple)):
            yield from _bad_numbers(column, row, value)
        else:
            yield from _bad_number(f"column '{column}', row {row}", value)


def _bad_numbers(column: str, row: int, value: Sequence[Any]) -> Iterator[str]:
    for position, element in enumerate(value):
        where = f"column '{column}', row {row}, position {position}"
        if isinstance(element, (list, tuple)):
            yield f"{where} is a nested {_name(element)} where a number is expected; flatten the row"
        elif element is None or isinstance(element, str):
            yield f"{where} is {element!r} where a number is expected"
        else:
            yield from _bad_number(where, element)
            if isinstance(element, float) and position > 0 and type(value[0]) is int:
                yield f"{where} is the float {element!r} among ints"


def _bad_number(where: str, value: Any) -> Iterator[str]:
    if isinstance(value, int) and value not in _INT64:
        yield f"{where} is {value}, beyond int64"


def _lengths(collator: Any, features: Sequence[Any], columns: list[str], main: str) -> Iterator[str]:
    tokens = _row_lengths([feature[main] for feature in features])
    label = _label_column(collator, columns)
    for column in columns:
        lengths = _row_lengths([feature[column] for feature in features])
        if column == label:
            for row, (length, expected) in enumerate(zip(lengths, tokens, strict=True)):
                if length is None or (expected is not None and length > expected):
                    yield (
                        f"column '{column}', row {row} has {_count(length)} labels for the {expected} tokens of "
                        f"'{main}'; give one label per token"
                    )
        elif column in _PADDED:
            for row, (length, expected) in enumerate(zip(lengths, tokens, strict=True)):
                if length != expected:
                    yield (
                        f"column '{column}', row {row} has length {_count(length)} where '{main}' has {expected}; "
                        "they must be equal in every row"
                    )
        elif column != main:
            remedy = f"give pad_values={{'{column}': value}} to pad it, or remove it"
            yield from _ragged(column, lengths, remedy if hasattr(collator, "pad_values") else "remove it")
    pads = getattr(collator, "padding", True) not in (False, "do_not_pad")
    if not pads:
        yield from _ragged(main, tokens, "use padding=True")


def _not_stackable(column: str, values: Sequence[Any]) -> Iterator[str]:
    yield from (problem for problem in _bad_elements(column, values) if not isinstance(values[0], str))
    yield from _ragged(
        column, _row_lengths(values), "pad it first, for example with DataCollatorWithPadding, or remove it"
    )


def _ragged(column: str, lengths: Sequence[int | None], remedy: str) -> Iterator[str]:
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            yield (
                f"column '{column}' is ragged and not padded here: row 0 has length {_count(lengths[0])}, row {row} "
                f"has length {_count(length)}; {remedy}"
            )


def _label_column(collator: Any, columns: list[str]) -> str | None:
    if not hasattr(collator, "label_pad_token_id") or isinstance(collator, originals.DataCollatorForSeq2Seq):
        return None
    return "label" if "label" in columns else "labels"


def _row_lengths(values: Sequence[Any]) -> list[int | None]:
    return [len(value) if hasattr(value, "__len__") and getattr(value, "ndim", True) else None for value in values]


def _count(length: int | None) -> str:
    return "none" if length is None else str(length)


def _name(value: object) -> str:
    return f"a {type(value).__name__}"
