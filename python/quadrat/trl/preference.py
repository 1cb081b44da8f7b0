"""Collators of preferences, as a table: which columns are joined to rows, and which numbers come with them.

Written against TRL 1.0 to 1.16. A prompt is joined to each completion: the rows of the first completion come first,
then those of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from quadrat import _core
from quadrat.input import columns as col
from quadrat.input.rows import each_of
from quadrat.planning import plan_cache
from quadrat.planning.diagnosis import Role
from quadrat.planning.fallback import FallBack, first_feature, or_fall_back, rounded_up
from quadrat.support.memory import FLOAT32, INT64, address_of
from quadrat.trl._base import TrlCollator, require_token

_OUTPUTS = (("input_ids", col.CHAIN), ("attention_mask", col.CHAIN_MASK), ("completion_mask", col.CHAIN_MARKS))


class Joined(NamedTuple):
    """Rows that one set of outputs is made of."""

    prompt: str | None  # the column that each row begins with; None: rows are completions alone
    completions: tuple[str, ...]  # the columns that follow it
    prefix: str = ""  # of the names of the outputs
    optional: bool = False  # whether the first example decides if there are such rows
    int64: bool = False  # whether rows are int64 even where the first one is empty

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return self.completions if self.prompt is None else (self.prompt, *self.completions)

    @property
    def outputs(self) -> tuple[tuple[str, int], ...]:
        """Name and action of each output; only prompts make a mask of completions."""
        made = _OUTPUTS[: 2 if self.prompt is None else 3]
        return tuple((f"{self.prefix}{name}", action) for name, action in made)


class Numbers(NamedTuple):
    """A column with one number per example, in an output of the same name."""

    name: str
    dtype: torch.dtype | None = None
    optional: bool = True


class PreferenceCollator(TrlCollator):
    """Joins prompts and completions, and pads them."""

    _rows: ClassVar[tuple[Joined, ...]] = ()  # of each set of outputs; all have as many completions
    _numbers: ClassVar[tuple[Numbers, ...]] = ()

    pad_token_id: int
    pad_to_multiple_of: int | None

    def _plan(self, features: Any, framework: Any) -> dict[str, Any]:
        first = first_feature(features)
        require_token(self.pad_token_id)
        plan_cache.check_device(framework)
        sets, numbers = self._asked(first)
        names = (*(name for rows in sets for name in rows.columns), *(one.name for one in numbers))
        _, columns = plan_cache.collected(features, names)
        for rows in sets:
            with or_fall_back("the first row has no length", "give lists of ints"):
                starts = any(len(first[name]) for name in rows.columns[:2][: len(rows.outputs) - 1])
            if not rows.int64 and not starts:
                raise FallBack("the first row is empty", "leave it out")  # torch makes floats of it, and of all others
        rounded_up(0, self.pad_to_multiple_of)
        key = plan_cache.key_of(names, columns, framework, (sets, numbers))
        plan = preference_plan(key)
        if plan.refusal is not None:
            raise FallBack(*plan.refusal)
        batch: dict[str, Any] = self._run(columns, key, plan)
        for name in plan.held:
            with or_fall_back(f"column '{name}' is not made of numbers", "give one number for each example"):
                dtype = next(one.dtype for one in numbers if one.name == name)
                batch[name] = torch.tensor([example[name] for example in each_of(features)], dtype=dtype)
        return batch

    def _asked(self, first: Mapping[str, Any]) -> tuple[tuple[Joined, ...], tuple[Numbers, ...]]:
        """The rows and numbers of a batch that begins with this example."""
        sets = tuple(rows for rows in self._rows if not rows.optional or rows.completions[0] in first)
        return sets, tuple(one for one in self._numbers if not one.optional or one.name in first)

    @property
    def _quadrat_joins(self) -> bool:
        return any(rows.prompt is not None for rows in self._rows)

    def _quadrat_reads(self, features: Any) -> dict[str, Role]:
        sets, numbers = self._asked(features[0])
        rows = dict.fromkeys((name for one in sets for name in one.columns), Role.TOKENS)
        return {**rows, **{one.name: Role.NUMBER for one in numbers}}

    def _run(self, columns: _core.Columns, key: plan_cache.PlanKey, plan: plan_cache.Plan) -> Any:
        """The batch of a plan; plans whose batches are known by their signature are remembered. Raises FallBack."""
        sets, _ = key.options
        values = {name: self.pad_token_id for rows in sets for name, _ in rows.outputs}
        layout = col.BatchLayout(
            multiple_of=self.pad_to_multiple_of or 1,
            total=self._limit(),
            completions=len(sets[0].completions) if sets else 0,
            prompts=bool(sets) and sets[0].prompt is not None,
        )
        try:
            batch = plan_cache.run_steps(columns, plan.steps, values, key.framework, layout)
        except plan_cache.StepFailed:
            if not layout.total:
                raise
            uncut = layout._replace(total=0, multiple_of=1)
            batch = plan_cache.run_steps(columns, plan.steps, values, key.framework, uncut)
            for rows in sets:
                self._cut(batch, [name for name, _ in rows.outputs])
        if not (plan.held or self.deferred) and _starts_are_known(key):
            optional = (name for one in self._rows if one.optional for name in one.completions)
            either = (*optional, *(one.name for one in self._numbers if one.optional))
            absent = tuple(name for name in either if name not in key.names)
            known: dict[str, Any] = {"layout": layout._replace(width=-1), "names": key.names, "absent": absent}
            plan_cache.remember(self, key, plan, values, plan_cache.own_facts(self), falls_back=False, **known)
        return batch

    def _limit(self) -> int:
        """What rows are cut to; 0: nothing. Raises FallBack for a `max_length` or `truncation_mode` that is none."""
        limit, mode = getattr(self, "max_length", None), getattr(self, "truncation_mode", "keep_start")
        if limit is None:
            return 0
        if type(limit) is not int or not 1 <= limit < 2**63 or mode not in ("keep_start", "keep_end"):
            raise FallBack("max_length or truncation_mode is invalid", "give a positive int, and 'keep_start'")
        return limit

    def _cut(self, batch: dict[str, Any], names: list[str]) -> None:
        made = [batch[name] for name in names]
        sizes = made[1].sum(1).numpy()
        kept = np.minimum(sizes, self._limit())
        starts = sizes - kept if getattr(self, "truncation_mode", "keep_start") == "keep_end" else np.zeros_like(sizes)
        bounds = np.arange(len(sizes) + 1, dtype=np.int64) * made[0].shape[1]
        columns = _core.Columns()
        for index, one in enumerate(made):
            columns.add_ragged(address_of(one), INT64, one.numel(), address_of(bounds), len(sizes))
            columns.cut(index, address_of(starts), address_of(kept))
        steps = tuple((name, index, col.PAD, INT64) for index, name in enumerate(names))
        layout = col.BatchLayout(rounded_up(int(kept.max()), self.pad_to_multiple_of))
        values = {**dict.fromkeys(names, 0), names[0]: self.pad_token_id}
        batch.update(plan_cache.run_steps(columns, steps, values, "pt", layout))


@plan_cache.planned
def preference_plan(key: plan_cache.PlanKey) -> plan_cache.Plan:
    """The outputs, in order. The options in the key are the sets of rows, and the numbers."""
    sets, numbers = key.options
    shapes = col.column_shapes(key.signature)
    steps: list[col.Step] = []
    index = 0
    for rows in sets:
        forms = col.PYTHON_ROWS if rows.prompt is None else col.LIST  # a sum of tuples or arrays is none of lists
        for name, shape in zip(rows.columns, shapes[index:], strict=False):
            if shape.forms & ~forms or shape.kinds & ~col.PYTHON_INTS:
                raise FallBack(f"column '{name}' is not made of lists of ints", "give lists of ints")
        steps += [(name, index, action, INT64) for name, action in rows.outputs]
        index += len(rows.columns)
    held = {}
    for place, one in enumerate(numbers, index):
        kind = _number_kind(shapes[place], one.dtype, key.float_kind)
        if kind is None:
            held[one.name] = one.name
        steps.append((one.name, place, col.HOLD, 0) if kind is None else (one.name, place, col.NUMBERS, kind))
    return plan_cache.Plan(tuple(steps), held)


def _number_kind(shape: col.ColumnShape, dtype: torch.dtype | None, float_kind: int | None) -> int | None:
    if shape.forms != col.NUMBER:
        return None
    if dtype is None:
        return col.inferred_kind(shape.kinds, float_kind)
    return FLOAT32 if dtype is torch.float32 and shape.kinds == col.PYTHON_FLOATS else None


def _starts_are_known(key: plan_cache.PlanKey) -> bool:
    """Whether the first rows of all batches with this key have tokens."""
    shapes, index = col.column_shapes(key.signature), 0
    for rows in key.options[0]:
        starts = shapes[index : index + len(rows.outputs) - 1]
        if not rows.int64 and not any(shape.full for shape in starts):
            return False
        index += len(rows.columns)
    return True
