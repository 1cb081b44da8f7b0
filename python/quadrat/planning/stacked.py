"""Batches of equal rows, stacked: `default_data_collator` on columns, which it knows by the first row alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quadrat.input.rows import each_of
from quadrat.installed import originals
from quadrat.installed.behaviour import numpy_ints_are_labels
from quadrat.planning.fallback import AS_FAST, FallBack, or_fall_back
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, own_facts, planned
from quadrat.support import columns as col
from quadrat.support.kinds import FLOAT32, INT64, Framework, torch_has

_LABELS = ("label", "label_ids")


def stacked_spec(collator: Any, framework: Framework) -> Spec:
    """Batches whose columns are stacked, keys in the reference's order."""
    return Spec(framework, stacked_plan, hold=_reference_column, facts=own_facts(collator))


@planned
def stacked_plan(key: PlanKey) -> Plan:
    """The steps for each column, labels first."""
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


def _reference_column(name: str, features: Any, key: PlanKey) -> Any:
    """Columns do not depend on each other: the reference's own stacking, for this one alone."""
    with or_fall_back(f"column '{name}' does not stack", "give all its rows one shape, or remove it"):
        values = [{name: feature[name]} for feature in each_of(features)]
        (tensor,) = originals.default_data_collator(values, key.framework).values()
    return tensor


def attributes_of(features: Any) -> Any:
    """Features that are objects as the dicts of their attributes, as the reference reads them; others as they are."""
    if type(features) not in (list, tuple) or not features or isinstance(features[0], Mapping):
        return features
    return [vars(feature) for feature in features] if hasattr(features[0], "__dict__") else features
