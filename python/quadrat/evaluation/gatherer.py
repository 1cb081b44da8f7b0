"""Arrays of several processes, in the order of the data set."""

import copy
import logging
import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat.ops.concat import leaves_of, tree_map
from quadrat.support.extras import needs

with needs("quadrat.evaluation.gatherer", "transformers"):
    from transformers.trainer_pt_utils import expand_like, nested_truncate

logger = logging.getLogger("quadrat")


class _Stored(NamedTuple):
    offsets: tuple[int, ...] = ()  # where the next rows of each process go
    # Arrays of all rows; None before the first step. One row more, the last, is never written: it is what did not come.
    storage: Any = None


class DistributedTensorGatherer:
    """Put arrays that several processes computed back into the order of the dataset; the class of transformers 4.x.

    Each process computes a contiguous part of the dataset (`SequentialDistributedSampler`), and a gather after each
    step joins the batches of all processes. This class puts the rows back into order and drops those that only filled
    up the last batches. Several threads may use one gatherer, and a step that fails changes nothing.

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
        self._held, self._lock = _Stored(), threading.RLock()

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
            with self._lock:
                self._held = self._with_arrays(self._held, arrays)

    def finalize(self) -> Any:
        """The arrays, `[num_samples, widest, ...]`, in the order of the data set; None when nothing was added."""
        with self._lock:
            held = self._held
            if held.storage is None:
                return None
            if held.offsets[0] != self.process_length:
                logger.warning("Not all data has been set. Are you sure you passed all values?")
            for array in leaves_of(held.storage):
                for process, offset in enumerate(held.offsets):  # an addition may have come to no end
                    array[offset : (process + 1) * self.process_length] = array[-1]
            return copy.deepcopy(nested_truncate(held.storage, self.num_samples))  # later steps do not change it

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            own = {name: value for name, value in vars(self).items() if name != "_lock"}
            return own | {"_held": tuple(copy.deepcopy(self._held))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _held=_Stored(*state["_held"]), _lock=threading.RLock())

    def _with_arrays(self, held: _Stored, arrays: Any) -> _Stored:
        """Write rows to arrays of all rows, wider ones where need be; where one fails, none is written."""
        size, offsets = self.world_size, held.offsets
        # The reference pads arrays in a list or tuple with its default, until a wider batch comes.
        padding = -100 if isinstance(arrays, (list, tuple)) else self.padding_index
        counts: list[int] = []
        writes: list[tuple[NDArray[Any], NDArray[Any]]] = []

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
            for process, offset in enumerate(offsets):
                # The reference's storage ends where the rows do.
                target = storage[:-1][(slice(offset, offset + rows), *columns)]
                part = np.empty_like(target)
                part[...] = array[process * rows : (process + 1) * rows]
                writes.append((target, part))
            counts.append(rows)
            return storage

        storage, rows = held.storage, self.total_samples + 1
        if storage is None:
            storage = tree_map(lambda array: np.full_like(array, padding, shape=(rows, *array.shape[1:])), arrays)
            offsets = tuple(range(0, self.total_samples, self.process_length))
        storage = tree_map(prepared, arrays, storage)
        for target, part in writes:
            target[...] = part
        return _Stored(tuple(offset + counts[0] for offset in offsets), storage)
