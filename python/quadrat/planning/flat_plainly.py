"""Flattening token by token in Python: for rows that the kernels do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quadrat.planning.flattening import MAIN, Flattening


def flatten_plainly(features: Sequence[Mapping[str, Any]], plan: Flattening) -> dict[str, Any]:
    """As `flatten`, token by token in Python: for rows that the kernels do not know."""
    rows: dict[str, list[Any]] = {"ids": [], "labels": [], "positions": []}
    lengths: list[int] = []
    for row, feature in enumerate(features):  # row by row, so that of two errors the first row's is raised
        ids = _as_list(feature[MAIN])
        rows["ids"].append(list(ids))
        if plan.labels != "none":
            labels = ids if plan.label is None else _as_list(feature[plan.label])
            rows["labels"].append(_labels(plan, row, ids, labels))
        if plan.position_ids:
            rows["positions"].append([plan.position_ids_start + i for i in range(len(ids))])
        lengths.append(len(ids))
    if plan.framework not in ("pt", "np"):
        raise ValueError(f"return_tensors must be 'pt' or 'np', not {plan.framework!r}")
    gaps = _gaps(plan, lengths)
    batch = {MAIN: _made(plan, [_spread(rows["ids"], gaps, plan.input_pad)], "int64")}
    if plan.labels != "none":
        batch[plan.label or "labels"] = _made(plan, [_spread(rows["labels"], gaps, plan.label_pad)], "int64")
    if plan.position_ids:
        batch["position_ids"] = _made(plan, [_positions(plan, rows["positions"], gaps)], "int64")
    if plan.seq_idx:
        sequences = [[row] * length for row, length in enumerate(lengths)]
        batch["seq_idx"] = _made(plan, [_spread(sequences, gaps, -1)], "int32")
    batch |= {name: _part(plan, what, lengths, gaps) for name, what in plan.parts}
    for name, value in plan.extra.items():
        columns: list[Any] = []
        for row, feature in enumerate(features):
            columns.append(_as_list(feature[name]))
            _require_length(name, row, columns[-1], lengths[row])
        batch[name] = _inferred(plan, name, [_spread(columns, gaps, value)], type(value))
    return batch


def _part(plan: Flattening, what: str, lengths: list[int], gaps: list[int]) -> Any:
    """What a consumer is told, see `quadrat.varlen.names`."""
    places = lengths if plan.align_to is None else [sum(both) for both in zip(lengths, gaps, strict=True)]
    if what in ("places", "tokens"):
        counted = places if what == "places" else lengths
        return _made(plan, [sum(counted[:row]) for row in range(len(counted) + 1)], "int32")
    if what == "documents":
        numbers = [[row + 1] * length for row, length in enumerate(lengths)]
        return _made(plan, [_spread(numbers, gaps, 0)], "int64")
    if what == "gaps":
        return _made(plan, [_spread([[False] * length for length in lengths], gaps, True)], "bool")
    return {"longest": max(places, default=0), "total": sum(lengths) + sum(gaps), "thd": "thd"}[what]


def _gaps(plan: Flattening, lengths: list[int]) -> list[int]:
    """The padding after each row. Raises ValueError if the total is too short, or there is no row to pad."""
    gaps = [0 if plan.align_to is None else -length % plan.align_to for length in lengths]
    needed = sum(lengths) + sum(gaps)
    total = needed + -needed % (plan.pad_to_multiple_of or 1) if plan.total_length is None else plan.total_length
    if total < needed:
        raise ValueError(f"total_length={total} is below the {needed} tokens of the batch")
    if total > needed:
        if not lengths or (plan.align_to is None and not sum(lengths)):
            raise ValueError(f"total_length={total}, but there is no token: position_ids have nothing to continue from")
        gaps[-1] += total - needed
    return gaps


def _spread(rows: list[Any], gaps: list[int], fill: Any) -> list[Any]:
    return [one for row, gap in zip(rows, gaps, strict=True) for one in (*row, *[fill] * gap)]


def _positions(plan: Flattening, rows: list[list[Any]], gaps: list[int]) -> list[Any]:
    made: list[Any] = []
    for row, gap in zip(rows, gaps, strict=True):
        made += row
        # Without places of their own, padding follows the last token, of whatever row.
        follows = made and (row or plan.align_to is None)
        first = made[-1] + 1 if follows else plan.position_ids_start
        made += [first + i if plan.continue_positions else 0 for i in range(gap)]
    return made


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def _labels(plan: Flattening, row: int, ids: Any, labels: Any) -> Any:
    padded = plan.padded
    if padded or plan.labels == "as they are":
        _require_length(plan.label or "labels", row, labels, len(ids))
    if plan.labels == "as they are":
        return labels
    if padded and len(ids) == 0:
        raise ValueError(
            f"column '{MAIN}', row {row} is empty: its separator would make labels longer than {MAIN}, "
            "and they could not be padded to one length; leave out empty rows"
        )
    return [plan.separator_id] + labels[1:]  # noqa: RUF005 - a tuple is refused, as the reference does


def _require_length(name: str, row: int, values: Any, length: int) -> None:
    if len(values) != length:
        raise ValueError(
            f"column '{name}', row {row} has length {len(values)} where '{MAIN}' has {length}; give one value per token"
        )


def _made(plan: Flattening, values: list[Any], dtype: str | None) -> Any:
    if plan.framework == "np":
        return np.array(values, dtype=dtype)
    import torch

    return torch.tensor(values, dtype=None if dtype is None else getattr(torch, dtype))


def _inferred(plan: Flattening, name: str, values: list[Any], value_type: type) -> Any:
    """A extra column: integers int64, floats of the default dtype, bools bool only where what pads them is one."""
    kinds = {type(value) for value in values[0]}
    if not all(isinstance(value, (int, float, np.number, np.bool_)) for value in values[0]):
        raise ValueError(f"column '{name}' is not made of one-dimensional rows of numbers")
    if any(issubclass(kind, (float, np.floating)) for kind in kinds):
        return _made(plan, values, None)
    flags = kinds == {bool} and value_type is bool
    return _made(plan, values, "bool" if flags else "int64")
