"""A table that another library might hand out, and ways in which it can contradict itself.

As a program: prints what becomes of the table with each damage that is named, a line each, for it may be a crash.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from quadrat.input.rows import rows_of
from support.arrow_parts import Part, Streamed, lists, numbers, table, text

IDS = [[5, 6, 7], [8], [], [9, 10]]
ROWS = [
    {"input_ids": ids, "label": row, "text": words, "nested": nested}
    for row, (ids, words, nested) in enumerate(zip(IDS, ["a", "bc", "", "d"], [[[1, 2]], [[3]], [], []], strict=True))
]


class Sample:
    """A table of lists, numbers, texts and lists of lists, and its parts."""

    def __init__(self) -> None:
        self.ids, self.label = lists(IDS, "input_ids"), numbers([0, 1, 2, 3], "label")
        self.text = text(["a", "bc", "", "d"], "text")
        self.nested = Part("+l", 4, [None, np.array([0, 1, 2, 2, 2], np.int32)], [lists([[1, 2], [3]])], name="nested")
        self.item, self.inner = self.ids.parts[0], self.nested.parts[0]
        self.innermost = self.inner.parts[0]
        self.table = table(self.ids, self.label, self.text, self.nested)
        self.source: Any = self.table


Change = Callable[[Sample], None]


def schema(column: str, **fields: Any) -> Change:
    return lambda sample: _set(getattr(sample, column).schema, fields)


def array(column: str, **fields: Any) -> Change:
    return lambda sample: _set(getattr(sample, column).array, fields)


def offsets(column: str, *values: int) -> Change:
    def change(sample: Sample) -> None:
        getattr(sample, column).buffers[1].view(np.int32)[: len(values)] = values

    return change


def stream(**fields: Any) -> Change:
    def change(sample: Sample) -> None:
        sample.source = Streamed(sample.table)
        _set(sample.source.stream, fields)

    return change


def deep(sample: Sample) -> None:
    part = numbers([1])
    for _ in range(3000):
        part = Part("+l", 1, [None, np.array([0, 1], np.int32)], [part])
    sample.source = part


def broken_stream(sample: Sample) -> None:
    sample.source = Streamed(sample.table)
    sample.source.error = 5


def fixed(size: int) -> Change:
    def change(sample: Sample) -> None:
        sample.source = table(Part(f"+w:{size}", 4, [None], [numbers([1, 2, 3, 4, 5, 6])], name="input_ids"))

    return change


def _set(part: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(part, name, value)


# What is changed, and what the error says.
DAMAGES: dict[str, tuple[Change, str]] = {
    "a list without its child": (array("ids", n_children=0), "'input_ids'.*it has 0 children where its type has 1"),
    "a type without its child": (schema("ids", n_children=0), "'input_ids'.*it has 0 children where its type has 1"),
    "a negative number of children": (schema("ids", n_children=-1), "'input_ids'.*it has -1 children"),
    "children nowhere": (array("ids", children=None), "'input_ids'.*its child 0 is missing"),
    "a child that is null": (lambda sample: sample.ids.set_children(None), "'input_ids'.*its child 0 is missing"),
    "a child that was released": (array("item", release=None), "'input_ids'.*its array was released"),
    "a type that was released": (schema("item", release=None), "'input_ids'.*its schema was released"),
    "a table without a column": (array("table", n_children=3), "it has 3 children where its type has 4"),
    "a table of minus one columns": (schema("table", n_children=-1), "it has -1 children"),
    "a table that was released": (array("table", release=None), "used before"),
    "a number with a child": (array("label", n_children=1), "'label'.*it has 1 children where its type has 0"),
    "no buffers": (array("label", n_buffers=0), "'label'.*it has 0 buffers where its type 'l' has 2"),
    "a buffer less": (array("text", n_buffers=2), "'text'.*it has 2 buffers where its type 'u' has 3"),
    "a buffer more": (array("label", n_buffers=3), "'label'.*it has 3 buffers where its type 'l' has 2"),
    "negative buffers": (array("label", n_buffers=-1), "'label'.*it has -1 buffers"),
    "buffers nowhere": (array("ids", buffers=None), "'input_ids'.*it has 0 buffers"),
    "values nowhere": (lambda sample: sample.label.set_buffers(None, None), "'label'.*it has no buffer of values"),
    "offsets nowhere": (lambda sample: sample.ids.set_buffers(None, None), "'input_ids'.*no buffer of offsets"),
    "items nowhere": (
        lambda sample: sample.item.set_buffers(None, None),
        r"'input_ids'.*it has no buffer of values \(the elements of its lists\)",
    ),
    "nested items nowhere": (
        lambda sample: sample.innermost.set_buffers(None, None),
        r"'nested'.*it has no buffer of values \(the elements of its lists, level 2\)",
    ),
    "characters nowhere": (
        lambda sample: sample.text.set_buffers(None, sample.text.buffers[1], None),
        "'text', row 0.*offsets run from 0 to 1 of 0 values",
    ),
    "nulls nowhere": (array("label", null_count=2), "'label'.*2 elements are null, and no buffer says which"),
    "null rows nowhere": (array("table", null_count=2), "2 rows are null, and no buffer says which"),
    "too many nulls": (array("label", null_count=5), "'label'.*5 of 4 elements are null"),
    "a negative count of nulls": (array("label", null_count=-2), "'label'.*-2 of 4 elements are null"),
    "a negative length": (array("item", length=-1), "'input_ids'.*length -1 at offset 0"),
    "a negative offset": (array("label", offset=-1), "'label'.*length 4 at offset -1"),
    "a length beyond memory": (array("table", length=2**62), f"length {2**62} at offset 0"),
    "an offset beyond memory": (array("label", offset=2**63 - 2), "'label'.*length 4 at offset"),
    "fewer rows than the table": (array("label", length=3), "'label'.*it has 3 rows where the table has 4"),
    "a table that begins too late": (array("table", offset=1), "'input_ids'.*it has 4 rows where the table has 5"),
    "a dictionary": (
        lambda sample: _set(sample.label.array, {"dictionary": sample.ids.array.children}),
        "'label'.*it has a dictionary",
    ),
    "no format": (schema("label", format=None), "'label'.*its schema has no format"),
    "a table without a format": (schema("table", format=None), "its schema has no format"),
    "a number said to be a list": (schema("label", format=b"+l"), "'label'.*it has 0 children where its type has 1"),
    "a list said to be text": (schema("ids", format=b"u"), "'input_ids'.*it has 1 children where its type has 0"),
    "a number said to be text": (schema("label", format=b"u"), "'label'.*it has 2 buffers where its type 'u' has 3"),
    "lists of a negative size": (schema("ids", format=b"+w:-1"), r"'input_ids'.*'\+w:-1' is not a type"),
    "lists of no size": (schema("ids", format=b"+w:"), r"'input_ids'.*'\+w:' is not a type"),
    "lists of a size beyond all": (schema("ids", format=b"+w:" + b"9" * 20), "'input_ids'.*is not a type"),
    "lists of a size too large": (fixed(2), "'input_ids'.*4 lists of 2 elements do not fit into 6"),
    "lists whose size overflows": (fixed(2**62), f"'input_ids'.*4 lists of {2**62} elements do not fit into 6"),
    "lists beyond all depth": (deep, "lists lie in lists on more than 64 levels"),
    "metadata of a negative size": (schema("ids", metadata=b"\xff" * 8), "'input_ids'.*its metadata has a size of -1"),
    "offsets that fall": (offsets("ids", 0, 3, 2), "'input_ids', row 1 of the table.*from 3 to 2 of 6 values"),
    "offsets below zero": (offsets("ids", -3), "'input_ids', row 0 of the table.*from -3 to 3 of 6 values"),
    "offsets beyond the values": (offsets("ids", 0, 3, 4, 4, 7), "'input_ids', row 3.*from 4 to 7 of 6 values"),
    "offsets far beyond": (offsets("ids", 0, 2**31 - 1), f"'input_ids', row 0.*from 0 to {2**31 - 1} of 6 values"),
    "offsets of lists in lists that fall": (offsets("inner", 0, 2, 1), "'nested', row 1 of the .*from 2 to 1 of 3"),
    "offsets of lists in lists below zero": (offsets("inner", -1), "'nested', row 0 of the table.*from -1 to 2 of 3"),
    "offsets of lists in lists beyond all": (offsets("inner", 0, 2, 9), "'nested', row 1 of the .*from 2 to 9 of 3"),
    "offsets to lists that are not there": (offsets("nested", 0, 1, 3), "'nested', row 1 .*from 1 to 3 of 2 values"),
    "text that falls": (offsets("text", 0, 2, 1), "'text', row 1 of the table.*from 2 to 1 of 4 values"),
    "text beyond its last offset": (offsets("text", 0, 9), "'text', row 0 of the table.*from 0 to 9 of 4 values"),
    "text below zero": (offsets("text", -5), "'text', row 0 of the table.*from -5 to 1 of 4 values"),
    "a stream without functions": (stream(get_schema=None), "no functions"),
    "a stream that cannot go on": (stream(get_next=None), "no functions"),
    "a stream that was read": (stream(release=None), "used before"),
    "a stream that fails": (broken_stream, "the Arrow stream failed"),
    "a stream without a type": (
        lambda sample: (stream()(sample), schema("table", release=None)(sample))[0],
        "its schema was released",
    ),
}


def damaged(damage: str) -> Sample:
    sample = Sample()
    DAMAGES[damage][0](sample)
    return sample


def outcome(damage: str) -> str:
    sample = damaged(damage)  # owns the memory
    try:
        return f"no error, but {list(rows_of(sample.source))}"
    except ValueError as error:
        return f"ValueError: {error}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(outcome(name).replace("\n", " ") + "\n")
        sys.stdout.flush()
