"""Predictions and labels of an evaluation: gathered in linear time, and passed to metrics without padding."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from quadrat.evaluation.atomic import Atomic
from quadrat.ops._nested import arrays_in, is_array, tree_map
from quadrat.ops.concat import Joined
from quadrat.ops.unpad import unpad
from quadrat.support.extras import needs

with needs("quadrat.evaluation.containers", "transformers"):
    from transformers.trainer_pt_utils import nested_numpify

    from quadrat.installed import imitated, originals


class _Held(NamedTuple):
    """What a container holds: nothing, batches joined or listed, or a value that was read or set."""

    tensors: Any
    arrays: Any

    def copied(self) -> _Held:
        """The same, in memory of its own."""
        return _Held(*(part.copied() if isinstance(part, Joined) else part for part in self))


class _Listed(NamedTuple):
    """Batches that stay apart: those before, and more."""

    before: Any
    more: list[Any]

    def whole(self) -> list[Any]:
        """All of them."""
        parts, rest = [], self
        while isinstance(rest, _Listed):
            parts.append(rest.more)
            rest = rest.before
        return [*(rest or []), *itertools.chain.from_iterable(reversed(parts))]


class EvalLoopContainer(originals.EvalLoopContainer):  # type: ignore[misc,name-defined]
    """The container in which Trainer gathers losses, predictions and labels, in linear time and memory.

    The class of transformers copies everything it holds at each step. This one appends, and pads once, in place, so
    that its peak memory is the size of the result. The results are the same, also those of `tensors` and `arrays`;
    reading these two joins the batches added so far. Several threads may use one container. If adding a batch fails or
    is interrupted, the container holds the whole batch or nothing of it.

    Args:
        do_nested_concat: whether to join batches along the first axis, padding the second; otherwise they stay in a
            list.
        padding_index: the padding value for narrower batches.
        ragged: quadrat only: with `do_nested_concat`, returns arrays of two and more dimensions as a `Ragged` whose
            rows are as long as they were in their batch. Nothing is padded, and tensors on a GPU are copied when they
            are added.

    Examples:
        >>> import torch, quadrat
        >>> container = quadrat.EvalLoopContainer()
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
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, bool]]:
        return (), {"ragged": self.ragged}  # `__new__` chooses a class for copies, too

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100, *, ragged: bool = False) -> None:
        self.ragged = ragged
        self._held = Atomic(_Held(None, None), _Held.copied)
        super().__init__(do_nested_concat, padding_index)

    @property
    def tensors(self) -> Any:
        """The batches added since the last `to_cpu_and_numpy`, joined, as tensors."""
        return self._held.change(_tensors_seen)

    @tensors.setter
    def tensors(self, value: Any) -> None:
        self._held.change(lambda held: (held._replace(tensors=value), None))

    @property
    def arrays(self) -> Any:
        """The batches that were moved to the CPU, joined, as NumPy arrays, or as `Ragged` with `ragged`."""
        return self._held.change(self._arrays_seen)

    @arrays.setter
    def arrays(self, value: Any) -> None:
        self._held.change(lambda held: (held._replace(arrays=value), None))

    def add(self, tensors: Any) -> None:
        """Add a batch: a tensor, or lists, tuples and mappings of tensors, of the structure of the first.

        Raises:
            AssertionError: when it is of another type than those before.
            TypeError: when it holds anything but tensors.
            RuntimeError, IndexError, KeyError: when dimensions, dtypes or keys do not match those before.
            ValueError: with `ragged`, when dimensions do not match those before.
            MemoryError: when there is no memory for it.
        """
        if not self.do_nested_concat:
            self._held.change(lambda held: (_Held(_Listed(held.tensors, [tensors]), held.arrays), None))
        elif self.ragged:
            arrays = nested_numpify(tensors)
            self._held.change(lambda held: (_Held(held.tensors, self._plus(held.arrays, arrays)), None))
        else:
            self._held.change(lambda held: (_Held(self._plus(held.tensors, tensors), held.arrays), None))

    def to_cpu_and_numpy(self) -> None:
        """Move the batches added so far to the CPU, as NumPy arrays."""
        self._held.change(self._moved)

    def _moved(self, held: _Held) -> tuple[_Held, None]:
        if held.tensors is None:
            return held, None
        arrays = nested_numpify(_value(_whole(held.tensors)))
        if self.do_nested_concat:
            arrays = self._plus(held.arrays, arrays)
        elif held.arrays is not None:
            arrays = _Listed(held.arrays, arrays)
        return _Held(None, arrays), None

    def _plus(self, held: Any, batch: Any) -> Any:
        if held is None:
            return None if batch is None else Joined.of(batch, self.padding_index, ragged=self.ragged)
        joined = held if isinstance(held, Joined) else Joined.of(held, self.padding_index, ragged=self.ragged)
        return joined.plus(batch)

    def _arrays_seen(self, held: _Held) -> tuple[_Held, Any]:
        if self.ragged and isinstance(held.arrays, Joined):
            arrays = held.arrays.begun()
            return held._replace(arrays=arrays), arrays.ragged()
        whole = _whole(held.arrays)
        return held._replace(arrays=whole), _value(whole)

    def __getstate__(self) -> dict[str, Any]:
        """What the reference keeps, and `ragged`."""

        def seen(held: _Held) -> tuple[_Held, dict[str, Any]]:
            held, tensors = _tensors_seen(held)
            held, arrays = self._arrays_seen(held)
            return held, {"tensors": tensors, "arrays": arrays}

        own = {name: value for name, value in vars(self).items() if name != "_held"}
        return own | self._held.change(seen)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._held = Atomic(_Held(None, None), _Held.copied)
        for name, value in state.items():
            setattr(self, name, value)


