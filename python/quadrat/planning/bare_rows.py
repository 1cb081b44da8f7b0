"""Bare rows of token ids, without mappings: `_torch_collate_batch` and `_numpy_collate_batch` on columns."""

from __future__ import annotations

from typing import Any

from quadrat import _core
from quadrat.deferred.batch import deferred_batch
from quadrat.input.columns import ARRAY, INTS, LABELS, LIST, MEMORY_ROWS, PAD, PYTHON_ROWS, STACK, TENSOR, explain
from quadrat.input.rows import SEQUENCES, bare_column, first_mapping
from quadrat.planning.fallback import FallBack, rounded_up
from quadrat.planning.labels import Labelling
from quadrat.planning.padded import require_tokenizer
from quadrat.planning.plan import BatchLayout, Plan, check_device, key_of, run_steps
from quadrat.planning.plan_cache import PadOptions, joined_facts, padding_facts, remember
from quadrat.ragged import Ragged
from quadrat.support.memory import BOOL, INT64, Framework, interop

_NAMES = ("input_ids",)


def columns_of_ids(features: Any) -> _core.Columns:
    """Column 0: the token ids of bare rows, or of mappings with `input_ids`. Raises FallBack."""
    if not isinstance(features, (*SEQUENCES, Ragged)) or not features:
        raise FallBack("features are not a list of mappings or rows")
    if first_mapping(features) is None:
        if type(features) not in (*SEQUENCES, Ragged):  # a subclass may give its rows in its own way
            raise FallBack("rows are not in a plain list or tuple")
        return bare_column(features)
    collected = _core.collect(features, ("input_ids",), interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with 'input_ids'")
    return collected[1]


def stack_rows(
    collator: Any,
    columns: _core.Columns,
    framework: Framework,
    multiple: int | None,
    labelling: Labelling | None = None,
    *,
    remembers: bool = False,
) -> Any:
    """`{"input_ids": [rows, width]}` int64, padded only where lengths or `multiple` ask for it, and `labels` of them.

    Args:
        collator: what has the tokenizer, and keeps recipes.
        columns: of ids.
        framework: of the result.
        multiple: to which the width is rounded up.
        labelling: how labels are made; with it, the batch is deferred where the collator's option says so.
        remembers: whether batches like this one may take a recipe from now on.

    Raises:
        FallBack: when the result cannot be proven to be the reference's.
    """
    tokenizer = collator.tokenizer
    require_tokenizer(tokenizer)
    forms, first_form, kinds, shortest, longest, _ = columns.describe(0)
    _check_forms(forms, first_form, kinds, framework)
    check_device(framework)
    if forms & MEMORY_ROWS and shortest == 0:
        raise FallBack("an empty array or tensor, whose dtype may be another")
    if framework == "pt" and forms & ARRAY and not columns.steps_forward(0):
        raise FallBack("an array that torch does not take")
    width = rounded_up(longest, multiple)
    pads = shortest < longest or width > longest
    left = tokenizer.padding_side != "right"
    values: dict[str, Any] = {}
    if pads:
        if tokenizer.pad_token is None or type(tokenizer.pad_token_id) is not int:
            raise FallBack("the tokenizer has no pad token")
        if left and shortest == 0:
            raise FallBack("an empty row on the left")
        values["input_ids"] = tokenizer.pad_token_id
    steps = [("input_ids", 0, PAD if pads else STACK, INT64)]
    if labelling is not None:
        values["labels"] = labelling.make(_NAMES)
        steps.append(("labels", 0, steps[0][2] if type(values["labels"]) is int else LABELS, INT64))
    layout, plan, deferred = (
        BatchLayout(width, 1, left),
        Plan(tuple(steps)),
        labelling is not None and collator.deferred,
    )
    batch = run_steps(columns, plan.steps, values, framework, layout, deferred=deferred)
    if isinstance(batch, tuple):
        raise FallBack(f"rows: {explain((batch[1], -1, -1))}")
    # Of rows in memory, and of batches padded on the left, the key does not tell all.
    if remembers and labelling is not None and not forms & ~PYTHON_ROWS and not left:
        remember(
            collator,
            key_of(_NAMES, columns, framework, None, (0, width)),
            plan,
            values,
            joined_facts(padding_facts(collator, PadOptions()), labelling.facts()),
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
    converts = LIST | ARRAY if framework == "pt" else LIST
    if not forms & ~converts and kinds and not kinds & ~(INTS | 1 << BOOL):
        return
    if not forms & ~PYTHON_ROWS and kinds and not kinds & ~(1 << INT64 | 1 << BOOL):
        return
    if forms == first_form == (TENSOR if framework == "pt" else ARRAY) and kinds == 1 << INT64:
        return
    raise FallBack("rows are not lists of ints, or arrays or tensors of int64")
