"""Labels, and logits of the last columns, of a batch without padding."""

from __future__ import annotations

from typing import Any

from quadrat.model.rows import Rows

IGNORED = -100


def flat_labels(labels: Any, rows: Rows) -> Any:
    """Labels `[1, total]` for a loss that shifts them: no row's first token is predicted from the row before."""
    return labels.index_fill(1, rows.firsts, IGNORED)


def kept_logits(rows: Rows, columns: int) -> tuple[Rows | None, Any]:
    """The rows of the last columns, and the places of their tokens in the flat batch; all for 0."""
    count, width = rows.shape
    if not isinstance(columns, int):
        raise NotImplementedError("logits_to_keep is a tensor")
    if columns == 0 or columns >= width:
        return None, 0
    column = rows.cells % width
    places = (column >= width - columns).nonzero()[:, 0]
    cells = rows.cells[places]
    cells = cells // width * columns + cells % width - (width - columns)
    return Rows.part((count, columns), cells), places
