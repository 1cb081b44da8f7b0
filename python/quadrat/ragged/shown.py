"""How a `Ragged` is shown: as text, and as a table in a notebook. Few rows are read, and of each a few numbers."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from quadrat.support.tensors import is_tensor, on_gpu

# Rows, and numbers of a row, that are shown at each end where there are more than twice as many.
_ROWS, _NUMBERS = 3, 4


def as_text(rows: Any) -> str:
    """The rows below one another, then what `described` says; on a GPU this alone, to avoid synchronising."""
    try:
        facts = ", ".join(described(rows))
        if on_gpu(rows.offsets):
            return f"Ragged({facts})"
        lines = ["..." if number is None else _numbers(rows[number]) for number in _ends(len(rows))]
    except (TypeError, ValueError) as error:  # offsets that were changed, tensors without numbers
        return f"Ragged({error})"
    return f"Ragged([{_BELOW.join(lines)}], {facts})"


_BELOW = ",\n" + " " * len("Ragged([")


def as_html(rows: Any) -> str:
    """A table of a few rows with their lengths; without rows where `as_text` shows none."""
    try:
        head = f"Ragged: {', '.join(described(rows))}"
        numbers = () if on_gpu(rows.offsets) else _ends(len(rows))
        body = [("…",) * 3 if one is None else (str(one), str(len(rows[one])), _numbers(rows[one])) for one in numbers]
    except (TypeError, ValueError) as error:
        head, body = f"Ragged: {error}", []
    return table(head, ("row", "length", "values"), body)


def described(rows: Any) -> list[str]:
    """How many rows and tokens there are, as far as that is known without waiting, the dtype, and which GPU."""
    said = [f"{len(rows)} rows"]
    values = rows.values
    if not on_gpu(rows.offsets) or rows._facts is not None:
        said.append(f"{rows.total} tokens")
    return [*said, str(values.dtype), *([str(values.device)] if on_gpu(values) else [])]


def table(caption: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """An HTML table of texts, whatever is in them."""

    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    head = f"<thead>{line(headings, 'th')}</thead><tbody>{body}</tbody>" if rows else ""
    return f"<table><caption>{html.escape(caption)}</caption>{head}</table>"


def _ends(count: int) -> Iterator[int | None]:
    """The numbers of the rows to show; None stands for those that are left out."""
    if count <= 2 * _ROWS:
        yield from range(count)
    else:
        yield from (*range(_ROWS), None, *range(count - _ROWS, count))


def _numbers(row: Any) -> str:
    """A row, or its ends; of tokens that are more than a number, just how many and of which shape."""
    if row.ndim > 1:
        return f"<{' x '.join(map(str, row.shape))}>"
    if len(row) > 2 * _NUMBERS:  # NumPy then shows both ends, of a row that is not read as a whole
        ends = row[: _NUMBERS + 1], row[-_NUMBERS:]
        row = (sys.modules["torch"].cat if is_tensor(row) else np.concatenate)(ends)
    indent, shown = " " * len("Ragged(["), as_numbers(row)
    return np.array2string(
        shown, separator=", ", threshold=2 * _NUMBERS, edgeitems=_NUMBERS, precision=4, prefix=indent
    )


def as_numbers(values: Any) -> Any:
    """An array or tensor as a NumPy array, which has not all small kinds of floats."""
    if not is_tensor(values):
        return values
    small = values.is_floating_point() and values.dtype.itemsize < 4
    return (values.float() if small else values).numpy(force=True)