def _tensors_seen(held: _Held) -> tuple[_Held, Any]:
    tensors = _whole(held.tensors)
    return held._replace(tensors=tensors), _value(tensors)


def _whole(held: Any) -> Any:
    return held.whole() if isinstance(held, (Joined, _Listed)) else held


def _value(held: Any) -> Any:
    return held.value() if isinstance(held, Joined) else held


def without_padding(
    compute_metrics: Callable[..., dict[str, Any]], *, padding_index: int = -100
) -> Callable[..., dict[str, Any]]:
    """Make a `compute_metrics` for Trainer that gets predictions and labels without padding.

    Trainer's `EvalPrediction` holds padded arrays. Your function gets one of the same type, in which

    - labels of several dimensions are a `Ragged` of those that are not `padding_index`;
    - predictions, inputs and all arrays with the rows and width of the labels are a `Ragged` of the same tokens, so
      that `prediction.predictions.values[k]` goes with `prediction.label_ids.values[k]`;
    - integers of another width than the labels, such as generated tokens, are a `Ragged` of those that are not
      `padding_index`;
    - everything else (labels of one dimension, losses) does not change. Tuples and mappings are kept.

    Args:
        compute_metrics: your function. It gets an `EvalPrediction`, and whatever else Trainer passes
            (`compute_result`).
        padding_index: the label of tokens that do not count: padding, special tokens, parts of words.

    Examples:
        >>> import numpy, quadrat
        >>> from transformers import EvalPrediction
        >>> def compute_metrics(prediction):
        ...     chosen = prediction.predictions.values.argmax(-1)
        ...     return {"accuracy": float((chosen == prediction.label_ids.values).mean())}
        >>> logits = numpy.array([[[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]])  # one row, three tokens, two classes
        >>> labels = numpy.array([[1, 1, -100]])  # the last token is padding
        >>> quadrat.without_padding(compute_metrics)(EvalPrediction(logits, labels))
        {'accuracy': 0.5}
    """

    @functools.wraps(compute_metrics)  # Trainer looks whether it takes `compute_result`
    def compute(prediction: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        labels = [label for label in arrays_in(prediction.label_ids) if label.ndim > 1]
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
