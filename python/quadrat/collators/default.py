"""`default_data_collator` and `DefaultDataCollator`: equal rows stacked, no padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.installed import originals
from quadrat.planning.plan_cache import make
from quadrat.planning.stacked import attributes_of, stacked_spec


def default_data_collator(features: Any, return_tensors: Any = "pt") -> dict[str, Any]:
    """Stack each column of `features`; replaces `transformers.default_data_collator`.

    Args:
        features: one mapping per row (or an object with attributes). Values are numbers or rows of equal length (lists,
            tuples, NumPy arrays, torch tensors); strings and None are left out.
        return_tensors: "pt" or "np"; "tf" or "jax" if that library is installed.

    Returns:
        A dict of tensors, `[rows]` or `[rows, length]`; `label` (int64 or float32) and `label_ids` become `labels`,
        first in the batch.

    Raises:
        ValueError, ...: as in transformers, with the column, the row and the lengths added.

    Examples:
        >>> import quadrat
        >>> batch = quadrat.default_data_collator([{"x": [1, 2], "label": 0.5}, {"x": [3, 4], "label": 1.5}], "np")
        >>> batch["x"]
        array([[1, 2],
               [3, 4]])
        >>> batch["labels"]
        array([0.5, 1.5], dtype=float32)
    """
    return _function._collate(features, return_tensors)  # type: ignore[no-any-return]


@dataclass
class DefaultDataCollator(Collator, originals.DefaultDataCollator):
    """`default_data_collator` as an object that keeps `return_tensors`; replaces the transformers class.

    Args:
        return_tensors, deferred: as in `DataCollatorWithPadding`.

    Examples:
        >>> import quadrat
        >>> batch = quadrat.DefaultDataCollator()([{"pixels": [1, 2], "label": 0}, {"pixels": [3, 4], "label": 1}])
        >>> batch["labels"].tolist(), batch["pixels"].tolist()
        ([0, 1], [[1, 2], [3, 4]])
    """

    deferred: bool = False

    _imitates: ClassVar[str] = "default_data_collator"
    _quadrat_guarded: ClassVar[tuple[str, ...]] = ("deferred",)

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _normalise(self, features: Any) -> Any:
        return attributes_of(super()._normalise(features))

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return lambda rows: originals.default_data_collator(rows, framework)

    def _plan(self, features: Any, framework: Any) -> Any:
        return make(self, stacked_spec(self, framework), features)


_function = type("default_data_collator", (DefaultDataCollator,), {})()  # logs show its name
