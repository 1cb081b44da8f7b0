"""Predictions and labels of an evaluation: gathered in linear time, and passed to metrics without padding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from quadrat.evaluation.atomic import HAS_GIL, Atomic
from quadrat.ops._nested import is_array, joins, leaves_of, likeness, tree_map
from quadrat.ops.concat import Grown, GrownRagged, concat_two, concatenated
from quadrat.ops.pad import pad
from quadrat.ops.unpad import unpad
from quadrat.ragged import Ragged
from quadrat.support.extras import needs

with needs("quadrat.evaluation.containers", "transformers"):
    import torch
    from transformers.trainer_pt_utils import nested_numpify

    from quadrat.installed import imitated, originals
    from quadrat.installed.imitated import Row, code_of

_JOINS = "nested_concat", "torch_pad_and_concatenate", "numpy_pad_and_concatenate", "atleast_1d", "nested_numpify"
Row("EvalLoopContainer", code_of("EvalLoopContainer", *_JOINS, home="trainer_pt_utils"), compares=False)
_SMALL = 2**21  # bytes: from here on, memory that grows is faster than a copy of all batches
_FEW = 4  # batches: from here on, one pass over all is faster than a pass at each step

# What a container holds, as tensors and as arrays: nothing, batches joined or listed, or a value that was read or set.
_Held = tuple[Any, Any]


class _Apart(NamedTuple):
    """Batches that one call joins, alike from the fifth on. Nothing here is ever written to."""

    before: _Apart | None
    batch: Any  # in memory of its own
    number: int  # of batches
    padding: Any
    likeness: Any = None  # of the first; None where nobody asked yet
    size: int = 0  # of all of them, in bytes

    def plus(self, batch: Any) -> _Apart | Grown | None:
        """These and one more; None if they are not alike."""
        if self.number < _FEW:
            return _Apart(None, concat_two(self.batch, batch, self.padding), self.number + 1, self.padding)
        own, size = self.likeness, self.size
        if own is None:
            own = likeness(self.batch)
            size = 0 if own is None else _bytes_in(self.batch)
        if not joins(own, likeness(batch), self.padding):
            return None
        size += _bytes_in(batch)
        if size > _SMALL and (grown := Grown.of([*self.parts(), batch], self.padding)) is not None:
            return grown
        return _Apart(self, tree_map(_cloned, batch), self.number + 1, self.padding, own, size)

    def whole(self) -> Any:
        return self.batch if self.before is None else concatenated(self.parts(), self.padding)

    def parts(self) -> list[Any]:
        return [link.batch for link in _chain(self)]


def _bytes_in(batch: Any) -> int:
    return sum(int(leaf.nbytes) for leaf in leaves_of(batch))


def _cloned(array: Any) -> Any:
    return array.clone() if isinstance(array, torch.Tensor) else array.copy(order="K")


class _Listed(NamedTuple):
    before: Any
    more: list[Any]

    def whole(self) -> list[Any]:
        links = _chain(self)
        return [*(links[0].before or []), *(batch for link in links for batch in link.more)]


def _chain(last: Any) -> list[Any]:
    links = [last]
    while type(links[-1].before) is type(last):
        links.append(links[-1].before)
    return links[::-1]


class EvalLoopContainer(Atomic, originals.EvalLoopContainer):  # type: ignore[misc,name-defined]
    """The container in which Trainer gathers losses, predictions and labels, in linear time and memory.

    The class of transformers copies everything it holds at each step. This one appends, and pads once, in place, so
    that its peak memory is the size of the result. The results are the same, also those of `tensors` and `arrays`;
    reading these two joins the batches added so far. Several threads may use one container. If adding a batch fails or
    is interrupted, the container holds the whole batch or nothing of it.

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

    def __new__(cls, do_nested_concat: bool = True, padding_index: int = -100, *, ragged: bool = False) -> Any:
        """The container of transformers, if its code is unknown and it can do what is asked."""
        if cls is EvalLoopContainer and not ragged and imitated.unknown("EvalLoopContainer") is not None:
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

    def _copied(self, held: _Held) -> _Held:
        tensors, arrays = (
            one._replace(leaves=[leaf.copied() for leaf in one.leaves]) if isinstance(one, Grown | GrownRagged) else one
            for one in held
        )
        return tensors, arrays

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
        before, arrays = self._held
        if before is None and self.do_nested_concat and not self.ragged and HAS_GIL:
            self._held = (tensors, arrays)  # no handler and no other thread comes in between, as nothing is called
            return
        self._change(self._added, nested_numpify(tensors) if self.ragged and self.do_nested_concat else tensors)

    def _added(self, held: _Held, batch: Any) -> tuple[_Held, None]:
        tensors, arrays = held
        if not self.do_nested_concat:
            return (_Listed(tensors, [batch]), arrays), None
        if self.ragged:
            return (tensors, self._plus(arrays, batch)), None
        return (batch if tensors is None else self._plus(tensors, batch), arrays), None

    def to_cpu_and_numpy(self) -> None:
        """Move the batches added so far to the CPU, as NumPy arrays."""
        self._change(self._moved)

    def get_arrays(self) -> Any:
        """All batches, on the CPU, as NumPy arrays, or as `Ragged` with `ragged`."""
        before = self._held
        few = before[1] is None and before[0] is not None and type(before[0]) is not Grown  # or they are small
        if few and HAS_GIL:
            array = _numpify(self._whole(before[0]))
            if self._held is before:
                self._held = (None, array)
                return array
        return self._change(lambda held: self._arrays_seen(self._moved(held)[0]))

    def _moved(self, held: _Held) -> tuple[_Held, None]:
        tensors, before = held
        if tensors is None:
            return held, None
        arrays = _numpify(self._whole(tensors))
        if self.do_nested_concat:
            arrays = self._plus(before, arrays)
        elif before is not None:
            arrays = _Listed(before, arrays)
        return (None, arrays), None

    def _plus(self, held: Any, batch: Any) -> Any:
        if self.ragged:
            return self._plus_ragged(held, batch)
        if held is None:
            return batch
        alike = isinstance(held, (_Apart, Grown)) and held.padding is self.padding_index  # which may have been set
        if alike and (more := held.plus(batch)) is not None:
            return more
        # What is not like the others is joined at once, or refused. It seldom is so twice.
        return _Apart(None, concat_two(self._whole(held), batch, self.padding_index), 2, self.padding_index)

    def _plus_ragged(self, held: Any, batch: Any) -> Any:
        if held is None:
            return None if batch is None else GrownRagged.of(batch)
        rows = held if isinstance(held, GrownRagged) else GrownRagged.of(held)
        if (more := rows.plus(batch)) is not None:
            return more
        concat_two(rows.none(), batch, self.padding_index)
        raise ValueError("the arrays of a batch must have as many dimensions as those of the first")

    def _arrays_seen(self, held: _Held) -> tuple[_Held, Any]:
        tensors, arrays = held
        if self.ragged and self.do_nested_concat and arrays is not None:
            rows = arrays if isinstance(arrays, GrownRagged) else GrownRagged.of(arrays)
            return (tensors, rows), rows.whole()
        whole = self._whole(arrays)
        return (tensors, whole), whole

    def _tensors_seen(self, held: _Held) -> tuple[_Held, Any]:
        whole = self._whole(held[0])
        return (whole, held[1]), whole

    def _whole(self, held: Any) -> Any:
        """All that is held as one batch. A `Ragged` is padded, because `ragged` may have been set to False."""
        whole = held.whole() if isinstance(held, (_Apart, Grown, GrownRagged, _Listed)) else held
        if not isinstance(held, GrownRagged):
            return whole
        return tree_map(lambda one: pad(one, padding_value=self.padding_index) if type(one) is Ragged else one, whole)

    def __getstate__(self) -> dict[str, Any]:
        """The state of the reference, and `ragged`."""

        def seen(held: _Held) -> tuple[_Held, dict[str, Any]]:
            held, tensors = self._tensors_seen(held)
            held, arrays = self._arrays_seen(held)
            return held, {"tensors": tensors, "arrays": arrays}

        return self._options() | self._change(seen)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._held = (None, None)
        for name, value in state.items():
            setattr(self, name, value)


def _numpify(tensors: Any) -> Any:
    """As `nested_numpify`, which looks at each type by way of abstract classes."""
    if type(tensors) is torch.Tensor:
        try:
            return tensors.numpy()
        except TypeError:  # on another device, or of a type that NumPy lacks
            return nested_numpify(tensors)
    if type(tensors) is tuple:
        return tuple(map(_numpify, tensors))
    return nested_numpify(tensors)


def _rows_in(held: Any) -> int:
    if isinstance(held, (Grown, GrownRagged)):
        return int(held.leaves[0].shapes()[0].sum()) if held.leaves else 0
    batches = held.whole() if isinstance(held, _Listed) else held.parts() if isinstance(held, _Apart) else [held]
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
