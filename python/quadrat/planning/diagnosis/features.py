"""Arguments that are not a list of features, and rows that are not features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quadrat.planning.diagnosis.values import dimensions, kind_of, shown


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
