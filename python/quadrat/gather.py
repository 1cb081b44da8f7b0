"""What an evaluation leaves behind: gathered in linear time, and handed to metrics without padding."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quadrat._extras import needs
from quadrat._memory import is_tensor
from quadrat.ops._nested import Nested, Unusual, made, matches, opened
from quadrat.ops._pieces import Pieces
from quadrat.ops.concat import Joined
from quadrat.ops.unpad import unpad

with needs("quadrat.gather", "transformers"):
    from transformers import trainer_pt_utils
    from transformers.trainer_pt_utils import expand_like, nested_numpify, nested_truncate

logger = logging.getLogger("quadrat")

DEFAULT_PADDING = -100


class EvalLoopContainer(trainer_pt_utils.EvalLoopContainer):  # type: ignore[misc]
    """The container that Trainer gathers losses, predictions and labels in, in time and memory linear in what is added.

    That of transformers makes all it holds anew at each step. This one appends, and pads once, in place: at its peak
    it holds the result. Same results, `tensors` and `arrays` included; looking at these two joins what is there so far.

    Args:
        do_nested_concat: whether to join batches along the first axis, padding the second; else they stay in a list.
        padding_index: what shorter batches are padded with.
        ragged: with `do_nested_concat`, hand arrays of two and more dimensions out as a `Ragged` whose rows are as long
            as they were in their batch. Nothing is padded, and tensors of a GPU are copied as they are added.
    """

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100, *, ragged: bool = False) -> None:
        """See the class."""
        self.ragged = ragged
        self._batches: Any = None
        self._gathered: Any = None
        super().__init__(do_nested_concat, padding_index)

    @property
    def tensors(self) -> Any:
        """What was added since the last `to_cpu_and_numpy`, joined, as the tensors that were given."""
        return _value(self._batches)

    @tensors.setter
    def tensors(self, value: Any) -> None:
        self._batches = value

    @property
    def arrays(self) -> Any:
        """What was there at the last `to_cpu_and_numpy`, joined, as NumPy arrays; Ragged ones with `ragged`."""
        return _value(self._gathered, ragged=self.ragged and self.do_nested_concat)

    @arrays.setter
    def arrays(self, value: Any) -> None:
        self._gathered = value

    def add(self, tensors: Any) -> None:
        """Add a batch: a tensor, or lists, tuples and mappings of tensors, of the structure of the first.

        Raises:
            AssertionError: when it is of another type than those before.
            TypeError: when it holds something else than tensors.
            RuntimeError, IndexError, KeyError: when dimensions, dtypes or keys do not go with those before.
            ValueError: with `ragged`, when dimensions do not.
        """
        if not self.do_nested_concat:
            super().add(tensors)
        elif self.ragged:
            self._gathered = _added(self._gathered, nested_numpify(tensors), self.padding_index, ragged=True)
        else:
            self._batches = _added(self._batches, tensors, self.padding_index)

    def to_cpu_and_numpy(self) -> None:
        """Move what was added to the CPU, as NumPy arrays."""
        if not self.do_nested_concat:
            super().to_cpu_and_numpy()
        elif self._batches is not None:
            self._gathered = _added(self._gathered, nested_numpify(self.tensors), self.padding_index)
            self._batches = None

    def __getstate__(self) -> dict[str, Any]:
        """What the reference keeps, and `ragged`."""
        own = {name: value for name, value in vars(self).items() if name not in ("_batches", "_gathered")}
        return own | {"tensors": self.tensors, "arrays": self.arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See `__getstate__`."""
        for name, value in state.items():
            setattr(self, name, value)


def _added(joined: Any, batch: Any, padding_index: int, *, ragged: bool = False) -> Any:
    if joined is None:
        return None if batch is None else Joined(batch, padding_index, ragged=ragged)
    if not isinstance(joined, Joined):
        joined = Joined(joined, padding_index, ragged=ragged)
    joined.add(batch)
    return joined


def _value(held: Any, *, ragged: bool = False) -> Any:
    if not isinstance(held, Joined):
        return held
    return held.ragged() if ragged else held.value()


