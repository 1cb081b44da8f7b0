"""What owns memory and is read once: datasets, tables, collators. For tests of leaks: nobody may keep it."""

from collections.abc import Callable
from typing import Any

import datasets
import pyarrow as pa

import quadrat
from quadrat import _core
from support.strategies import make_tokenizer

FORMATS = (None, "python", "numpy", "torch")
ROWS = {"input_ids": [[5, 6, 7], [8, 9], [3]], "attention_mask": [[1] * 3, [1] * 2, [1]]}


class _Owner:
    pass


def _patched(format_type: str | None, *, undo: bool) -> list[Any]:
    dataset = datasets.Dataset.from_dict(ROWS).with_format(format_type)
    with quadrat.data.patch_datasets() as patch:
        quadrat.DataCollatorWithPadding(make_tokenizer())(dataset.__getitems__([1, 0]))
        list(dataset.__getitems__([1, 0]))
        dataset.set_format("numpy")
        list(dataset.__getitems__([1, 0]))
        if undo:
            patch.undo()
    return [dataset, dataset.data.table]


def _arrow(format_type: str | None) -> list[Any]:
    plain = datasets.Dataset.from_dict(ROWS)
    dataset = quadrat.ArrowDataset(plain)
    dataset.set_format(format_type)
    list(dataset.__getitems__([1, 0]))
    return [plain, dataset, dataset.data.table]


def _packed() -> list[Any]:
    plain = datasets.Dataset.from_dict(ROWS)
    dataset = quadrat.PackedDataset(plain, max_length=4)
    quadrat.DataCollatorWithFlattening()([dataset[0]])
    return [plain, dataset]


def _batched() -> list[Any]:
    plain = quadrat.ArrowDataset(datasets.Dataset.from_dict(ROWS))
    dataset = quadrat.data.BatchedDataset(plain, quadrat.TokenBudgetBatchSampler([3, 2, 1], max_tokens=8))
    quadrat.DataCollatorWithPadding(make_tokenizer())([dataset[0]])
    return [plain, dataset]


def _table_of_itself() -> list[Any]:
    """Python's function for the values of a table refers to the table, and a value to its rows."""
    owner: Any = _Owner()
    names, columns = _core.arrow_columns(pa.table({"when": pa.array([1], pa.timestamp("s"))}))
    owner.table = _core.Table((*names, "own"), [*columns, [owner]], lambda name, row: (owner, name, row))
    owner.rows = _core.TableRows(owner.table)
    owner.column = _core.memory_column(0, 0, 0, 0, 0, owner)
    assert owner.rows.row(0) == {"when": (owner, "when", 0), "own": owner}
    return [owner]


def _collator_of_its_tokenizer() -> list[Any]:
    """The plans that a collator keeps refer to its tokenizer, and that to the collator."""
    tokenizer = make_tokenizer()
    tokenizer.collator = collator = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    for _ in range(2):
        collator([{"input_ids": [5, 6]}, {"input_ids": [7]}])
    return [collator, tokenizer]


def owners() -> dict[str, Callable[[], list[Any]]]:
    """Calls that make owners, and return what must go with them."""
    return {
        **{f"patched, {name}": lambda name=name: _patched(name, undo=False) for name in FORMATS},
        "patched, undone": lambda: _patched(None, undo=True),
        **{f"ArrowDataset, {name}": lambda name=name: _arrow(name) for name in FORMATS},
        "PackedDataset": _packed,
        "BatchedDataset": _batched,
        "a table of itself": _table_of_itself,
        "a collator of its tokenizer": _collator_of_its_tokenizer,
    }
