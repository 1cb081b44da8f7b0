"""Ray Data's Arrow batches: `PackBlocks` packs their rows, `CollateFn` makes tensors of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from quadrat.batching.lengths import lengths
from quadrat.batching.packing import Packing, Strategy
from quadrat.data._grouped import columns_of
from quadrat.input.items import SEQ_LENGTHS, join
from quadrat.input.rows import MAIN, Rows, table_of_arrow
from quadrat.support.extras import needs

with needs("quadrat.data.ray", "ray"):
    import pyarrow as pa
    from ray.data.collate_fn import ArrowBatchCollateFn

# What Ray makes of a column of NumPy arrays, and Arrow's own type for it, by their registered names.
_FIXED_SHAPE = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2", "arrow.fixed_shape_tensor")
_VARIABLE_SHAPE = "ray.data.arrow_variable_shaped_tensor"


class CollateFn(ArrowBatchCollateFn):  # type: ignore[misc]
    """Collate the batches of Ray Data with one of quadrat's collators, directly from Arrow.

        dataset.iter_torch_batches(batch_size=32, collate_fn=CollateFn(DataCollatorWithPadding(tokenizer)))

    The batch is a plain dict, which Ray moves to the device if all of it is tensors; with `deferred=True` it is still
    made on the CPU. Columns of tokens may be lists or one-dimensional NumPy arrays; tensors of more dimensions, for
    example images, reach the collator as nested lists. It is called from one thread at a time: with several
    `prefetch_batches`, random masks depend on which batch comes first, unless they are drawn by `rng="philox"`.

    Args:
        collator: one of quadrat's collators, or any callable that takes a `pyarrow.Table`.
        columns: the columns to give it, in this order; by default all. Leave out texts and what the model does not
            take.

    Raises:
        TypeError: when `collator` cannot be called or is one of transformers', or `columns` is one name.
        ValueError: when a batch lacks one of `columns`. The collator's own errors are not changed.

    Examples:
        >>> import pyarrow, quadrat
        >>> from quadrat.data.ray import CollateFn
        >>> collate = CollateFn(quadrat.DataCollatorWithFlattening(), columns=["input_ids"])
        >>> table = pyarrow.table({"input_ids": [[5, 6, 7], [8]], "text": ["a", "b"]})  # Ray passes such a table
        >>> collate(table)["input_ids"]
        tensor([[5, 6, 7, 8]])
    """

    def __init__(self, collator: Callable[[Any], Any], columns: Sequence[str] | None = None) -> None:
        if not callable(collator):
            raise TypeError(f"collator must be callable, not {type(collator).__name__}")
        if type(collator).__module__.startswith("transformers."):
            raise TypeError(
                f"{type(collator).__name__} of transformers does not take Arrow tables: give quadrat's class of that "
                "name, or quadrat.from_transformers(collator)"
            )
        self.collator = collator
        self.columns = columns_of(columns)
        self._lock = threading.Lock()

    def __call__(self, batch: Any) -> Any:
        """Collate a `pyarrow.Table`, or a dict of columns such as the NumPy batches of Ray, into a dict of tensors."""
        if self.columns is not None:
            batch = _select(batch, self.columns)
        if isinstance(batch, pa.Table):
            batch = without_tensor_types(batch)
        with self._lock:
            made = self.collator(batch)
        return dict(made) if isinstance(made, Mapping) else made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.collator, self.columns)


class PackBlocks:
    """Pack the rows of each batch of Ray Data, from Arrow to Arrow: no row becomes a Python object.

        packed = dataset.map_batches(PackBlocks(4096), batch_format="pyarrow", batch_size=2048)
        packed.iter_torch_batches(batch_size=8, collate_fn=CollateFn(DataCollatorWithFlattening()))

    Each batch is packed by itself. With a `batch_size` that makes hundreds of packs, the last pack of each wastes less
    than 1 %. A row of the result is a pack: each column joined to one list with the same type of values, and
    `seq_lengths`, the length of each row in the pack, by which quadrat's collators without padding keep the rows apart.

    Args:
        max_length: the maximum number of tokens in a pack.
        strategy, overlong, column, columns: see `quadrat.PackedDataset`.

    Raises:
        TypeError: when a number is not an int; for a batch, when a column does not hold rows of numbers, or a row is
            null.
        ValueError: for an argument out of range; for a batch, when a row is too long, a column is missing, or columns
            differ in the length of a row.

    Examples:
        >>> import pyarrow
        >>> from quadrat.data.ray import PackBlocks
        >>> table = pyarrow.table({"input_ids": [[5, 5, 5], [8, 8], [6]]})  # Ray passes such a table
        >>> PackBlocks(4)(table).to_pydict()
        {'input_ids': [[5, 5, 5, 6], [8, 8]], 'seq_lengths': [[3, 1], [2]]}
    """

    def __init__(
        self,
        max_length: int,
        *,
        strategy: Strategy = "best_fit",
        overlong: Literal["error", "truncate", "split"] = "error",
        column: str = MAIN,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.columns = columns_of(columns, column)
        self.max_length, self.strategy, self.overlong = Packing.of(max_length, strategy, overlong)[:3]
        self.column = column

    def __call__(self, batch: pa.Table) -> pa.Table:
        """A table with a row for each pack of the batch."""
        table = without_tensor_types(batch if self.columns is None else _select(batch, self.columns))
        known = lengths(table, self.column)
        if not len(known):
            return _packed(table.schema, {}, known, np.zeros(1, np.int64))
        packing = Packing.of(self.max_length, self.strategy, self.overlong)
        packs = packing.packs(known)
        arrow = table_of_arrow(table)
        try:
            rows = Rows(arrow, packs.rows.values.tolist())
            values, sizes = join(rows, table.column_names, packing.pieces(packs, known))
        except (TypeError, ValueError):
            join(Rows(arrow), table.column_names)  # raises it again, with the row's number in the batch
            raise
        return _packed(table.schema, values, sizes, packs.rows.offsets)


def without_tensor_types(table: pa.Table) -> pa.Table:
    """`table`, with lists for columns of Ray's tensor types and of Arrow's; nested ones are made one by one."""
    for position, field in enumerate(table.schema):
        kind, column = field.type, table.column(position)
        name = getattr(kind, "extension_name", None)
        if name not in (*_FIXED_SHAPE, _VARIABLE_SHAPE):
            continue
        if (kind.ndim if name == _VARIABLE_SHAPE else len(kind.shape)) != 1:
            lists = pa.chunked_array([[_nested(cell) for cell in column]])
        elif name == _VARIABLE_SHAPE:
            # Flattening a struct takes its own nulls and its slice into account, which `field` does not.
            parts = [chunk.storage.flatten()[0] for chunk in column.chunks]
            lists = pa.chunked_array(parts, kind.storage_type.field("data").type)
        else:
            lists = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        table = table.set_column(position, field.name, lists)
    return table


def _packed(schema: pa.Schema, values: Mapping[str, Any], sizes: Any, offsets: Any) -> pa.Table:
    """Packs as a table: values and sizes of all rows, and where in them each pack begins."""
    bounds = np.concatenate(([0], sizes.cumsum()))[offsets]
    made = {field.name: _lists(values.get(field.name, []), bounds, field.type) for field in schema}
    return pa.table({**made, SEQ_LENGTHS: _lists(sizes, offsets, pa.list_(pa.int64()))})


def _lists(values: Any, offsets: Any, like: pa.DataType) -> pa.Array:
    """Lists of one after the other of the values, whose type is that of the lists of another type."""
    made = pa.LargeListArray if pa.types.is_large_list(like) else pa.ListArray
    return made.from_arrays(offsets, pa.array(values, like.value_type))


def _select(batch: Any, columns: list[str]) -> Any:
    there = batch.column_names if isinstance(batch, pa.Table) else list(batch)
    missing = [name for name in columns if name not in there]
    if missing:
        raise ValueError(f"the batch has no column {missing[0]!r}; it has {there}")
    return batch.select(columns) if isinstance(batch, pa.Table) else {name: batch[name] for name in columns}


def _nested(cell: pa.Scalar) -> Any:
    if not cell.is_valid:
        return None
    made = cell.as_py()  # Ray's are arrays there, Arrow's own flat lists
    return (cell.to_numpy() if isinstance(made, list) else made).tolist()
