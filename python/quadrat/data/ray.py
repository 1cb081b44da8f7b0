"""`CollateFn`: quadrat's collators on the Arrow batches of Ray Data, `iter_torch_batches(collate_fn=...)`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.data.ray", "ray"):
    import pyarrow as pa
    from ray.data.collate_fn import ArrowBatchCollateFn

# What Ray makes of a column of NumPy arrays, and Arrow's own type for it, by their registered names.
_FIXED_SHAPE = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2", "arrow.fixed_shape_tensor")
_VARIABLE_SHAPE = "ray.data.arrow_variable_shaped_tensor"


class CollateFn(ArrowBatchCollateFn):  # type: ignore[misc]
    """Collates the batches of Ray Data with one of quadrat's collators, straight from Arrow.

        dataset.iter_torch_batches(batch_size=32, collate_fn=CollateFn(DataCollatorWithPadding(tokenizer)))

    The batch is a plain dict of what the collator makes, which Ray moves to the device if all of it is tensors; with
    `deferred=True` it is made on the CPU all the same, because Ray looks into it.
    Columns of tokens may have been lists or one-dimensional NumPy arrays, of one length or of many. Tensors of more
    dimensions, a column of images, reach the collator as nested lists.

    Ray calls it from as many threads as `prefetch_batches` says, and it lets one at a time through to the collator.
    With more than one thread, random masks depend on which batch comes first, unless they are drawn by `rng="philox"`.

    Args:
        collator: one of quadrat's collators, or any callable that takes a `pyarrow.Table`.
        columns: the columns to give it, in this order; by default all of them. Texts and other columns that the model
            does not take are best left out here.

    Raises:
        TypeError: when `collator` cannot be called or is one of transformers', or `columns` is one name.
        ValueError: when a batch lacks one of `columns`. Else what the collator raises.
    """

    def __init__(self, collator: Callable[[Any], Any], columns: Sequence[str] | None = None) -> None:
        if not callable(collator):
            raise TypeError(f"collator must be callable, not {type(collator).__name__}")
        if type(collator).__module__.startswith("transformers."):
            raise TypeError(
                f"{type(collator).__name__} of transformers takes no Arrow tables: give quadrat's class of that name,"
                " or quadrat.from_transformers(collator)"
            )
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names: give [{columns!r}]")
        self.collator = collator
        self.columns = None if columns is None else tuple(columns)
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

    def __getstate__(self) -> dict[str, Any]:
        """Collator and columns: locks stay where they are."""
        return {"collator": self.collator, "columns": self.columns}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def without_tensor_types(table: pa.Table) -> pa.Table:
    """`table`, with lists for columns of Ray's tensor types and of Arrow's.

    Of one dimension, the numbers are left where they are; tensors of more become nested lists, made one by one.
    """
    for position, field in enumerate(table.schema):
        dimensions = _dimensions(field.type)
        if dimensions is None:
            continue
        column = table.column(position)
        if dimensions == 1:
            lists = pa.chunked_array([_storage_lists(chunk) for chunk in column.chunks], type=_list_type(field.type))
        else:
            lists = pa.chunked_array([[_nested(cell) for cell in column]])
        table = table.set_column(position, field.name, lists)
    return table


def _select(batch: Any, columns: tuple[str, ...]) -> Any:
    there = batch.column_names if isinstance(batch, pa.Table) else list(batch)
    missing = [name for name in columns if name not in there]
    if missing:
        raise ValueError(f"the batch has no column {missing[0]!r}; it has {there}")
    return batch.select(list(columns)) if isinstance(batch, pa.Table) else {name: batch[name] for name in columns}


def _dimensions(arrow_type: pa.DataType) -> int | None:
    """Of each tensor in a column of this type; None where the type is not a tensor's."""
    name = getattr(arrow_type, "extension_name", None)
    if name in _FIXED_SHAPE:
        return len(arrow_type.shape)
    return int(arrow_type.ndim) if name == _VARIABLE_SHAPE else None


def _list_type(arrow_type: pa.DataType) -> pa.DataType:
    storage = arrow_type.storage_type
    return storage.field("data").type if arrow_type.extension_name == _VARIABLE_SHAPE else storage


def _storage_lists(chunk: pa.ExtensionArray) -> pa.Array:
    storage = chunk.storage
    # Flattening a struct takes its own nulls and its slice into account, which `field` does not.
    return storage.flatten()[0] if chunk.type.extension_name == _VARIABLE_SHAPE else storage


def _nested(cell: pa.Scalar) -> Any:
    if not cell.is_valid:
        return None
    made = cell.as_py()  # Ray's are arrays there, Arrow's own flat lists
    return (cell.to_numpy() if isinstance(made, list) else made).tolist()
