"""Arrays of several processes, in the order of the data set."""

from __future__ import annotations

import copy
import logging
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat.evaluation.atomic import Atomic
from quadrat.ops._nested import Nested, Unusual, arrays_in, leaves_like, tree_flatten, tree_map, tree_unflatten
from quadrat.ops._pieces import Copied, Pieces, width_of
from quadrat.support.extras import needs
from quadrat.support.memory import is_tensor

with needs("quadrat.evaluation.gatherer", "transformers"):
    from transformers.trainer_pt_utils import expand_like, nested_truncate

logger = logging.getLogger("quadrat")

DEFAULT_PADDING = -100


class _Stretches(NamedTuple):
    """What a gatherer holds: where the next rows of each process go, and what has come."""

    offsets: tuple[int, ...]
    # Batches as they came, or arrays of all rows, once a batch does not go with those before.
    structure: Nested | None
    leaves: list[Any] | None
    storage: Any

    @property
    def is_empty(self) -> bool:
        return self.leaves is None and self.storage is None

    def moved_on(self, rows: int, leaves: list[Any] | None, storage: Any) -> _Stretches:
        """After so many rows more of each process."""
        return _Stretches(tuple(offset + rows for offset in self.offsets), self.structure, leaves, storage)

    def copied(self) -> _Stretches:
        """The same, in memory of its own."""
        leaves = None if self.leaves is None else [leaf.copied() for leaf in self.leaves]
        return self._replace(leaves=leaves, storage=copy.deepcopy(self.storage))