class DistributedTensorGatherer:
    """Arrays that processes computed batch by batch, in the order of the data set: that of transformers 4.x.

    A sampler that gives each process a stretch of the data set (`SequentialDistributedSampler`) and a gather after each
    step leave the batches of all processes side by side. Here the rows go back to their places, and those that only
    filled up the last batches are cut off. Batches are kept without padding, and padded once.

    Args:
        world_size: the number of processes.
        num_samples: the rows of the data set.
        make_multiple_of: what the rows of each process were made a multiple of.
        padding_index: what shorter batches are padded with.
    """

    def __init__(
        self, world_size: int, num_samples: int, make_multiple_of: int | None = None, padding_index: int = -100
    ) -> None:
        """See the class."""
        self.world_size = world_size
        self.num_samples = num_samples
        total_size = world_size if make_multiple_of is None else world_size * make_multiple_of
        self.total_samples = int(np.ceil(num_samples / total_size)) * total_size
        self.process_length = self.total_samples // world_size
        self.padding_index = padding_index
        # Where the next rows of each process go.
        self._offsets: list[int] = []
        self._structure: Nested | None = None
        self._leaves: list[Pieces] | None = None
        # Once something does not go with what is there: arrays of all rows, written to at once.
        self._storage: Any = None

    def add_arrays(self, arrays: Any) -> None:
        """Add what all processes made in a step: `[world_size * rows, ...]`, those of process 0 first.

        Args:
            arrays: a NumPy array, or lists, tuples and mappings of such, of the structure of the first. None is left
                out.

        Raises:
            AssertionError: when the rows are no multiple of the number of processes.
            ValueError: when there are more rows than places, or their dimensions differ from the first ones'.
        """
        if arrays is None:
            return
        if self._leaves is None and self._storage is None:
            self._begin(arrays)
        rows = self._take(arrays)
        if rows is None:
            storage = self._arranged(self.total_samples) if self._storage is None else self._storage
            rows, self._storage = self._written(storage, arrays)
            self._leaves = None
        self._offsets = [offset + rows for offset in self._offsets]

    def finalize(self) -> Any:
        """The arrays, `[num_samples, widest, ...]`, in the order of the data set; None when nothing was added."""
        if self._leaves is None and self._storage is None:
            return None
        if self._offsets[0] != self.process_length:
            logger.warning("Not all data has been set. Are you sure you passed all values?")
        if self._storage is not None:
            return nested_truncate(self._storage, self.num_samples)
        return self._arranged(self.num_samples)

    def _begin(self, arrays: Any) -> None:
        # The reference pads what is in a tuple with its default, until a wider batch comes.
        padding = DEFAULT_PADDING if isinstance(arrays, (list, tuple)) else self.padding_index
        firsts: list[Any] = []
        storage, leaves = None, None
        try:
            self._structure = opened(arrays, firsts)
            firsts = [_as_array(first) for first in firsts]
            for first in firsts:
                np.full_like(first, padding, shape=1)  # which raises where the padding is no number of the dtype
            leaves = [Pieces(first, padding, copies=True) for first in firsts]
        except Unusual:
            storage = _new_like(arrays, self.total_samples, padding)
        self._offsets = list(range(0, self.total_samples, self.process_length))
        self._storage, self._leaves = storage, leaves

    def _take(self, arrays: Any) -> int | None:
        """Take in what goes with the others; the rows that each process added, None where something does not."""
        parts: list[Any] = []
        if not self._leaves or not matches(self._structure, arrays, parts):
            return None
        parts = [_as_array(part) for part in parts]
        pairs = list(zip(self._leaves, parts, strict=True))
        if not all(
            part.ndim and leaf.fits(part) and (leaf.padding == self.padding_index or leaf.covers(part))
            for leaf, part in pairs
        ):
            return None
        rows, rest = divmod(len(parts[0]), self.world_size)
        if rest or self._offsets[0] + rows > self.process_length or any(len(part) != len(parts[0]) for part in parts):
            return None
        for leaf, part in [(leaf, leaf.cast(part)) for leaf, part in pairs]:
            leaf.append(part)
        return rows

    def _arranged(self, count: int) -> Any:
        """The first `count` rows, each in its place, and padding for those that did not come."""
        made_of = [leaf.arranged(self._places(leaf, count)) for leaf in self._leaves or []]
        return made(self._structure, iter(made_of))

    def _places(self, leaf: Pieces, count: int) -> NDArray[np.int64]:
        blocks = leaf.blocks()
        rows = blocks[:, 1] // self.world_size
        # [processes, steps + 1]: a stretch of each piece, and what did not come.
        places = np.zeros((self.world_size, len(blocks) + 1, 3), np.int64)
        process = np.arange(self.world_size)[:, None]
        places[:, :-1, 0] = blocks[:, 0] + process * rows * blocks[:, 2] * leaf.token_size
        places[:, :-1, 1], places[:, :-1, 2] = rows, blocks[:, 2]
        places[:, -1, 1] = self.process_length - rows.sum()
        flat = places.reshape(-1, 3)
        starts = np.cumsum(flat[:, 1]) - flat[:, 1]
        flat[:, 1] = np.clip(count - starts, 0, flat[:, 1])
        return flat

    def _written(self, storage: Any, arrays: Any) -> tuple[int, Any]:
        """Write arrays to their places at once. The rows of a process, and the storage, a wider one where need be."""
        make: Any = type(arrays)
        if isinstance(arrays, (list, tuple)):
            pairs = [self._written(*pair) for pair in zip(storage, arrays, strict=False)]
            return pairs[0][0], make(written for _, written in pairs)
        if isinstance(arrays, Mapping):
            found = {key: self._written(storage[key], value) for key, value in arrays.items()}
            return next(iter(found.values()))[0], make({key: written for key, (_, written) in found.items()})
        rows, rest = divmod(arrays.shape[0], self.world_size)
        if rest:
            raise AssertionError(
                f"Arrays passed should all have a first dimension multiple of {self.world_size}, found {len(arrays)}."
            )
        for process, offset in enumerate(self._offsets):
            part = arrays[process * rows : (process + 1) * rows]
            if len(arrays.shape) == 1:
                storage[offset : offset + rows] = part
                continue
            if storage.ndim > 1 and storage.shape[1] < arrays.shape[1]:
                storage = expand_like(storage, arrays.shape[1], padding_index=self.padding_index)
            storage[offset : offset + rows, : arrays.shape[1]] = part
        return rows, storage


