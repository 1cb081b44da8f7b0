"""`DataCollatorForLanguageModeling` of TRL's `SFTTrainer`."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling as Original
from trl.trainer.utils import pad

from quadrat import _core
from quadrat.input.items import SEQ_LENGTHS
from quadrat.input.rows import MAIN, Rows
from quadrat.installed.imitated import Imitation, code_of, code_of_trl
from quadrat.planning.diagnosis.values import Role
from quadrat.planning.facts import own_facts
from quadrat.planning.fallback import FallBack, Reason, require_names, rounded_up
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, planned
from quadrat.support import columns as col
from quadrat.support.kinds import INT32, INT64
from quadrat.support.memory import interop
from quadrat.trl._base import TrlCollator, require_ints, require_token

_IGNORED = -100


@dataclass
class DataCollatorForLanguageModeling(TrlCollator, Original):
    """Pad rows and labels, or join them; replaces the class in `trl.trainer.sft_trainer`.

    The result is that of TRL's class: a dict of `input_ids` and `labels`, then `position_ids` if asked for, then
    `attention_mask`, all `[rows, width]` int64. With `padding_free`: `input_ids`, `labels` and `position_ids`, `[1,
    total]` int64, and, if the installed TRL makes them, `cu_seq_lens_q` and `cu_seq_lens_k` (the same int32 tensor),
    `max_length_q` and `max_length_k` (ints), and `seq_idx`, `[1, total]` int32. Packed rows, which have a column
    `seq_lengths`, are treated as their documents.

    Args:
        pad_token_id, return_tensors, deferred: as in `quadrat.trl.dpo.DataCollatorForPreference`.
        padding_free: joins the rows into one sequence instead of padding.
        return_position_ids: returns `position_ids` with padded batches too.
        pad_to_multiple_of: rounds the width, or the total, up to a multiple of this.
        padding_is_one_sequence: quadrat only, with `padding_free` and `pad_to_multiple_of`: the tokens that round the
            total up form one sequence, with positions from 0. TRL makes each of them a separate sequence.

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

    _imitates: ClassVar[Imitation] = Imitation("trl.sft", code_of_trl(Original, pad) + code_of("DataCollatorMixin"))

    def _is_own(self, features: Any) -> bool:
        return self.padding_is_one_sequence

    def _plan(self, features: Any, framework: Any) -> dict[str, Any]:
        columns, facts = require_names(features), own_facts(self) if _REMEMBERS else None
        require_token(self.pad_token_id)
        flattens, multiple = bool(self.padding_free), self.pad_to_multiple_of
        rounded_up(0, multiple)
        positions = not flattens and bool(getattr(self, "return_position_ids", False))
        names = MAIN, *(name for name in ("labels", SEQ_LENGTHS) if name in columns)
        self._require_newest(columns, features, names)
        packed = SEQ_LENGTHS in columns and (flattens or positions)
        documents = names.index(SEQ_LENGTHS) if packed else -1
        spec = (_Joined if flattens else _Padded)(
            framework=framework,
            options=(flattens, positions, packed),
            names=names,
            absent=tuple(name for name in ("labels", SEQ_LENGTHS) if name not in columns),
            main=None if flattens else MAIN,
            layout=col.BatchLayout(
                -1, multiple or 1, False, _IGNORED, continue_positions=not positions, seq_lengths=documents
            ),
            facts=facts,
            deferred=self.deferred and not flattens and not positions,
            check=None if "labels" in columns else _have_no_labels,
        )
        return spec.make(self, features)  # type: ignore[no-any-return]

    def _roles(self, features: Any) -> dict[str, Role]:
        reads = {MAIN: Role.TOKENS}
        if all("labels" in row for row in features):  # rows without labels take their ids
            reads["labels"] = Role.MARKS
        if SEQ_LENGTHS in features[0]:
            reads[SEQ_LENGTHS] = Role.SIZES
        return reads

    def _require_newest(self, columns: Any, features: Any, names: tuple[str, ...]) -> None:
        """Raises FallBack for what only older classes do: cut rows, and make labels of masks."""
        limit = getattr(self, "max_length", None)
        if limit is not None and not self.padding_free:
            collected = _core.collect(features, names, interop())
            longest = 0 if collected is None else max(collected[1].describe(index)[4] for index in range(len(names)))
            if type(limit) is not int or longest > limit:
                raise FallBack("rows are longer than max_length", "truncate the rows when you tokenize them")
        if not _REMEMBERS and ("completion_mask" in columns or "assistant_masks" in columns):
            raise FallBack("labels are made of masks", "let the trainer prepare the dataset, or give labels")


def _have_no_labels(features: Any) -> Reason | None:
    if isinstance(features, Rows) or not any("labels" in row for row in features):
        return None
    return "the first row has no labels, and others have", "give labels to all rows, or to none"


# Older classes have more options, which batches depend on.
_REMEMBERS = "completion_only_loss" not in Original.__dataclass_fields__


@functools.cache
def outputs() -> tuple[str, ...] | None:
    """The outputs of the installed class where rows are joined; None: all."""
    batch = Original(pad_token_id=0, padding_free=True)([{MAIN: [1, 2]}])
    return None if "seq_idx" in batch else tuple(batch)


@planned
def sft_plan(key: PlanKey) -> Plan:
    """The outputs, in order."""
    shapes = col.column_shapes(key.signature)
    label = key.names.index("labels") if "labels" in key.names else 0
    joins, positions, packed = key.options
    require_ints(key.names, shapes if packed else shapes[: label + 1])
    if not (shapes[0].starts and shapes[label].starts):  # torch takes it for floats, and all others too
        raise FallBack("the first row is empty", "leave empty rows out")
    if not joins:
        steps: list[col.Step] = [(MAIN, 0, col.PAD, INT64), ("labels", label, col.PAD_OWN, INT64)]
        if positions:
            steps.append(("position_ids", 0, col.ROW_POSITIONS, INT64))
        return Plan((*steps, ("attention_mask", 0, col.MASK, INT64)))
    if not shapes[0].full:
        raise FallBack("a row is empty", "leave empty rows out")  # it is not a sequence
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


class _Padded(Spec):
    plan = staticmethod(sft_plan)

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        return {MAIN: collator.pad_token_id, "labels": _IGNORED, "position_ids": 0}


class _Joined(_Padded):
    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        """A flat batch as TRL has it: padding in sequences of its own, and one tensor of bounds."""
        bounds = batch["cu_seq_lens_q"]
        if collator.pad_to_multiple_of is not None:
            total = batch[MAIN].shape[1]
            rows, end = len(bounds) - 1, int(bounds[-1])
            if rest := total - end:
                joined = collator.padding_is_one_sequence
                batch["position_ids"][0, end:] = torch.arange(rest) if joined else 0
                batch["seq_idx"][0, end:] = rows if joined else torch.arange(rows, rows + rest)
                bounds_of_padding = torch.tensor([total]) if joined else torch.arange(end + 1, total + 1)
                bounds = torch.cat([bounds, bounds_of_padding.to(torch.int32)])
                longest = max(batch["max_length_q"], rest if joined else 1)
                batch.update(cu_seq_lens_q=bounds, max_length_q=longest, max_length_k=longest)
        batch["cu_seq_lens_k"] = bounds
        return {name: batch[name] for name in names} if (names := outputs()) is not None else batch
