"""Arrays of several processes, in the order of the data set."""

import functools
import logging
from typing import Any

import numpy as np

from quadrat.ops.concat import tree_map
from quadrat.support.extras import needs

with needs("quadrat.evaluation.gatherer", "transformers"):
    from transformers.trainer_pt_utils import expand_like, nested_truncate

logger = logging.getLogger("quadrat")


class DistributedTensorGatherer:
    """Put arrays that several processes computed back into the order of the dataset; the class of transformers 4.x.

    Each process computes a contiguous part of the dataset (`SequentialDistributedSampler`), and a gather after each
    step joins the batches of all processes. This class puts the rows back into order and drops those that only filled
    up the last batches.

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
        self._offsets: list[int] = []  # where the next rows of each process go
        self._storage: Any = None  # arrays of all rows; None before the first step

    def add_arrays(self, arrays: Any) -> None:
        """Add the rows of all processes in one step: `[world_size * rows, ...]`, those of process 0 first.

        Args:
            arrays: a NumPy array, or lists, tuples and mappings of such, of the structure of the first. None is
                ignored.

        Raises:
            AssertionError: when the rows are not a multiple of the number of processes.
            ValueError: when there are more rows than places, or their dimensions differ from the first ones'.
        """
        if arrays is None:
            return
        if self._storage is None:
            # The reference pads arrays in a list or tuple with its default, until a wider batch comes.
            padding, rows = -100 if isinstance(arrays, (list, tuple)) else self.padding_index, self.total_samples
            empty = lambda array: np.full_like(array, padding, shape=(rows, *array.shape[1:]))  # noqa: E731
            self._storage = tree_map(empty, arrays)
            self._offsets = list(range(0, rows, self.process_length))
        counts: list[int] = []
        self._storage = tree_map(functools.partial(self._written, counts), arrays, self._storage)
        self._offsets = [offset + counts[0] for offset in self._offsets]

    def finalize(self) -> Any:
        """The arrays, `[num_samples, widest, ...]`, in the order of the data set; None when nothing was added."""
        if self._storage is None:
            return None
        if self._offsets[0] != self.process_length:
            logger.warning("Not all data has been set. Are you sure you passed all values?")
        return nested_truncate(self._storage, self.num_samples)

    def _written(self, counts: list[int], array: Any, storage: Any) -> Any:
        """An array of all rows, wider where need be, with the rows of one step. counts: gets those of a process."""
        rows, rest = divmod(array.shape[0], self.world_size)
        if rest:
            raise AssertionError(
                f"Arrays passed should all have a first dimension multiple of {self.world_size}, found {len(array)}."
            )
        if array.ndim > 1 and storage.ndim > 1 and storage.shape[1] < array.shape[1]:
            storage = expand_like(storage, array.shape[1], padding_index=self.padding_index)
        columns = () if array.ndim == 1 else (slice(array.shape[1]),)
        for process, offset in enumerate(self._offsets):
            storage[(slice(offset, offset + rows), *columns)] = array[process * rows : (process + 1) * rows]
        counts.append(rows)
        return storage
