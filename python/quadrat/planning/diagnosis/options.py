"""Errors of wrong arguments: the tokenizer, options, features that are not a list, and rows that are not rows."""

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from transformers.utils import TensorType

from quadrat.planning.diagnosis.values import Column, dimensions, kind_of, length_of, shown

_FRAMEWORKS = [one.value for one in TensorType]  # that the installed transformers knows
_PADDINGS = (True, False, "longest", "max_length", "do_not_pad", None)


def _is_above_0(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and int(value) > 0


# Option -> whether a value is one that collators know, and what it must be.
_KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pad_to_multiple_of": (lambda value: value is None or _is_above_0(value), "a positive int or None"),
    "padding": (lambda value: value in _PADDINGS, "True, False, 'longest', 'max_length' or 'do_not_pad'"),
    "return_tensors": (lambda value: value is None or value in _FRAMEWORKS, "'pt' or 'np'"),
    "label_pad_token_id": (lambda value: isinstance(value, numbers.Real), "an int, usually -100"),
    "plm_probability": (
        lambda value: isinstance(value, numbers.Real) and 0 < float(value) <= 1,
        "a number above 0 and up to 1, for example 1/6",
    ),
    "max_span_length": (_is_above_0, "a positive int"),
    "pad_token_id": (lambda value: isinstance(value, numbers.Real), "an int, usually tokenizer.pad_token_id"),
}


def not_a_tokenizer(collator: Any) -> Iterator[str]:
    """Problems of what was given as tokenizer."""
    if not hasattr(collator, "tokenizer"):
        return
    tokenizer = collator.tokenizer
    if hasattr(tokenizer, "pad") and not isinstance(tokenizer, type):
        return
    found, instead = f"tokenizer is {kind_of(tokenizer)}", "give a tokenizer of transformers"
    if tokenizer is None:
        instead = "give the tokenizer of your model, for example AutoTokenizer.from_pretrained(name)"
    elif isinstance(tokenizer, str):
        instead = f"give AutoTokenizer.from_pretrained({shown(tokenizer)})"
    elif isinstance(tokenizer, type):
        found = f"tokenizer is the class {tokenizer.__name__}"
        instead = f"give an instance, for example {tokenizer.__name__}.from_pretrained(name)"
    elif hasattr(getattr(tokenizer, "tokenizer", None), "pad"):
        instead = "give its tokenizer: processor.tokenizer"
    elif type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        found = f"{found} of the package tokenizers"
        instead = "give PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=...)"
    yield f"{found}; {instead}" if tokenizer is None else f"{found}, which has no method pad; {instead}"


def unknown(collator: Any) -> Iterator[str]:
    """Values of options that no collator knows."""
    for option, (is_known, known) in _KNOWN.items():
        if hasattr(collator, option) and not is_known(value := getattr(collator, option)):
            yield f"{option} is {shown(value)}; it must be {known}"


def unknown_framework(return_tensors: Any) -> str:
    """The text about a value of `return_tensors`."""
    return f"return_tensors is {shown(return_tensors)}; it must be 'pt' or 'np'"


def not_in_numpy(collator: Any, columns: Iterable[Column]) -> Iterator[str]:
    """Numbers that NumPy does not have, where it is to make the batch."""
    for column in columns if getattr(collator, "return_tensors", None) == "np" else ():
        for row, value in enumerate(column.values):
            if str(getattr(value, "dtype", "")) == "torch.bfloat16":
                yield (
                    f"{column.place(row)} holds bfloat16 numbers, which NumPy does not have; give row.float(), or use "
                    "return_tensors='pt'"
                )


def pads(collator: Any) -> bool:
    """True if the collator's options ask for padding."""
    return getattr(collator, "padding", True) not in (False, "do_not_pad")


def lacks_token(tokenizer: Any, name: str, otherwise: str = "") -> Iterator[str]:
    """A special token that is not set, and how to set it. otherwise: what else can be done."""
    if getattr(tokenizer, name, "") is not None:
        return
    remedy = f"call tokenizer.add_special_tokens({{'{name}': '[{name[:-6].upper()}]'}})"
    if name == "pad_token" and getattr(tokenizer, "eos_token", None) is not None:
        remedy = "set tokenizer.pad_token = tokenizer.eos_token"
    yield f"{type(tokenizer).__name__} has no {name.replace('_', ' ')}; {remedy}{otherwise}"


