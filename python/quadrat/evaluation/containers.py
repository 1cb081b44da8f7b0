"""Predictions and labels of an evaluation: gathered in linear time, and passed to metrics without padding."""

from __future__ import annotations

import functools
import mmap
import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from quadrat.evaluation.ragged_parts import RaggedParts
from quadrat.ops.concat import Joining, concat_two, joins, leaves_of, likeness, tree_map
from quadrat.ops.pad import pad
from quadrat.ops.unpad import unpad
from quadrat.ragged import Ragged
from quadrat.support.arrays import is_array
from quadrat.support.extras import needs

with needs("quadrat.evaluation.containers", "transformers"):
    import torch
    from transformers.trainer_pt_utils import nested_numpify

    from quadrat.installed import imitated, originals
    from quadrat.installed.imitated import Row, code_of

_JOINS = "nested_concat", "torch_pad_and_concatenate", "numpy_pad_and_concatenate", "atleast_1d", "nested_numpify"

# What a container holds, as tensors and as arrays: None, one batch, or several that are yet to be joined.
_Held = tuple[Any, Any]
Result = TypeVar("Result")
_PAGES = 2**16  # bytes


class _Several:
    """Batches in memory of their own, alike but for rows and widths; those before the last two are joined already."""

    def __init__(self, parts: list[Any], padding: Any) -> None:
        self.parts, self.padding = parts, padding
        self._joining: Joining | None = None

    def with_batch(self, batch: Any, padding: Any) -> _Several | None:
        """These and one more; None if they do not join, or are joined already."""
        if self._joining is not None or padding is not self.padding:  # which may have been set
            return None
        if not joins(likeness(self.parts[0]), likeness(batch), padding):
            return None
        return _Several([*self.parts, tree_map(_cloned, batch)], padding)

    def as_one_batch(self) -> Any:
        """All as one. Each is let go of when it is copied, so that memory holds little more than the result."""
        if self._joining is None:
            if len(self.parts) == 1:
                return self.parts[0]
            self._joining, self.parts = Joining(self.parts, self.padding), []
        return self._joining.finished()


