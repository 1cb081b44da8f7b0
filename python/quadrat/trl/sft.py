"""`DataCollatorForLanguageModeling` of TRL's `SFTTrainer`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling as Original

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.input.items import SEQ_LENGTHS
from quadrat.input.rows import MAIN, Rows, first_of
from quadrat.planning.diagnosis import Role
from quadrat.planning.fallback import FallBack, first_feature, rounded_up
from quadrat.planning.plan_cache import Plan, PlanKey, check_device, key_of, own_facts, planned, remember, run_steps
from quadrat.support.memory import INT32, INT64, Framework
from quadrat.trl._base import TrlCollator, read, require_token

__all__ = ["DataCollatorForLanguageModeling"]

_IGNORED = -100


@dataclass
class DataCollatorForLanguageModeling(TrlCollator, Original):
    """Pad rows and labels, or join them; replaces the class in `trl.trainer.sft_trainer`.

    The result is that of TRL's class: a dict of `input_ids` and `labels`, then `position_ids` if asked for, then
    `attention_mask`, all `[rows, width]` int64. With `padding_free`: `input_ids`, `labels` and `position_ids`, `[1,
    total]` int64, and, if the installed TRL makes them, `cu_seq_lens_q` and `cu_seq_lens_k` (the same int32 tensor),
    `max_length_q` and `max_length_k` (ints), and `seq_idx`, `[1, total]` int32. Packed rows, which have a column
    `seq_lengths`, are treated as their documents. The options are those of the installed TRL; the list below is for TRL
    1.16.

    Args:
        pad_token_id: the padding value of ids.
        padding_free: joins the rows into one sequence instead of padding.
        return_position_ids: returns `position_ids` with padded batches too.
        pad_to_multiple_of: rounds the width, or the total, up to a multiple of this.
        return_tensors: "pt", as in TRL.
        padding_is_one_sequence: quadrat only, with `padding_free` and `pad_to_multiple_of`: the tokens that round the
            total up form one sequence, with positions from 0. TRL makes each of them a separate sequence.
        deferred: quadrat only: returns a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Examples:
        >>> from quadrat.trl.sft import DataCollatorForLanguageModeling
        >>> rows = [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8, 9], "labels": [-100, 9]}]
        >>> batch = DataCollatorForLanguageModeling(pad_token_id=0)(rows)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[5, 6, 7], [8, 9, 0]], [[-100, 6, 7], [-100, 9, -100]])
        >>> DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)(rows)["position_ids"].tolist()
        [[0, 1, 2, 0, 1]]
    """

    padding_is_one_sequence: bool = False
    deferred: bool = False

    _quadrat_guarded: ClassVar[tuple[str, ...]] = (
        *("pad_token_id", "padding_free", "pad_to_multiple_of", "padding_is_one_sequence", "deferred"),
        *(name for name in ("return_position_ids",) if name in Original.__dataclass_fields__),
    )

    def _plan(self, features: Any, framework: Any) -> dict[str, Any]:
        first = first_feature(features)
        require_token(self.pad_token_id)
        check_device(framework)
        positions = not self.padding_free and bool(getattr(self, "return_position_ids", False))
        packed = SEQ_LENGTHS in first and (self.padding_free or positions)
        names = (MAIN, *(("labels",) if "labels" in first else ()), *((SEQ_LENGTHS,) if packed else ()))
        columns = read(features, names)
        if not _has_plain_start(features):
            raise FallBack("the first row is empty, or has no labels", "leave it out, or give labels to all rows")
        self._require_newest(first, columns)
        batch = self._run(columns, names, framework, positions=positions)
        return self._finished(batch) if self.padding_free else batch

    def _quadrat_reads(self, features: Any) -> dict[str, Role]:
        reads = {MAIN: Role.TOKENS}
        if all("labels" in one for one in features):  # rows without labels take their ids
            reads["labels"] = Role.MARKS
        if SEQ_LENGTHS in features[0]:
            reads[SEQ_LENGTHS] = Role.SIZES
        return reads

    def _run(self, columns: _core.Columns, names: tuple[str, ...], framework: Framework, *, positions: bool) -> Any:
        flattens = bool(self.padding_free)
        width = rounded_up(1 if flattens else columns.longest(0), None if flattens else self.pad_to_multiple_of)
        rounded_up(0, self.pad_to_multiple_of)
        key = key_of(names, columns, framework, (flattens, positions), (0, width))
        plan = sft_plan(key)
        if plan.refusal is not None:
            raise FallBack(*plan.refusal)
        values = {MAIN: self.pad_token_id, "labels": _IGNORED, "position_ids": 0}
        defers = self.deferred and not flattens and not positions
        documents = names.index(SEQ_LENGTHS) if SEQ_LENGTHS in names else -1
        layout = col.BatchLayout(width, self.pad_to_multiple_of or 1, False, _IGNORED, seq_lengths=documents)
        batch = run_steps(columns, plan.steps, values, framework, layout, deferred=defers)
        if _REMEMBERS and not any(shape.forms & col.ARRAY for shape in col.column_shapes(key.signature)):
            told_apart = ("labels", SEQ_LENGTHS) if flattens or positions else ("labels",)
            remember(
                self,
                key,
                plan,
                values,
                own_facts(self),
                falls_back=False,
                main=None if flattens else MAIN,
                layout=layout._replace(width=-1),
                names=names,
                absent=tuple(name for name in told_apart if name not in names),
                deferred=deferred_batch if defers else None,
            )
        return batch

    def _runner(self, recipe: _core.Recipe) -> Callable[[Any, Any], Any]:
        run = recipe.runner()

        def checked(collator: Any, features: Any) -> Any:
            batch = run(collator, features)
            if batch is None or not _has_plain_start(features):
                return None
            return collator._finished(batch) if collator.padding_free else batch

        return checked

    def _require_newest(self, first: Any, columns: _core.Columns) -> None:
        """Raises FallBack for what only older classes do: cut rows, and make labels of masks."""
        limit = getattr(self, "max_length", None)
        if limit is not None and not self.padding_free:
            longest = max(columns.longest(index) for index in range(len(columns)))
            if type(limit) is not int or longest > limit:
                raise FallBack("rows are longer than max_length", "truncate the rows when you tokenize them")
        if not _REMEMBERS and ("completion_mask" in first or "assistant_masks" in first):
            raise FallBack("labels are made of masks", "let the trainer prepare the dataset, or give labels")

    def _finished(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A flat batch as TRL has it: padding in sequences of its own, and one tensor of bounds."""
        bounds = batch["cu_seq_lens_q"]
        if self.pad_to_multiple_of is not None:
            total = batch[MAIN].shape[1]
            rows, end = len(bounds) - 1, int(bounds[-1])
            if rest := total - end:
                one = self.padding_is_one_sequence
                batch["position_ids"][0, end:] = torch.arange(rest) if one else 0
                batch["seq_idx"][0, end:] = rows if one else torch.arange(rows, rows + rest)
                more = torch.tensor([total]) if one else torch.arange(end + 1, total + 1)
                bounds = torch.cat([bounds, more.to(torch.int32)])
                longest = max(batch["max_length_q"], rest if one else 1)
                batch.update(cu_seq_lens_q=bounds, max_length_q=longest, max_length_k=longest)
        batch["cu_seq_lens_k"] = bounds
        return {name: batch[name] for name in names} if (names := outputs()) is not None else batch


