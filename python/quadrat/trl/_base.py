"""The bases of TRL's collators; for those of preferences, a table: columns that are joined to rows, and numbers.

A prompt is joined to each completion: the rows of the first completion come first, then those of the next.
"""

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.rows import values_of
from quadrat.planning.diagnosis.values import Role
from quadrat.planning.facts import own_facts
from quadrat.planning.fallback import FallBack, or_fall_back, require_names, rounded_up
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, planned
from quadrat.support import columns as col
from quadrat.support.kinds import FLOAT32, INT64
from quadrat.support.memory import address_of, interop

_INT64 = range(-(2**63), 2**63)
_OUTPUTS = (("input_ids", col.CHAIN), ("attention_mask", col.CHAIN_MASK), ("completion_mask", col.CHAIN_MARKS))


class TrlCollator(MixinCollator):
    """A collator of TRL's on quadrat's way through every collator. It makes torch tensors only."""

    _instead: ClassVar[str] = "let the trainer prepare the dataset, or give the row that column"


def require_ints(
    names: Sequence[str], shapes: Sequence[col.ColumnShape], forms: int = col.PYTHON_ROWS | col.ARRAY | col.DERIVED
) -> None:
    """Raises FallBack unless columns, as many as there are of both, are ints in rows of these forms."""
    for name, shape in zip(names, shapes, strict=False):
        if shape.forms & ~forms or shape.kinds & ~col.PYTHON_INTS or shape.backward:
            raise FallBack(f"column '{name}' is not made of lists of ints", "give lists of ints")


def require_token(pad_token_id: Any) -> None:
    """Raises FallBack unless this is an int64."""
    if type(pad_token_id) is not int or pad_token_id not in _INT64:
        raise FallBack("pad_token_id is not an int64", "give the id of the pad token")


class Joined(NamedTuple):
    """Rows of one set of outputs."""

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
        outputs = _OUTPUTS[: 2 if self.prompt is None else 3]
        return tuple((f"{self.prefix}{name}", action) for name, action in outputs)


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
        columns, facts = require_names(features), own_facts(self)
        require_token(self.pad_token_id)
        rounded_up(0, self.pad_to_multiple_of)
        sets, numbers = self._rows_and_numbers(columns)
        optional = (name for rows in self._rows if rows.optional for name in rows.completions)
        either = *optional, *(column.name for column in self._numbers if column.optional)
        names = *(name for rows in sets for name in rows.columns), *(column.name for column in numbers)
        limit = self._limit()
        layout = col.BatchLayout(
            -1,
            self.pad_to_multiple_of or 1,
            total=limit,
            completions=len(sets[0].completions) if sets else 0,
            prompts=bool(sets) and sets[0].prompt is not None,
        )
        fields: dict[str, Any] = {
            "framework": framework,
            "options": (sets, numbers),
            "names": names,
            "absent": tuple(name for name in either if name not in names),
            "facts": facts,
        }
        if not limit:
            return _Preferences(layout=layout, **fields).make(self, features)  # type: ignore[no-any-return]
        with contextlib.suppress(FallBack):  # for rows that are longer, which are cut after they are padded
            return _Limited(layout=layout, **fields).make(self, features)  # type: ignore[no-any-return]
        return _Cut(layout=layout._replace(multiple_of=1, total=0), **fields).make(self, features)  # type: ignore[no-any-return]

    def _rows_and_numbers(self, columns: Collection[str]) -> tuple[tuple[Joined, ...], tuple[Numbers, ...]]:
        """The rows and numbers of a batch whose first example has these columns."""
        sets = tuple(rows for rows in self._rows if not rows.optional or rows.completions[0] in columns)
        return sets, tuple(column for column in self._numbers if not column.optional or column.name in columns)

    def _roles(self, features: Any) -> dict[str, Role]:
        sets, numbers = self._rows_and_numbers(features[0])
        tokens = dict.fromkeys((name for rows in sets for name in rows.columns), Role.TOKENS)
        return tokens | {column.name: Role.NUMBER for column in numbers}

    def _limit(self) -> int:
        """The tokens that rows are cut to; 0: all stay. Raises FallBack for invalid options."""
        limit, mode = getattr(self, "max_length", None), getattr(self, "truncation_mode", "keep_start")
        if limit is None:
            return 0
        if type(limit) is not int or not 1 <= limit < 2**63 or mode not in ("keep_start", "keep_end"):
            raise FallBack("max_length or truncation_mode is invalid", "give a positive int, and 'keep_start'")
        return limit