def _new_like(arrays: Any, rows: int, padding: int) -> Any:
    make: Any = type(arrays)
    if isinstance(arrays, (list, tuple)):
        return make(_new_like(part, rows, padding) for part in arrays)
    if isinstance(arrays, Mapping):
        return make({key: _new_like(part, rows, padding) for key, part in arrays.items()})
    return np.full_like(arrays, padding, shape=(rows, *arrays.shape[1:]))


def _as_array(value: Any) -> Any:
    return np.asarray(value) if is_tensor(value) else value


def without_padding(
    compute_metrics: Callable[..., dict[str, Any]], *, padding_index: int = -100
) -> Callable[..., dict[str, Any]]:
    """A `compute_metrics` for Trainer that hands predictions and labels on without padding.

    Trainer's `EvalPrediction` has padded arrays. The function given here gets one of the same type, in which

    - labels of several dimensions are a `Ragged` of those that are not `padding_index`;
    - predictions, inputs and whatever else has the rows and width of the labels is a `Ragged` of the same tokens, so
      that `prediction.predictions.values[k]` goes with `prediction.label_ids.values[k]`;
    - integers of another width than the labels, such as generated tokens, are a `Ragged` of those that are not
      `padding_index`;
    - everything else (labels of one dimension, losses) is as it was. Tuples and mappings are kept.

    Args:
        compute_metrics: gets an `EvalPrediction`, and what else Trainer passes (`compute_result`).
        padding_index: the label of tokens that count for nothing: padding, special tokens, parts of words.
    """

    @functools.wraps(compute_metrics)  # Trainer looks whether it takes `compute_result`
    def compute(prediction: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        labels = [label for label in _arrays_in(prediction.label_ids) if label.ndim > 1]
        masks = {tuple(label.shape[:2]): label != padding_index for label in reversed(labels) if label.ndim == 2}

        def without(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(without(part) for part in value)
            if isinstance(value, Mapping):
                return type(value)({key: without(part) for key, part in value.items()})  # type: ignore[call-arg]
            if not masks or not _is_array(value) or value.ndim < 2:
                return value
            mask = masks.get(tuple(value.shape[:2]))
            if mask is None and value.ndim == 2 and "int" in str(value.dtype):
                mask = value != padding_index
            try:
                return value if mask is None else unpad(value, mask=mask)
            except TypeError:  # text, say
                return value

        parts = {name: without(getattr(prediction, name, None)) for name in ("inputs", "losses")}
        plain = type(prediction)(without(prediction.predictions), without(prediction.label_ids), **parts)
        return compute_metrics(plain, *args, **kwargs)

    return compute


def _is_array(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, np.ndarray)


def _arrays_in(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, Mapping)):
        parts = value.values() if isinstance(value, Mapping) else value
        return [array for part in parts for array in _arrays_in(part)]
    return [value] if _is_array(value) else []
