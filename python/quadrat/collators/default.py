"""`default_data_collator` and `DefaultDataCollator`: equal rows stacked, no padding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from quadrat import _core
from quadrat.collators._base import Collator
from quadrat.input.columns import (
    ARRAY,
    BOOLS,
    FLOATS,
    HOLD,
    INTS,
    KEPT_KINDS,
    NUMBER,
    NUMBERS,
    OTHER,
    PYTHON_FLOATS,
    PYTHON_INTS,
    PYTHON_ROWS,
    SCALAR,
    SINGLE_NUMBERS,
    STACK,
    TENSOR,
    TENSOR_NUMBER,
    ColumnShape,
    collect,
    column_shapes,
    explain,
    inferred_kind,
)
from quadrat.input.rows import each_of, first_of
from quadrat.installed import originals
from quadrat.installed.behaviour import numpy_ints_are_labels
from quadrat.planning.fallback import FallBack, or_fall_back
from quadrat.planning.padded import check_device
from quadrat.planning.plan_cache import Decided, own_facts, remember, torch_facts
from quadrat.support.memory import FLOAT32, INT64, Framework, default_float_kind, interop

_reference = originals.default_data_collator

_Steps = tuple[tuple[str, int, int, int], ...]
_LABELS = ("label", "label_ids")


def default_data_collator(features: Any, return_tensors: Any = "pt") -> Any:
    """Stack each column of `features`; a drop-in for `transformers.default_data_collator`.

    Args:
        features: one mapping per row (or an object with attributes). Values are numbers, equally long rows (lists,
            tuples, NumPy arrays, torch tensors); strings and None are left out.
        return_tensors: "pt" or "np"; "tf" or "jax" where that is installed.

    Returns:
        A dict of tensors, `[rows]` or `[rows, length]`; `label` (int64 or float32) and `label_ids` become `labels`,
        first in the batch.

    Raises:
        ValueError, TypeError, KeyError, ...: what the reference raises, naming column, row and lengths as well.
    """
    return _function._collate(features, return_tensors)


@dataclass
class DefaultDataCollator(Collator, originals.DefaultDataCollator):
    """`default_data_collator` as an object that remembers `return_tensors`; a drop-in for the transformers class.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.
    """

    deferred: bool = False

    _quadrat_guarded: ClassVar[tuple[str, ...]] = ("deferred",)

    def __call__(self, features: Any, return_tensors: Any = None) -> Any:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        return self._collate(features, self.return_tensors if return_tensors is None else return_tensors)

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return lambda rows: _reference(rows, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        return _stack_features(self, features, framework)


class _Function(DefaultDataCollator):
    """What `default_data_collator` calls."""


_Function.__name__ = "default_data_collator"
_function = _Function()


def _remember(collator: Any, framework: Framework, decided: Decided) -> None:
    """Keep a decision, or None to fall back."""

    def make() -> _core.Recipe | None:
        own, torch = own_facts(collator), torch_facts(framework)
        if own is None or torch is None:
            return None
        return _core.Recipe((*own, *torch), interop(), framework == "pt", falls_back=True)

    if decided[0]:
        remember(collator, framework, decided, make)


class _Situation(NamedTuple):
    """All that the decision about a batch depends on."""

    names: tuple[str, ...]
    signature: bytes
    missing: tuple[str, ...]  # columns whose first value is None
    strings: tuple[str, ...]  # columns whose first value is a str
    framework: Framework
    float_kind: int | None


# (steps for `_core.Columns.run`, output name -> column of those that the reference stacks, one by one)
_Decision = tuple[_Steps, dict[str, str]]


def _stack_features(collator: Any, features: Sequence[Mapping[str, Any]], framework: Framework) -> dict[str, Any]:
    collected = collect(features)
    if collected is None:
        raise FallBack("features are not a list of plain mappings with the same keys")
    if framework == "pt":
        check_device()
    names, columns = collected
    signature = columns.signature(0, 1) if names else b""
    missing, strings = _left_out(names, first_of(features)) if OTHER in signature[1::5] else ((), ())
    situation = _Situation(names, signature, missing, strings, framework, default_float_kind(framework))
    try:
        steps, held = _decide(situation)
    except FallBack:
        _remember(collator, framework, (names, signature, None, {}))
        raise
    batch: dict[str, Any] | tuple[int, ...] = columns.run(steps, {}, interop(), framework == "pt", 0, 1, False)
    if isinstance(batch, tuple):
        raise FallBack(f"column '{steps[batch[0]][0]}': {explain((batch[1], -1, -1))}")
    for name, column in held.items():
        batch[name] = _reference_column(column, features, framework)
    if not held and OTHER not in signature[1::5]:  # None and str look alike in a signature
        _remember(collator, framework, (names, signature, steps, {}))
    return batch


def _left_out(names: tuple[str, ...], first: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (
        tuple(name for name in names if first[name] is None),
        tuple(name for name in names if isinstance(first[name], str)),
    )


@functools.lru_cache(maxsize=1024)
def _decide(situation: _Situation) -> _Decision:
    shapes = column_shapes(situation.signature)
    outputs: dict[str, tuple[int, int | None]] = {}  # in the order in which the reference first sets them
    # The reference looks at the first row alone to decide what a column is.
    label = next((name for name in _LABELS if name in situation.names and name not in situation.missing), None)
    if label is not None:
        if "labels" in situation.names:
            raise FallBack(f"both '{label}' and 'labels' are there")  # one overwrites the other, errors included
        index = situation.names.index(label)
        outputs["labels"] = index, _label_kind(shapes[index], label, situation)
    for index, name in enumerate(situation.names):
        if name not in (*_LABELS, *situation.missing, *situation.strings):
            outputs[name] = index, _kind(shapes[index], situation)
    steps = []
    held = {}
    for name, (index, kind) in outputs.items():
        if kind is None or not shapes[index].equal:
            held[name] = situation.names[index]
            steps.append((name, index, HOLD, 0))
        else:
            steps.append((name, index, STACK if shapes[index].forms & ~SINGLE_NUMBERS else NUMBERS, kind))
    if held and not any(step[2] != HOLD and shapes[step[1]].forms & PYTHON_ROWS for step in steps):
        raise FallBack(f"columns {list(held.values())} are not ones the kernels know, and the others cost little")
    return tuple(steps), held


def _kind(shape: ColumnShape, situation: _Situation) -> int | None:
    """The kind the reference makes of a column; None where its own code had better decide."""
    if shape.forms == NUMBER or not shape.forms & ~PYTHON_ROWS:
        return inferred_kind(shape.kinds, situation.float_kind)
    stacked = (ARRAY, SCALAR, *((TENSOR, TENSOR_NUMBER) if situation.framework == "pt" else ()))
    return _only_kind(shape.kinds) if shape.forms in stacked else None


def _label_kind(shape: ColumnShape, name: str, situation: _Situation) -> int | None:
    """As `_kind`, for the column that becomes `labels`: whole numbers int64, anything else float32."""
    if name == "label_ids" and shape.forms == (TENSOR if situation.framework == "pt" else ARRAY):
        return _only_kind(shape.kinds)
    if name == "label" and shape.forms == SCALAR:
        whole = not shape.kinds & ~INTS and numpy_ints_are_labels(situation.framework)
        return INT64 if whole else FLOAT32 if shape.kinds in KEPT_KINDS else None
    if name == "label" and shape.forms == TENSOR_NUMBER and situation.framework == "pt":
        return INT64 if not shape.kinds & ~(INTS | BOOLS) else FLOAT32 if not shape.kinds & ~FLOATS else None
    if shape.forms & ~(NUMBER if name == "label" else PYTHON_ROWS):
        return None
    if shape.kinds in (PYTHON_INTS, BOOLS):  # a bool is an int to the reference
        return INT64
    return FLOAT32 if shape.kinds == PYTHON_FLOATS else None


def _only_kind(kinds: int) -> int | None:
    """The kind when there is just one, and one that every torch has a dtype for."""
    return kinds.bit_length() - 1 if kinds in KEPT_KINDS else None


def _reference_column(name: str, features: Sequence[Mapping[str, Any]], framework: Framework) -> Any:
    """Columns do not depend on each other: the reference's own stacking, for this one alone."""
    with or_fall_back(f"column '{name}' does not stack"):
        column = [{name: feature[name]} for feature in each_of(features)]
        (tensor,) = _reference(column, framework).values()
    return tensor
