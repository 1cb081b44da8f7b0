"""Errors of arguments: the tokenizer, options, features that are not a list, and rows that are not rows."""

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from transformers.utils import TensorType

from quadrat.input.rows import MAIN
from quadrat.planning.diagnosis.values import Column, dimensions, kind_of, length_of, shown

_FRAMEWORKS = [framework.value for framework in TensorType]  # that the installed transformers knows
_PADDINGS = (True, False, "longest", "max_length", "do_not_pad", None)


# Option -> whether a value is one that collators know, and what it must be.
_KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pad_to_multiple_of": (
        lambda value: value is None or (isinstance(value, numbers.Integral) and int(value) > 0),
        "a positive int or None",
    ),
    "padding": (lambda value: value in _PADDINGS, "True, False, 'longest', 'max_length' or 'do_not_pad'"),
    "return_tensors": (lambda value: value is None or value in _FRAMEWORKS, "'pt' or 'np'"),
    "label_pad_token_id": (lambda value: isinstance(value, numbers.Real), "an int, usually -100"),
    "pad_token_id": (lambda value: isinstance(value, numbers.Real), "an int, usually tokenizer.pad_token_id"),
}


def unknown(collator: Any) -> Iterator[str]:
    """Values of options that no collator knows."""
    for option, (is_known, _) in _KNOWN.items():
        if hasattr(collator, option) and not is_known(value := getattr(collator, option)):
            yield unknown_value(option, value)


def unknown_value(option: str, value: Any) -> str:
    """The text about a value of an option."""
    return f"{option} is {shown(value)}; it must be {_KNOWN[option][1]}"


def not_a_tokenizer(collator: Any) -> Iterator[str]:
    """Problems of what was given as tokenizer."""
    tokenizer = getattr(collator, "tokenizer", None)
    if not hasattr(collator, "tokenizer") or (hasattr(tokenizer, "pad") and not isinstance(tokenizer, type)):
        return
    problem, instead = f"tokenizer is {kind_of(tokenizer)}", "give a tokenizer of transformers"
    if tokenizer is None:
        instead = "give the tokenizer of your model, for example AutoTokenizer.from_pretrained(name)"
    elif isinstance(tokenizer, str):
        instead = f"give AutoTokenizer.from_pretrained({shown(tokenizer)})"
    elif isinstance(tokenizer, type):
        problem = f"tokenizer is the class {tokenizer.__name__}"
        instead = f"give an instance, for example {tokenizer.__name__}.from_pretrained(name)"
    elif hasattr(getattr(tokenizer, "tokenizer", None), "pad"):
        instead = "give its tokenizer: processor.tokenizer"
    elif type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        problem = f"{problem} of the package tokenizers"
        instead = "give PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=...)"
    yield f"{problem}; {instead}"


def pads(collator: Any) -> bool:
    """True if the collator's options ask for padding."""
    return getattr(collator, "padding", True) not in (False, "do_not_pad")


def cannot_pad(collator: Any, tokens: Column) -> Iterator[str]:
    """Problems of a collator that is to pad these tokens."""
    tokenizer, lengths = collator.tokenizer, [length_of(value) or 0 for value in tokens.values]
    if pads(collator) and getattr(tokenizer, "pad_token", "") is None:
        remedy = "call tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        if getattr(tokenizer, "eos_token", None) is not None:
            remedy = "set tokenizer.pad_token = tokenizer.eos_token"
        yield f"{type(tokenizer).__name__} has no pad token; {remedy}"
    limit = getattr(collator, "max_length", None) if getattr(collator, "padding", True) == "max_length" else None
    longest = max(lengths)
    if limit is not None and longest > limit:
        yield (
            f"{tokens.place(lengths.index(longest))} has {longest} tokens, more than max_length={limit}, and "
            "a collator does not truncate; tokenize with truncation=True and this max_length, or raise max_length"
        )


def not_features(features: Any) -> Iterator[str]:
    """Problems of `features` as a whole."""
    what = f"features is {kind_of(features)}"
    if isinstance(features, (list, tuple)):
        if not features:
            yield "the batch is empty: features has no rows; skip empty batches before they reach the collator"
    elif isinstance(features, str):
        yield f"{what}, not a list of features; tokenize it first: collator([tokenizer(text)])"
    elif isinstance(features, Mapping) and not hasattr(features, "column_names"):  # those of datasets are splits
        lacks = f"{what} with {shown(list(features))}, not a list of rows"
        yield f"{lacks}; for one example give collator([example]), and in a DataLoader set batch_size"
    elif isinstance(features, Iterator):
        yield f"{what}, which can be read only once; give a list: collator(list(features))"
    else:
        rows = f"features[{next(iter(features), 'train')!r}]" if isinstance(features, Mapping) else "dataset"
        yield (
            f"{what}, not a list of rows; collate in a DataLoader: DataLoader({rows}, batch_size=32, "
            f"collate_fn=collator), or give a list, for example collator([{rows}[i] for i in range(32)])"
        )


def not_rows(features: Sequence[Any], bare: bool) -> Iterator[str]:
    """Rows that are no mappings. bare: rows of token ids, without a mapping around them, are taken instead."""
    for row, feature in enumerate(features):
        where = f"row {row} is {kind_of(feature)}"
        if bare and isinstance(feature, Mapping):
            yield f"{where} where row 0 is {kind_of(features[0])}; give mappings in every row, or in none"
        elif not isinstance(feature, Mapping) and (instead := _instead(feature, bare)):
            yield f"{where}, not a mapping of column names to values; {instead}"


def _instead(feature: Any, bare: bool) -> str:
    size = dimensions(feature)
    if isinstance(feature, str):
        return "tokenize the text: tokenizer(text)"
    if isinstance(feature, (list, tuple)) and len(feature) > 0 and isinstance(feature[0], Mapping):
        return f"it holds {len(feature)} of them: give the inner list, for example collator(features[0])"
    if isinstance(feature, tuple) and len({dimensions(value) for value in feature}) > 1:
        return "name its parts, for example {'input_ids': ..., 'labels': ...}"
    if bare and hasattr(feature, "__len__"):
        return ""  # a row of token ids
    if size == 1 or (size == 2 and len(feature) == 1):
        return "give {'input_ids': row}" if size == 1 else "give {'input_ids': row[0]}"
    return "leave it out, or give a mapping, for example {'input_ids': [...]}"


def missing(features: Sequence[Any], columns: Iterable[str], instead: str | None = None) -> Iterator[str]:
    """Rows that lack a column. instead: what to do about it."""
    others = "give the row that column, or remove it from the others"
    for row, feature in enumerate(features):
        for column in columns:
            if column not in feature:
                remedy = instead or (_of_tokens(feature) if column == MAIN else others)
                yield f"column '{column}' is missing in row {row}, which has {shown(list(feature))}; {remedy}"


def _of_tokens(feature: Mapping[str, Any]) -> str:
    text = next((name for name, value in feature.items() if isinstance(value, str)), "text")
    return (
        f"tokenize the row, tokenizer(row['{text}']), or leave it out; if Trainer removed the column, give "
        "TrainingArguments(remove_unused_columns=False)"
    )
