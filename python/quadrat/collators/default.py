"""`default_data_collator` and `DefaultDataCollator`: equal rows stacked, no padding.

The reference looks at the first row alone to decide what a column is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quadrat.collators._base import Collator
from quadrat.input.rows import values_of
from quadrat.installed import originals
from quadrat.installed.behaviour import numpy_ints_are_labels
from quadrat.installed.imitated import Imitation, code_of
from quadrat.planning.facts import own_facts
from quadrat.planning.fallback import AS_FAST, FallBack, or_fall_back
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, planned
from quadrat.support import columns as col
from quadrat.support.kinds import FLOAT32, INT64, Framework, torch_has

_LABELS = ("label", "label_ids")
_FUNCTIONS = "default_data_collator", "torch_default_data_collator", "numpy_default_data_collator"


def default_data_collator(features: Any, return_tensors: Any = "pt") -> dict[str, Any]:
    """Stack each column of `features`; replaces `transformers.default_data_collator`.

    Args:
        features: one mapping per row (or an object with attributes). Values are numbers or rows of equal length (lists,
            tuples, NumPy arrays, torch tensors); strings and None are left out.
        return_tensors: "pt" or "np".

    Returns:
        A dict of tensors, `[rows]` or `[rows, length]`; `label` (int64 or float32) and `label_ids` become `labels`,
        first in the batch. Errors are those of transformers, with the column, the row and the lengths.

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

    _imitates: ClassVar[Imitation] = Imitation(
        "default_data_collator", code_of("DefaultDataCollator", *_FUNCTIONS), form="stacked"
    )
    _reads_items: ClassVar[bool] = True

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _normalise(self, features: Any) -> Any:
        features = super()._normalise(features)
        if type(features) not in (list, tuple) or not features or isinstance(features[0], Mapping):
            return features
        # Of objects, the reference reads the dicts of their attributes.
        return [vars(feature) for feature in features] if hasattr(features[0], "__dict__") else features

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return lambda rows: originals.default_data_collator(rows, framework)

    def _plan(self, features: Any, framework: Any) -> Any:
        return _Stacked(framework=framework, facts=own_facts(self)).make(self, features)


_function = type("default_data_collator", (DefaultDataCollator,), {})()  # logs show its name


@planned
def _plan_columns(key: PlanKey) -> Plan:
    names, shapes = key.names, col.column_shapes(key.signature)
    missing = [name for name, shape in zip(names, shapes, strict=True) if shape.none]
    strings = [name for name, shape in zip(names, shapes, strict=True) if shape.text]
    outputs: dict[str, tuple[int, int | None]] = {}  # in the order in which the reference first sets them
    label = next((name for name in _LABELS if name in names and name not in missing), None)
    if label is not None:
        if "labels" in names:
            raise FallBack(f"both '{label}' and 'labels' are there", "remove one of them")  # one may fail
        index = names.index(label)
        outputs["labels"] = index, _label_kind(shapes[index], label, key)
    for index, name in enumerate(names):
        if name not in (*_LABELS, *missing, *strings):
            outputs[name] = index, _kind(shapes[index], key)
    steps = [(name, index, *_action(shapes[index], kind)) for name, (index, kind) in outputs.items()]
    held = {name: names[index] for name, index, action, _ in steps if action == col.HOLD}
    lists = any(action != col.HOLD and shapes[index].forms & col.PYTHON_ROWS for _, index, action, _ in steps)
    if held and not lists:
        raise FallBack(f"columns {list(held.values())} are not ones the kernels know", AS_FAST)
    return Plan(tuple(steps), held)


def _action(shape: col.ColumnShape, kind: int | None) -> tuple[int, int]:
    if kind is None or not shape.equal:
        return col.HOLD, 0
    return col.STACK if shape.forms & ~col.SINGLE_NUMBERS else col.NUMBERS, kind


def _kind(shape: col.ColumnShape, key: PlanKey) -> int | None:
    if shape.forms == col.NUMBER or not shape.forms & ~(col.PYTHON_ROWS | col.DEEP):
        return col.inferred_kind(shape.kinds, key.float_kind)
    of_torch = (col.TENSOR, col.TENSOR_NUMBER, col.ARRAY | col.DERIVED) if key.framework == "pt" else ()
    stacked = shape.forms & ~col.DEEP in (col.ARRAY, col.SCALAR, *of_torch)
    kind = _only_kind(shape.kinds, key.framework) if stacked else None
    of_numbers = shape.forms == col.SCALAR and key.framework == "pt"
    return None if kind is not None and of_numbers and not torch_has(kind, of_numbers=True) else kind


def _label_kind(shape: col.ColumnShape, name: str, key: PlanKey) -> int | None:
    """As `_kind`, for the column that becomes `labels`: whole numbers int64, anything else float32."""
    if name == "label_ids" and shape.forms & ~col.DEEP == (col.TENSOR if key.framework == "pt" else col.ARRAY):
        return _only_kind(shape.kinds, key.framework)
    if name == "label" and shape.forms == col.SCALAR:
        whole = not shape.kinds & ~col.INTS and numpy_ints_are_labels(key.framework)
        return INT64 if whole else FLOAT32 if shape.kinds in col.KEPT_KINDS else None
    if name == "label" and shape.forms == col.TENSOR_NUMBER and key.framework == "pt":
        whole = not shape.kinds & ~(col.INTS | col.BOOLS)
        return INT64 if whole else FLOAT32 if not shape.kinds & ~col.FLOATS else None
    if shape.forms & ~(col.NUMBER if name == "label" else col.PYTHON_ROWS):
        return None
    if shape.kinds in (col.PYTHON_INTS, col.BOOLS):  # a bool is an int to the reference
        return INT64
    return FLOAT32 if shape.kinds == col.PYTHON_FLOATS else None


def _only_kind(kinds: int, framework: Framework) -> int | None:
    """The kind when there is just one, and the framework has a dtype for it."""
    if kinds.bit_count() != 1:
        return None
    kind = kinds.bit_length() - 1
    return kind if kinds in col.KEPT_KINDS or framework == "np" or torch_has(kind) else None


class _Stacked(Spec):
    plan = staticmethod(_plan_columns)

    def hold(self, name: str, features: Any, key: PlanKey) -> Any:
        """Columns do not depend on each other: the reference's own stacking, for this one alone."""
        with or_fall_back(f"column '{name}' does not stack", "give all its rows one shape, or remove it"):
            values = [{name: value} for value in values_of(features, name)]
            (tensor,) = originals.default_data_collator(values, key.framework).values()
        return tensor