def _cloned(array: Any) -> Any:
    """A copy. A large one has pages of its own, which go back to the system when it is let go of; malloc keeps some."""
    if array.nbytes < _PAGES or not (array.is_cpu if isinstance(array, torch.Tensor) else True):
        return array.clone() if isinstance(array, torch.Tensor) else array.copy(order="K")
    try:
        pages = mmap.mmap(-1, array.nbytes, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise MemoryError(f"no memory for a batch of {array.nbytes} bytes") from error
    copied: Any = (torch if isinstance(array, torch.Tensor) else np).frombuffer(pages, dtype=array.dtype)
    copied = copied.reshape(array.shape)
    copied[...] = array
    return copied


class EvalLoopContainer(originals.EvalLoopContainer):  # type: ignore[misc,name-defined]
    """The container in which Trainer gathers losses, predictions and labels, in linear time and memory.

    The class of transformers copies everything it holds at each step. This one copies a batch when it is added, and
    when the result is asked for, and lets go of it then: its peak memory is about the size of the result. The results
    are the same, also those of `tensors` and `arrays`; reading these two joins the batches added so far. Several
    threads may use one container. If adding a batch fails or is interrupted, the container holds the whole batch or
    nothing of it.

    Args:
        do_nested_concat: whether to join batches along the first axis, padding the second; or to list them.
        padding_index: the padding value for narrower batches.
        ragged: quadrat only: with `do_nested_concat`, arrays of two and more dimensions become a `Ragged` whose rows
            are as long as in their batch. Nothing is padded; tensors on a GPU are copied when they are added.

    Examples:
        >>> import torch, quadrat
        >>> container = quadrat.evaluation.EvalLoopContainer()
        >>> container.add(torch.tensor([[1, 2]]))
        >>> container.add(torch.tensor([[3, 4, 5]]))
        >>> container.to_cpu_and_numpy()
        >>> container.get_arrays()
        array([[   1,    2, -100],
               [   3,    4,    5]])
    """

    _imitates: ClassVar[Row] = Row(
        "EvalLoopContainer", code_of("EvalLoopContainer", *_JOINS, home="trainer_pt_utils"), compares=False
    )

    def __new__(cls, do_nested_concat: bool = True, padding_index: int = -100, *, ragged: bool = False) -> Any:
        """The container of transformers, if its code is unknown and it can do what is asked."""
        if cls is EvalLoopContainer and not ragged and imitated.unknown(cls._imitates) is not None:
            return originals.EvalLoopContainer(do_nested_concat, padding_index)  # type: ignore[attr-defined]
        return object.__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, bool]]:
        return (), {"ragged": self.ragged}  # `__new__` chooses a class for copies, too

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100, *, ragged: bool = False) -> None:
        self.do_nested_concat, self.padding_index, self.ragged = do_nested_concat, padding_index, ragged
        self._held = (None, None)

    def __repr__(self) -> str:
        tensors, arrays = map(_rows_in, self._held)
        return f"EvalLoopContainer({tensors} rows as tensors, {arrays} as arrays)"

    def _change(self, change: Callable[[_Held], tuple[_Held, Result]]) -> Result:
        """Replace what is held by what `change` makes of it, as a whole. Returns the result that comes with it."""
        with self.__dict__.get("_lock") or self.__dict__.setdefault(
            "_lock", threading.RLock()
        ):  # copies have their own
            while True:
                before = self._held
                after, result = change(before)
                # Signal handlers may use the container, and run after calls only: none comes in between.
                if self._held is before:
                    self._held = after
                    return result

    @property
    def tensors(self) -> Any:
        """The batches added since the last `to_cpu_and_numpy`, joined, as tensors."""
        return self._change(self._tensors_seen)

    @tensors.setter
    def tensors(self, value: Any) -> None:
        self._change(lambda held: ((value, held[1]), None))

    @property
    def arrays(self) -> Any:
        """The batches that were moved to the CPU, joined, as NumPy arrays, or as `Ragged` with `ragged`."""
        return self._change(self._arrays_seen)

    @arrays.setter
    def arrays(self, value: Any) -> None:
        self._change(lambda held: ((held[0], value), None))

    def add(self, tensors: Any) -> None:
        """Add a batch: a tensor, or lists, tuples and mappings of tensors, of the structure of the first.

        Raises:
            AssertionError: when it is of another type than those before.
            TypeError: when it holds anything but tensors.
            RuntimeError, IndexError, KeyError: when dimensions, dtypes or keys do not match those before.
            ValueError: with `ragged`, when dimensions do not match those before.
            MemoryError, RuntimeError: when there is no memory for it.
        """
        batch = nested_numpify(tensors) if self.ragged and self.do_nested_concat else tensors
        self._change(lambda held: (self._added(held, batch), None))

    def _added(self, held: _Held, batch: Any) -> _Held:
        tensors, arrays = held
        if not self.do_nested_concat:
            return [*(tensors or ()), batch], arrays
        if self.ragged:
            return tensors, self._with_ragged_batch(arrays, batch)
        return self._with_batch(tensors, batch), arrays

    def to_cpu_and_numpy(self) -> None:
        """Move the batches added so far to the CPU, as NumPy arrays."""
        self._change(self._moved)

    def get_arrays(self) -> Any:
        """All batches, on the CPU, as NumPy arrays, or as `Ragged` with `ragged`."""
        return self._change(lambda held: self._arrays_seen(self._moved(held)[0]))

    def _moved(self, held: _Held) -> tuple[_Held, None]:
        tensors, before = held
        if tensors is None:
            return held, None
        arrays = nested_numpify(self._as_one_batch(tensors))
        if self.do_nested_concat:
            return (None, (self._with_ragged_batch if self.ragged else self._with_batch)(before, arrays)), None
        return (None, arrays if before is None else [*before, *arrays]), None

    def _with_batch(self, held: Any, batch: Any) -> Any:
        if held is None:
            return batch
        if isinstance(held, _Several) and (more := held.with_batch(batch, self.padding_index)) is not None:
            return more
        # The second batch, and what is not like the others, is joined at once, or refused.
        return _Several([concat_two(self._as_one_batch(held), batch, self.padding_index)], self.padding_index)

    def _with_ragged_batch(self, held: Any, batch: Any) -> Any:
        if held is None and batch is None:
            return None
        rows = held if held is None or isinstance(held, RaggedParts) else RaggedParts.of(held)
        if rows is None:
            return RaggedParts.of(batch)
        if (more := rows.with_batch(batch)) is not None:
            return more
        concat_two(rows.without_rows(), batch, self.padding_index)
        raise ValueError("the arrays of a batch must have as many dimensions as those of the first")

    def _arrays_seen(self, held: _Held) -> tuple[_Held, Any]:
        tensors, arrays = held
        if self.ragged and self.do_nested_concat and arrays is not None:
            joined = (arrays if isinstance(arrays, RaggedParts) else RaggedParts.of(arrays)).as_one_batch()
        else:
            joined = self._as_one_batch(arrays)
        return (tensors, joined), joined

    def _tensors_seen(self, held: _Held) -> tuple[_Held, Any]:
        joined = self._as_one_batch(held[0])
        return (joined, held[1]), joined

    def _as_one_batch(self, held: Any) -> Any:
        """All that is held as one batch. A `Ragged` is padded, because `ragged` may have been set to False."""
        joined = held.as_one_batch() if isinstance(held, _Several | RaggedParts) else held
        if not any(type(leaf) is Ragged for leaf in leaves_of(joined)):
            return joined
        return tree_map(lambda one: pad(one, padding_value=self.padding_index) if type(one) is Ragged else one, joined)

    def __getstate__(self) -> dict[str, Any]:
        """The state of the reference, and `ragged`."""

        def seen(held: _Held) -> tuple[_Held, dict[str, Any]]:
            held, tensors = self._tensors_seen(held)
            held, arrays = self._arrays_seen(held)
            return held, {"tensors": tensors, "arrays": arrays}

        own = {name: value for name, value in vars(self).items() if name not in ("_held", "_lock")}
        return own | self._change(seen)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._held = (None, None)
        for name, value in state.items():
            setattr(self, name, value)