class DistributedTensorGatherer(Atomic):
    """Put arrays that several processes computed back into the order of the dataset; the class of transformers 4.x.

    Each process computes a contiguous part of the dataset (`SequentialDistributedSampler`), and a gather after each
    step joins the batches of all processes. This class puts the rows back into order and drops those that only filled
    up the last batches. It keeps batches without padding and pads once.

    Args:
        world_size: the number of processes.
        num_samples: the number of rows of the dataset.
        make_multiple_of: the number of rows of each process is rounded up to a multiple of this.
        padding_index: the padding value for narrower batches.

    Examples:
        >>> import numpy, quadrat
        >>> gatherer = quadrat.evaluation.DistributedTensorGatherer(world_size=2, num_samples=3)  # rows 0, 1 and row 2
        >>> gatherer.add_arrays(numpy.array([[10], [12]]))  # the first step: row 0, row 2
        >>> gatherer.add_arrays(numpy.array([[11], [10]]))  # the second: row 1, and row 0 once more
        >>> gatherer.finalize()
        array([[10],
               [11],
               [12]])
    """

    def __init__(
        self, world_size: int, num_samples: int, make_multiple_of: int | None = None, padding_index: int = -100
    ) -> None:
        self.world_size = world_size
        self.num_samples = num_samples
        total_size = world_size if make_multiple_of is None else world_size * make_multiple_of
        self.total_samples = int(np.ceil(num_samples / total_size)) * total_size
        self.process_length = self.total_samples // world_size
        self.padding_index = padding_index
        self._held = _Stretches((), None, None, None)

    def _copied(self, held: _Stretches) -> _Stretches:
        return held.copied()

    def add_arrays(self, arrays: Any) -> None:
        """Add the rows of all processes in one step: `[world_size * rows, ...]`, those of process 0 first.

        Args:
            arrays: a NumPy array, or lists, tuples and mappings of such, of the structure of the first. None is
                ignored.

        Raises:
            AssertionError: when the rows are not a multiple of the number of processes.
            ValueError: when there are more rows than places, or their dimensions differ from the first ones'.
        """
        if arrays is not None:
            self._change(lambda held: (self._plus(held, arrays), None))

    def finalize(self) -> Any:
        """The arrays, `[num_samples, widest, ...]`, in the order of the data set; None when nothing was added."""
        return self._change(lambda held: (held, self._finalized(held)))

    def __getstate__(self) -> dict[str, Any]:
        """The options, where the next rows go, and arrays of all rows."""

        def seen(held: _Stretches) -> tuple[_Stretches, _Stretches]:
            return held, _Stretches(held.offsets, None, None, self._storage_of(held))

        return self._options() | {"_held": self._change(seen)._asdict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _held=_Stretches(**state["_held"]))

    def _plus(self, held: _Stretches, arrays: Any) -> _Stretches:
        if held.is_empty:
            held = self._begun(arrays)
        taken = self._taken(held, arrays)
        if taken is not None:
            rows, leaves = taken
            return held.moved_on(rows, leaves, None)
        return self._written(held, arrays)

    def _finalized(self, held: _Stretches) -> Any:
        if held.is_empty:
            return None
        if held.offsets[0] != self.process_length:
            logger.warning("Not all data has been set. Are you sure you passed all values?")
        if held.leaves is not None:
            return self._arranged(held, self.num_samples)
        for array in arrays_in(held.storage):
            for process, offset in enumerate(held.offsets):  # an addition may have come to no end
                array[offset : (process + 1) * self.process_length] = array[-1]
        return nested_truncate(held.storage, self.num_samples)

    def _begun(self, arrays: Any) -> _Stretches:
        # The reference pads arrays in a list or tuple with its default, until a wider batch comes.
        padding = DEFAULT_PADDING if isinstance(arrays, (list, tuple)) else self.padding_index
        structure, leaves, storage = None, None, None
        try:
            firsts, structure = tree_flatten(arrays)
            firsts = [_as_array(first) for first in firsts]
            for first in firsts:
                np.full_like(first, padding, shape=1)  # which raises where the padding is no number of the dtype
            leaves = [Pieces.of(first, padding, copies=True) for first in firsts]
        except Unusual:
            rows = self.total_samples + 1
            storage = tree_map(lambda array: np.full_like(array, padding, shape=(rows, *array.shape[1:])), arrays)
        return _Stretches(tuple(range(0, self.total_samples, self.process_length)), structure, leaves, storage)

    def _taken(self, held: _Stretches, arrays: Any) -> tuple[int, list[Pieces]] | None:
        """The rows that each process adds, and all pieces; None where they do not go with those before."""
        parts = leaves_like(held.structure, arrays) if held.leaves else None
        if parts is None:
            return None
        pairs = list(zip(held.leaves or [], map(_as_array, parts), strict=True))
        if not all(
            part.ndim
            and leaf.fits(part)
            and (leaf.like.padding == self.padding_index or width_of(part.shape) <= leaf.width)
            for leaf, part in pairs
        ):
            return None
        counts = {len(part) for _, part in pairs}
        rows, rest = divmod(counts.pop(), self.world_size)
        if rest or counts or held.offsets[0] + rows > self.process_length:
            return None
        return rows, [leaf.plus(part) for leaf, part in pairs]

    def _storage_of(self, held: _Stretches) -> Any:
        """Arrays of all rows to write to. One more row, the last, is never written: it is what did not come."""
        return held.storage if held.leaves is None else self._arranged(held, self.total_samples + 1)

    def _arranged(self, held: _Stretches, count: int) -> Any:
        """The first `count` rows, each in its place, and padding for those that did not come."""
        arrays = [leaf.like.written(self._places(leaf, count), leaf.width) for leaf in held.leaves or []]
        return tree_unflatten(held.structure, arrays)

    def _places(self, leaf: Copied, count: int) -> NDArray[np.int64]:
        blocks = leaf.blocks()
        rows = blocks[:, 1] // self.world_size
        # [processes, steps + 1]: a stretch of each piece, and what did not come.
        places = np.zeros((self.world_size, len(blocks) + 1, 3), np.int64)
        process = np.arange(self.world_size)[:, None]
        places[:, :-1, 0] = blocks[:, 0] + process * rows * blocks[:, 2] * leaf.like.token_size
        places[:, :-1, 1], places[:, :-1, 2] = rows, blocks[:, 2]
        places[:, -1, 1] = self.process_length - rows.sum()
        places[-1, -1, 1] += 1
        flat = places.reshape(-1, 3)
        starts = np.cumsum(flat[:, 1]) - flat[:, 1]
        flat[:, 1] = np.clip(count - starts, 0, flat[:, 1])
        return flat

    def _written(self, held: _Stretches, arrays: Any) -> _Stretches:
        """Write rows to arrays of all rows, wider ones where need be; where one fails, none is written."""
        counts: list[int] = []
        writes: list[tuple[NDArray[Any], NDArray[Any]]] = []
        size = self.world_size

        def prepared(array: Any, storage: Any) -> Any:
            rows, rest = divmod(array.shape[0], size)
            if rest:
                raise AssertionError(
                    f"Arrays passed should all have a first dimension multiple of {size}, found {len(array)}."
                )
            if array.ndim > 1 and storage.ndim > 1 and storage.shape[1] < array.shape[1]:
                storage = expand_like(storage, array.shape[1], padding_index=self.padding_index)
            if not isinstance(storage, np.ndarray):
                raise TypeError(f"expected arrays in a {type(storage).__name__}, as in the first step, found an array")
            columns = () if array.ndim == 1 else (slice(array.shape[1]),)
            for process, offset in enumerate(held.offsets):
                # The reference's storage ends where the rows do.
                target = storage[:-1][(slice(offset, offset + rows), *columns)]
                part = np.empty_like(target)
                part[...] = array[process * rows : (process + 1) * rows]
                writes.append((target, part))
            counts.append(rows)
            return storage

        storage = tree_map(prepared, arrays, self._storage_of(held))
        for target, part in writes:
            target[...] = part
        return held.moved_on(counts[0], None, storage)


def _as_array(value: Any) -> Any:
    return np.asarray(value) if is_tensor(value) else value
