"""How a `Ragged` is shown: as text, and as a table in a notebook. Few rows are read, and of each a few numbers."""

import html
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from quadrat.support.tensors import is_tensor, on_gpu

# Rows, and numbers of a row, that are shown at each end where there are more than twice as many.
_ROWS, _NUMBERS = 3, 4
_LEFT_OUT, _INDENT = "…", " " * len("Ragged([")
_BELOW = f",\n{_INDENT}"


def as_text(rows: Any) -> str:
    """The first and last rows, the numbers of rows and tokens, and the dtype; on a GPU, not to wait, no rows."""
    facts, shown = _facts_and_rows(rows)
    if shown is None:
        return f"Ragged({facts})"
    lines = ["..." if number == _LEFT_OUT else values for number, _, values in shown]
    return f"Ragged([{_BELOW.join(lines)}], {facts})"


def as_html(rows: Any) -> str:
    """A table of a few rows with their lengths; without rows where `as_text` shows none."""
    facts, shown = _facts_and_rows(rows)
    return table(f"Ragged: {facts}", ("row", "length", "values"), shown or ())


def _facts_and_rows(rows: Any) -> tuple[str, list[tuple[str, str, str]] | None]:
    """How many rows and tokens there are, as far as that is known without waiting, the dtype, and which GPU."""
    try:
        there, known = on_gpu(rows.offsets), rows._facts is not None
        facts = [f"{len(rows)} rows", *([] if there and not known else [f"{rows.total} tokens"]), str(rows.dtype)]
        if there:
            return ", ".join([*facts, str(rows.values.device)]), None
        return ", ".join(facts), [
            (_LEFT_OUT,) * 3 if row is None else (str(row), str(len(rows[row])), _numbers(rows[row]))
            for row in _ends(len(rows))
        ]
    except (TypeError, ValueError) as error:  # offsets that were changed, tensors without numbers
        return str(error), None


def table(caption: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """An HTML table of texts, whatever is in them."""

    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    head = f"<thead>{line(headings, 'th')}</thead><tbody>{body}</tbody>" if rows else ""
    return f"<table><caption>{html.escape(caption)}</caption>{head}</table>"


def _ends(count: int) -> Iterable[int | None]:
    """The numbers of the rows to show; None stands for those that are left out."""
    return range(count) if count <= 2 * _ROWS else (*range(_ROWS), None, *range(count - _ROWS, count))


def _numbers(row: Any) -> str:
    """A row, or its ends; of tokens that are more than a number, just how many and of which shape."""
    if row.ndim > 1:
        return f"<{' x '.join(map(str, row.shape))}>"
    if len(row) > 2 * _NUMBERS:  # NumPy then shows both ends, of a row that is not read as a whole
        ends = row[: _NUMBERS + 1], row[-_NUMBERS:]
        row = (sys.modules["torch"].cat if is_tensor(row) else np.concatenate)(ends)
    few = as_numbers(row)
    return np.array2string(few, separator=", ", threshold=2 * _NUMBERS, edgeitems=_NUMBERS, precision=4, prefix=_INDENT)


def as_numbers(values: Any) -> Any:
    """An array or tensor as a NumPy array, which has not all small kinds of floats."""
    if not is_tensor(values):
        return values
    small = values.is_floating_point() and values.dtype.itemsize < 4
    return (values.float() if small else values).numpy(force=True)