def beyond_max_length(collator: Any, column: Column, what: str) -> Iterator[str]:
    """Rows longer than `max_length`, which a collator leaves as they are."""
    limit = getattr(collator, "max_length", None) if getattr(collator, "padding", True) == "max_length" else None
    lengths = [length_of(value) or 0 for value in column.values]
    longest = max(lengths)
    if limit is not None and longest > limit:
        yield (
            f"{column.place(lengths.index(longest))} has {longest} {what}, more than max_length={limit}, and "
            "a collator does not truncate; tokenize with truncation=True and this max_length, or raise max_length"
        )


def not_features(features: Any) -> Iterator[str]:
    """Problems of `features` as a whole."""
    found = f"features is {kind_of(features)}"
    if isinstance(features, (list, tuple)):
        if not features:
            yield "the batch is empty: features has no rows; skip empty batches before they reach the collator"
    elif isinstance(features, str):
        yield f"{found}, not a list of features; tokenize it first: collator([tokenizer(text)])"
    elif isinstance(features, Mapping) and not hasattr(features, "column_names"):  # those of datasets are splits
        lacks = f"{found} with {shown(list(features))}, not a list of rows"
        yield f"{lacks}; for one example give collator([example]), and in a DataLoader set batch_size"
    elif isinstance(features, Iterator):
        yield f"{found}, which can be read only once; give a list: collator(list(features))"
    else:
        rows = f"features[{next(iter(features), 'train')!r}]" if isinstance(features, Mapping) else "dataset"
        yield (
            f"{found}, not a list of rows; collate in a DataLoader: DataLoader({rows}, batch_size=32, "
            f"collate_fn=collator), or give a list, for example collator([{rows}[i] for i in range(32)])"
        )


def not_mappings(features: Sequence[Any]) -> Iterator[str]:
    """Problems of rows where a collator takes mappings only."""
    for row, feature in enumerate(features):
        if not isinstance(feature, Mapping):
            yield f"row {row} is {kind_of(feature)}, not a mapping of column names to values; {_instead(feature)}"


def not_rows(features: Sequence[Any]) -> Iterator[str]:
    """Problems of rows where a collator takes rows of token ids as well, without a mapping around them."""
    for row, feature in enumerate(features):
        where = f"row {row} is {kind_of(feature)}"
        if isinstance(feature, Mapping):
            yield f"{where} where row 0 is {kind_of(features[0])}; give mappings in every row, or in none"
        elif _is_pair(feature) or _is_batch(feature) or isinstance(feature, str) or not hasattr(feature, "__len__"):
            yield f"{where}, neither a mapping nor a row of token ids; {_instead(feature)}"


def _instead(feature: Any) -> str:
    if isinstance(feature, str):
        return "tokenize the text: tokenizer(text)"
    if _is_batch(feature):
        return f"it holds {len(feature)} of them: give the inner list, for example collator(features[0])"
    if _is_pair(feature):
        return "name its parts, for example {'input_ids': ..., 'labels': ...}"
    if dimensions(feature) == 1:
        return "give {'input_ids': row}"
    if dimensions(feature) == 2 and len(feature) == 1:
        return "give {'input_ids': row[0]}"
    return "leave it out, or give a mapping, for example {'input_ids': [...]}"


def _is_batch(feature: Any) -> bool:
    return isinstance(feature, (list, tuple)) and len(feature) > 0 and isinstance(feature[0], Mapping)


def _is_pair(feature: Any) -> bool:
    return isinstance(feature, tuple) and len({dimensions(value) for value in feature}) > 1


_OF_FIRST = "the columns are those of row 0: give the row that column, or remove it from the others"


def missing(features: Sequence[Any], columns: Iterable[Any], instead: str = _OF_FIRST) -> Iterator[str]:
    """Problems of rows that are not mappings or lack a column. instead: what to do about the latter."""
    yield from not_mappings(features)
    for row, feature in enumerate(features):
        for column in columns:
            if column not in feature:
                yield (f"column '{column}' is missing in row {row}, which has {shown(list(feature))}; {instead}")
