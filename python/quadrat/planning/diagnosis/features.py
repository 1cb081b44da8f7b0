"""Arguments that are not a list of features, and rows that are not features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quadrat.planning.diagnosis.values import dimensions, kind_of, length_of, shown


def not_features(features: Any) -> Iterator[str]:
    """Problems of `features` as a whole."""
    if isinstance(features, (list, tuple)):
        if not features:
            yield "the batch is empty: features has no rows; skip empty batches before they reach the collator"
        return
    if isinstance(features, str):
        yield "features is a string, not a list of features; tokenize it first: collator([tokenizer(text)])"
        return
    whole, rows = f"features is a whole {type(features).__name__}", "dataset"
    if _is_of(features, "datasets", "DatasetDict", "IterableDatasetDict"):
        rows = f"features[{next(iter(features), 'train')!r}]"
        some = f"{rows}[:32]" if _is_of(features, "datasets", "DatasetDict") else f"list({rows}.take(32))"
        found = f"{whole}; choose a split and some of its rows, for example collator({some})"
    elif _is_of(features, "datasets", "IterableDataset"):
        found = f"{whole}; give some of its rows, for example collator(list(dataset.take(32)))"
    elif _is_of(features, "datasets", "Dataset"):
        found = f"{whole} of {len(features)} rows; give some of them, for example collator(dataset[:32])"
    elif _is_of(features, "torch", "Dataset", "DataLoader"):
        found = f"{whole}; give a list of rows, for example collator([dataset[i] for i in range(32)])"
    else:
        yield _not_a_list(features)
        return
    yield f"{found}, or collate in a DataLoader: DataLoader({rows}, batch_size=32, collate_fn=collator)"


def _not_a_list(features: Any) -> str:
    if isinstance(features, Mapping):
        return (
            f"features is one {type(features).__name__} with {shown(list(features))}, not a list of rows; for one "
            "example give collator([example]), and in a DataLoader set batch_size"
        )
    if isinstance(features, Iterator):
        return f"features is {kind_of(features)}, which can be read only once; give a list: collator(list(features))"
    return f"features is {kind_of(features)}; give a list with one mapping of column names to values for each row"


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
        elif isinstance(feature, str) or (length_of(feature) is None and dimensions(feature) is None):
            yield f"{where}, neither a mapping nor a row of token ids; {_instead(feature)}"
        elif _is_pair(feature) or _is_batch(feature):
            yield f"{where}, not a row of token ids; {_instead(feature)}"


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
    return "leave it out, or give a mapping such as {'input_ids': [...]}"


def _is_batch(feature: Any) -> bool:
    return isinstance(feature, (list, tuple)) and len(feature) > 0 and isinstance(feature[0], Mapping)


def _is_pair(feature: Any) -> bool:
    return isinstance(feature, tuple) and len({dimensions(value) for value in feature}) > 1


def missing(features: Sequence[Any], columns: Sequence[Any]) -> Iterator[str]:
    """Problems of rows that are no mappings or lack a column."""
    yield from not_mappings(features)
    for row, feature in enumerate(features):
        for column in columns:
            if column not in feature:
                yield (
                    f"column '{column}' is missing in row {row}, which has {shown(list(feature))}; the columns are "
                    "those of row 0: give the row that column, or remove it from the others"
                )


def _is_of(value: Any, package: str, *names: str) -> bool:
    """Whether the type of `value` is one of these classes of a package, or derived from one."""
    return any(cls.__name__ in names and cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)