# Older classes have more options, which batches depend on.
_REMEMBERS = "completion_only_loss" not in Original.__dataclass_fields__


@functools.cache
def outputs() -> tuple[str, ...] | None:
    """The outputs of the installed class where rows are joined; None: all."""
    batch = Original(pad_token_id=0, padding_free=True)([{MAIN: [1, 2]}])
    return None if "seq_idx" in batch else tuple(batch)


@planned
def sft_plan(key: PlanKey) -> Plan:
    """The outputs, in order. The options in the key: whether rows are joined, and whether positions are asked for."""
    shapes = col.column_shapes(key.signature)
    label = key.names.index("labels") if "labels" in key.names else 0
    joins, positions = key.options
    if not joins:
        steps: list[col.Step] = [(MAIN, 0, col.PAD, INT64), ("labels", label, col.PAD_OWN, INT64)]
        if positions:
            steps.append(("position_ids", 0, col.ROW_POSITIONS, INT64))
        return Plan((*steps, ("attention_mask", 0, col.MASK, INT64)))
    if not shapes[0].full:
        raise FallBack("a row is empty", "leave empty rows out")  # it is no sequence
    if not shapes[label].aligned:
        raise FallBack("column 'labels' differs in length from the tokens", "give one number for each token")
    return Plan(
        (
            (MAIN, 0, col.JOIN, INT64),
            ("labels", label, col.SHIFT, INT64),
            ("position_ids", 0, col.POSITIONS, INT64),
            ("cu_seq_lens_q", 0, col.BOUNDS, INT32),
            ("cu_seq_lens_k", 0, col.HOLD, 0),
            ("max_length_q", 0, col.LONGEST, INT64),
            ("max_length_k", 0, col.LONGEST, INT64),
            ("seq_idx", 0, col.SEQUENCES, INT32),
        )
    )


def _has_plain_start(features: Any) -> bool:
    """Whether the first row has tokens and labels, and all rows have the columns that it has.

    Without tokens torch takes the first row for floats, and all others too.
    """
    first = first_of(features)
    if SEQ_LENGTHS in first and not (isinstance(features, Rows) or all(SEQ_LENGTHS in row for row in features)):
        return False
    if "labels" in first:
        return bool(len(first[MAIN]) and len(first["labels"]))
    return bool(len(first[MAIN])) and (isinstance(features, Rows) or not any("labels" in row for row in features))