def _rows_in(held: Any) -> int:
    batches = held.parts if isinstance(held, _Several | RaggedParts) else held if isinstance(held, list) else [held]
    firsts: list[Any] = [next(leaves_of(batch), None) for batch in batches]
    return sum(len(first) if getattr(first, "shape", ()) else int(first is not None) for first in firsts)


def without_padding(
    compute_metrics: Callable[..., dict[str, Any]], *, padding_index: int = -100
) -> Callable[..., dict[str, Any]]:
    """Make a `compute_metrics` for Trainer that gets predictions and labels without padding.

    Trainer's `EvalPrediction` holds padded arrays. Your function gets one of the same type, in which

    - labels of several dimensions are a `Ragged` of those that are not `padding_index`;
    - predictions, inputs and all arrays with the rows and width of the labels are a `Ragged` of the same tokens, so
      that `prediction.predictions.values[k]` goes with `prediction.label_ids.values[k]`;
    - integers of another width, such as generated tokens, are a `Ragged` of those that are not `padding_index`;
    - everything else (labels of one dimension, losses) does not change. Tuples and mappings are kept.

    Args:
        compute_metrics: your function. It gets an `EvalPrediction`, and what else Trainer passes (`compute_result`).
        padding_index: the label of tokens that do not count: padding, special tokens, parts of words.

    Examples:
        >>> import numpy, quadrat
        >>> from transformers import EvalPrediction
        >>> def compute_metrics(prediction):
        ...     chosen = prediction.predictions.values.argmax(-1)
        ...     return {"accuracy": float((chosen == prediction.label_ids.values).mean())}
        >>> logits = numpy.array([[[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]])  # one row, three tokens, two classes
        >>> labels = numpy.array([[1, 1, -100]])  # the last token is padding
        >>> quadrat.evaluation.without_padding(compute_metrics)(EvalPrediction(logits, labels))
        {'accuracy': 0.5}
    """
    if not callable(compute_metrics):
        raise TypeError(f"compute_metrics must be a function, not {compute_metrics!r}")

    @functools.wraps(compute_metrics)  # Trainer looks whether it takes `compute_result`
    def compute(prediction: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        labels = [label for label in leaves_of(prediction.label_ids) if is_array(label) and label.ndim > 1]
        masks = {tuple(label.shape[:2]): label != padding_index for label in reversed(labels) if label.ndim == 2}

        def without(value: Any) -> Any:
            if not masks or not is_array(value) or value.ndim < 2:
                return value
            mask = masks.get(tuple(value.shape[:2]))
            if mask is None and value.ndim == 2 and "int" in str(value.dtype):
                mask = value != padding_index
            try:
                return value if mask is None else unpad(value, mask=mask)
            except TypeError:  # text, say
                return value

        names = ("predictions", "label_ids", "inputs", "losses")
        parts = {name: tree_map(without, getattr(prediction, name, None)) for name in names}
        return compute_metrics(type(prediction)(**parts), *args, **kwargs)

    return compute
