"""Predictions and labels of an evaluation: gathered in linear time, and passed to metrics without padding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from quadrat.ops.concat import Joining, concat_two, joins, leaves_of, likeness, tree_map
from quadrat.ops.unpad import unpad
from quadrat.support.arrays import is_array
from quadrat.support.extras import needs

with needs("quadrat.evaluation.containers", "transformers"):
    import torch
    from transformers.trainer_pt_utils import nested_numpify

    from quadrat.installed import imitated, originals
    from quadrat.installed.imitated import Imitation, code_of

_JOINS = "nested_concat", "torch_pad_and_concatenate", "numpy_pad_and_concatenate", "atleast_1d", "nested_numpify"
_SMALL = 1 << 20  # bytes


class _Batches:
    """Batches that are alike but for rows and widths: lists that grow, joined when somebody looks."""

    def __init__(self, batch: Any, padding: Any) -> None:
        self._batch, self._padding = batch, padding  # the only one, or the structure of all
        arrays: list[Any] = []
        self._likeness = likeness(batch, arrays)
        self.columns = [[array] for array in arrays]  # in each place of a batch, the arrays of all
        self._alike = True  # in width
        self._joining: Joining | None = None

    def append(self, batch: Any, padding: Any) -> bool:
        """Add a copy of a batch; False if it does not join these byte for byte."""
        arrays: list[Any] = []
        if self._joining is not None or not self.columns or padding is not self._padding:  # which may have been set
            return False
        key = likeness(batch, arrays)
        if key != self._likeness or key is None:
            self._alike = False
            if not joins(self._likeness, key, padding):
                return False
        arrays = [array.clone() if type(array) is torch.Tensor else array.copy() for array in arrays]
        if len(self.columns[0]) == 1:  # the list alone has the first arrays, to let go of them
            self._batch = tree_map(lambda _: 0, self._batch)
        for column, array in zip(self.columns, arrays, strict=True):
            column.append(array)
        return True

    def joined(self) -> Any:
        """All as one batch. Each is let go of when it is copied, so that memory holds little more than the result."""
        if self._joining is None and self.columns and (count := len(self.columns[0])) > 1:
            if self._alike and count * sum(column[0].nbytes for column in self.columns) < _SMALL:
                values = iter(
                    [(torch.cat if torch.is_tensor(column[0]) else np.concatenate)(column) for column in self.columns]
                )
                self.__init__(tree_map(lambda _: next(values), self._batch), self._padding)  # type: ignore[misc]
                return self._batch
            self._joining = Joining(self._batch, self.columns, self._padding)
        if self._joining is not None:  # after an interrupt, too
            self.__init__(self._joining.finished(), self._padding)  # type: ignore[misc]
        return self._batch


class EvalLoopContainer(originals.EvalLoopContainer):  # type: ignore[misc,name-defined]
    """The container in which Trainer gathers losses, predictions and labels, in linear time and memory.

    The class of transformers copies everything it holds at each step. This one copies a batch when it is added, and
    when the result is asked for, and lets go of it then: its peak memory is about the size of the result. The results
    are the same, also those of `tensors` and `arrays`; reading these two joins the batches added so far. A batch that
    cannot be added changes nothing.

    Args:
        do_nested_concat: whether to join batches along the first axis, padding the second; or to list them.
        padding_index: the padding value for narrower batches.

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

    _imitates: ClassVar[Imitation] = Imitation(
        "EvalLoopContainer", code_of("EvalLoopContainer", *_JOINS, home="trainer_pt_utils"), compares=False
    )

    def __new__(cls, do_nested_concat: bool = True, padding_index: int = -100) -> Any:
        """The container of transformers, if its code is unknown."""
        if cls is EvalLoopContainer and imitated.unknown(cls._imitates) is not None:
            return originals.EvalLoopContainer(do_nested_concat, padding_index)  # type: ignore[attr-defined]
        return object.__new__(cls)

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100) -> None:
        self.do_nested_concat, self.padding_index = do_nested_concat, padding_index
        self._tensors: Any = None  # one batch, `_Batches`, or a list
        self._arrays: Any = None  # likewise

    @property
    def tensors(self) -> Any:
        """The batches added since the last `to_cpu_and_numpy`, joined, as tensors."""
        return self._tensors.joined() if type(self._tensors) is _Batches else self._tensors

    @tensors.setter
    def tensors(self, value: Any) -> None:
        self._tensors = value

    @property
    def arrays(self) -> Any:
        """The batches that were moved to the CPU, joined, as NumPy arrays."""
        return self._arrays.joined() if type(self._arrays) is _Batches else self._arrays

    @arrays.setter
    def arrays(self, value: Any) -> None:
        self._arrays = value

    def add(self, tensors: Any) -> None:
        """Add a batch: a tensor, or lists, tuples and mappings of tensors, of the structure of the first.

        Raises:
            AssertionError: when it is of another type than those before.
            TypeError: when it holds anything but tensors.
            RuntimeError, IndexError, KeyError: when dimensions, dtypes or keys do not match those before.
            MemoryError, RuntimeError: when there is no memory for it.
        """
        if self._tensors is None:
            self._tensors = tensors if self.do_nested_concat else [tensors]
        elif self.do_nested_concat:
            self._tensors = self._with_batch(self._tensors, tensors)
        else:
            self._tensors.append(tensors)

    def to_cpu_and_numpy(self) -> None:
        """Move the batches added so far to the CPU, as NumPy arrays."""
        if self._tensors is None:
            return
        arrays = nested_numpify(self.tensors)
        if self._arrays is None:
            self._arrays = arrays
        elif self.do_nested_concat:
            self._arrays = self._with_batch(self._arrays, arrays)
        else:
            self._arrays.extend(arrays)
        self._tensors = None

    def get_arrays(self) -> Any:
        """All batches, on the CPU, as NumPy arrays."""
        self.to_cpu_and_numpy()
        return self.arrays

    def _with_batch(self, held: Any, batch: Any) -> Any:
        if type(held) is _Batches:
            if held.append(batch, self.padding_index):
                return held
            held = held.joined()
        # The second batch, and what is not like the others, is joined at once, or refused.
        return _Batches(concat_two(held, batch, self.padding_index), self.padding_index)

    def __getstate__(self) -> dict[str, Any]:
        """The state of the reference."""
        state = {name: value for name, value in vars(self).items() if name not in ("_tensors", "_arrays")}
        return state | {"tensors": self.tensors, "arrays": self.arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


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
