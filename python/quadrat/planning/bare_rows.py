"""Bare rows of token ids, without mappings: `_torch_collate_batch` and `_numpy_collate_batch` on columns."""

from __future__ import annotations

from typing import Any

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input import columns as col
from quadrat.input.rows import SEQUENCES, bare_column, first_mapping
from quadrat.planning import plan_cache
from quadrat.planning.fallback import FallBack, rounded_up
from quadrat.planning.padded import require_tokenizer
from quadrat.ragged import Ragged
from quadrat.support.memory import INT64, Framework

_NAMES = ("input_ids",)


def columns_of_ids(features: Any) -> _core.Columns:
    """Column 0: the token ids of bare rows, or of mappings with `input_ids`. Raises FallBack."""
    if not isinstance(features, (*SEQUENCES, Ragged)) or not features:
        raise FallBack("features are not a list of mappings or rows", "give a list")
    if first_mapping(features) is None:
        if type(features) not in (*SEQUENCES, Ragged):  # a subclass may give its rows in its own way
            raise FallBack("rows are not in a plain list or tuple", "give list(rows)")
        return bare_column(features)
    return plan_cache.collected(features, _NAMES)[1]


def stack_rows(
    collator: Any,
    columns: _core.Columns,
    framework: Framework,
    multiple: int | None,
    labelling: plan_cache.Labelling | None = None,
    *,
    remembers: bool = False,
) -> Any:
    """`{"input_ids": [rows, width]}` int64, padded only where lengths or `multiple` ask for it, and `labels` of them.

    With `labelling`, the batch is deferred where the collator's option says so; with `remembers`, batches like this one
    may take a recipe from now on. Raises FallBack.
    """
    tokenizer = collator.tokenizer
    require_tokenizer(tokenizer)
    forms, first_form, kinds, shortest, longest, _ = columns.describe(0)
    _check_forms(forms, first_form, kinds, framework)
    plan_cache.check_device(framework)
    if forms & col.MEMORY_ROWS and shortest == 0:
        raise FallBack("an empty array or tensor, whose dtype may be another", "leave empty rows out")
    if framework == "pt" and forms & col.ARRAY and not columns.steps_forward(0):
        raise FallBack("an array that torch does not take", "give numpy.ascontiguousarray(row)")
    width = rounded_up(longest, multiple)
    pads = shortest < longest or width > longest
    left = tokenizer.padding_side != "right"
    values: dict[str, Any] = {}
    if pads:
        if tokenizer.pad_token is None or type(tokenizer.pad_token_id) is not int:
            raise FallBack("the tokenizer has no pad token", "set tokenizer.pad_token")
        if left and shortest == 0:
            raise FallBack("an empty row on the left", "leave empty rows out")
        values["input_ids"] = tokenizer.pad_token_id
    steps = [("input_ids", 0, col.PAD if pads else col.STACK, INT64)]
    if labelling is not None:
        values["labels"] = labelling.make(_NAMES)
        steps.append(("labels", 0, steps[0][2] if type(values["labels"]) is int else col.LABELS, INT64))
    layout, deferred = col.BatchLayout(width, 1, left), labelling is not None and collator.deferred
    batch = plan_cache.run_steps(columns, tuple(steps), values, framework, layout, deferred=deferred)
    # Of rows in memory, and of batches padded on the left, the key does not tell all.
    if remembers and labelling is not None and not forms & ~col.PYTHON_ROWS and not left:
        plan_cache.remember(
            collator,
            plan_cache.key_of(_NAMES, columns, framework, None, (0, width)),
            plan_cache.Plan(tuple(steps)),
            values,
            plan_cache.joined_facts(plan_cache.padding_facts(collator, plan_cache.PadOptions()), labelling.facts()),
            falls_back=False,
            names=_NAMES,
            bare=True,
            main=_NAMES[0],
            layout=layout._replace(width=-1, multiple_of=multiple or 1),
            deferred=deferred_batch if deferred else None,
        )
    return batch


def _check_forms(forms: int, first_form: int, kinds: int, framework: Framework) -> None:
    """Whether the reference makes int64 of all rows: from lists and, for torch, arrays; other rows keep their dtype."""
    converts, own = (col.LIST | col.ARRAY, col.TENSOR) if framework == "pt" else (col.LIST, col.ARRAY)
    if not (
        (not forms & ~converts and kinds and not kinds & ~(col.INTS | col.BOOLS))
        or (not forms & ~col.PYTHON_ROWS and kinds and not kinds & ~(col.PYTHON_INTS | col.BOOLS))
        or (forms == first_form == own and kinds == col.PYTHON_INTS)
    ):
        if not kinds and not forms & ~col.ROWS:
            raise FallBack("all rows are empty", "leave them out")
        raise FallBack("rows are not lists of ints, or arrays or tensors of int64", "give rows of one such type")