@planned
def preference_plan(key: PlanKey) -> Plan:
    """The outputs, in order. The options in the key are the sets of rows, and the numbers."""
    sets, numbers = key.options
    shapes = col.column_shapes(key.signature)
    steps: list[col.Step] = []
    index = 0
    for rows in sets:
        forms = col.PYTHON_ROWS if rows.prompt is None else col.LIST  # a sum of tuples or arrays is none of lists
        require_ints(rows.columns, shapes[index:], forms)
        if not rows.int64 and not any(shape.starts for shape in shapes[index : index + len(rows.outputs) - 1]):
            raise FallBack("the first row is empty", "leave it out")  # torch makes floats of it, and of all others
        steps += [(name, index, action, INT64) for name, action in rows.outputs]
        index += len(rows.columns)
    held = {}
    for place, column in enumerate(numbers, index):
        kind = _number_kind(shapes[place], column.dtype, key.float_kind)
        if kind is None:
            held[column.name] = column.name
        steps.append((column.name, place, col.HOLD, 0) if kind is None else (column.name, place, col.NUMBERS, kind))
    return Plan(tuple(steps), held)


def _number_kind(shape: col.ColumnShape, dtype: torch.dtype | None, float_kind: int | None) -> int | None:
    if shape.forms != col.NUMBER:
        return None
    if dtype is None:
        return col.inferred_kind(shape.kinds, float_kind)
    return FLOAT32 if dtype is torch.float32 and shape.kinds == col.PYTHON_FLOATS else None


class _Preferences(Spec):
    plan = staticmethod(preference_plan)

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        sets, _ = key.options
        return {name: collator.pad_token_id for rows in sets for name, _ in rows.outputs}

    def hold(self, name: str, features: Any, key: PlanKey) -> Any:
        _, numbers = key.options
        with or_fall_back(f"column '{name}' is not made of numbers", "give one number for each example"):
            dtype = next(column.dtype for column in numbers if column.name == name)
            return torch.tensor(values_of(features, name), dtype=dtype)


class _Limited(_Preferences):
    def failed(self, *_: Any) -> None:
        """Longer rows are for another recipe."""


class _Cut(_Preferences):
    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        limit, ends = collator._limit(), getattr(collator, "truncation_mode", "keep_start") == "keep_end"
        for rows in collator._rows:
            names = [name for name, _ in rows.outputs if name in batch]
            if not names:
                continue
            outputs = [batch[name] for name in names]
            sizes = outputs[1].sum(1).numpy()
            kept = np.minimum(sizes, limit)
            starts = sizes - kept if ends else np.zeros_like(sizes)
            bounds = np.arange(len(sizes) + 1, dtype=np.int64) * outputs[0].shape[1]
            columns = _core.Columns()
            for index, output in enumerate(outputs):
                columns.add_ragged(address_of(output), INT64, output.numel(), address_of(bounds), len(sizes))
                columns.cut(index, address_of(starts), address_of(kept))
            steps = tuple((name, index, col.PAD, INT64) for index, name in enumerate(names))
            layout = col.BatchLayout(rounded_up(int(kept.max()), collator.pad_to_multiple_of))
            values = {**dict.fromkeys(names, 0), names[0]: collator.pad_token_id}
            batch.update(columns.run(steps, values, interop(), True, layout))
        return batch
