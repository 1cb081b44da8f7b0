"""Labels, and logits of the last columns, of a batch without padding."""

from __future__ import annotations

from typing import Any

from quadrat.model.rows import Rows

IGNORED = -100


def flat_labels(labels: Any, rows: Rows) -> Any:
    """Labels `[1, total]` for a loss that shifts them: no row's first token is predicted from the row before."""
    return labels.index_fill(1, rows.firsts, IGNORED)


def kept_logits(rows: Rows, columns: Any) -> tuple[Rows | None, Any]:
    """The rows of the last columns, and which tokens of the flat batch these are; all for 0."""
    if not isinstance(columns, int):
        raise NotImplementedError("logits_to_keep is a tensor")
    return rows.last_columns(columns) if 0 < columns < rows.shape[1] else (None, 0)
