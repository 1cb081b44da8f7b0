"""Collators of preferences, as a table: which columns are joined to rows, and which numbers come with them.

Written against TRL 1.0 to 1.16. A prompt is joined to each completion: the rows of the first completion come first,
then those of the next.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from quadrat.input.columns import LIST, PAD, PYTHON_ROWS
from quadrat.input.rows import each_of
from quadrat.planning.fallback import FallBack, first_feature, or_fall_back, rounded_up
from quadrat.planning.plan import Layout, check_device, run_steps
from quadrat.support.memory import INT64, WIDEST, address_of, interop
from quadrat.trl._rows import Flat, TrlCollator, ragged, read, require_token


class Joined(NamedTuple):
    """Rows that one set of outputs is made of.

    Attributes:
        prompt: the column that each row begins with; None: rows are completions alone.
        completions: the columns that follow it.
        prefix: of the names of the outputs.
        optional: whether the first example decides if there are such rows.
        int64: whether rows are int64 even where the first one is empty.
    """

    prompt: str | None
    completions: tuple[str, ...]
    prefix: str = ""
    optional: bool = False
    int64: bool = False


class Numbers(NamedTuple):
    """A column with one number per example, in an output of the same name."""

    name: str
    dtype: torch.dtype | None = None
    optional: bool = True


class PreferenceCollator(TrlCollator):
    """Joins prompts and completions, and pads them."""

    _numbers: ClassVar[tuple[Numbers, ...]] = ()

    pad_token_id: int
    pad_to_multiple_of: int | None

    def _rows(self) -> tuple[Joined, ...]:
        """The rows of each set of outputs."""
        raise NotImplementedError

    def _plan(self, features: Any, framework: Any) -> dict[str, Any]:
        first = first_feature(features)
        require_token(self.pad_token_id)
        check_device(framework)
        batch: dict[str, Any] = {}
        for rows in self._rows():
            if not rows.optional or rows.completions[0] in first:
                batch.update(self._padded(features, first, rows))
        examples = each_of(features)
        for name, dtype, optional in self._numbers:
            if not optional or name in first:
                with or_fall_back(f"column '{name}' is not made of numbers"):
                    batch[name] = torch.tensor([example[name] for example in examples], dtype=dtype)
        return batch

    def _padded(self, features: Any, first: Any, rows: Joined) -> dict[str, Any]:
        prompts = rows.prompt is not None
        names = rows.completions if rows.prompt is None else (rows.prompt, *rows.completions)
        columns = read(features, names, LIST if prompts else PYTHON_ROWS)  # a sum of tuples or arrays is none of lists
        if not rows.int64 and not any(len(first[name]) for name in names[: 1 + prompts]):
            raise FallBack("the first row is empty")  # torch takes it for floats, and all others too
        limit = self._limit()
        multiple = self.pad_to_multiple_of
        rounded_up(0, multiple)
        made = columns.pad_stacked(prompts, interop(), limit, multiple or 1, self.pad_token_id)
        if made is None and limit < WIDEST:
            made = self._cut(columns.pad_stacked(prompts, interop(), WIDEST, 1, self.pad_token_id), limit)
        if made is None:
            raise FallBack("a column holds numbers the kernels do not know")
        outputs = ("input_ids", "attention_mask", "completion_mask")
        return {f"{rows.prefix}{name}": tensor for name, tensor in zip(outputs, made, strict=False)}

    def _limit(self) -> int:
        """What rows are cut to. Raises FallBack for a `max_length` or `truncation_mode` that is none."""
        limit, mode = getattr(self, "max_length", None), getattr(self, "truncation_mode", "keep_start")
        if limit is None:
            return WIDEST
        if type(limit) is not int or limit < 1 or mode not in ("keep_start", "keep_end"):
            raise FallBack("max_length or truncation_mode is none")
        return limit

    def _cut(self, made: tuple[Any, ...] | None, limit: int) -> tuple[Any, ...] | None:
        """The rows of ids and masks, cut to `limit` tokens."""
        if made is None:
            return None
        sizes = made[1].sum(1).numpy()
        kept = np.minimum(sizes, limit)
        starts = sizes - kept if getattr(self, "truncation_mode", "keep_start") == "keep_end" else np.zeros_like(sizes)
        bounds = np.arange(len(sizes) + 1, dtype=np.int64) * made[0].shape[1]
        columns = ragged(bounds, *(Flat(one, address_of(one), one.numel()) for one in made))
        for index in range(len(made)):
            columns.cut(index, address_of(starts), address_of(kept))
        steps = tuple((str(index), index, PAD, INT64) for index in range(len(made)))
        layout = Layout(rounded_up(int(kept.max()), self.pad_to_multiple_of))
        batch = run_steps(columns, steps, {"0": self.pad_token_id, "1": 0, "2": 0}, "pt", layout)
        return tuple(batch.values())
