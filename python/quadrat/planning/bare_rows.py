"""Bare rows of token ids, without mappings: `_torch_collate_batch` and `_numpy_collate_batch` on columns."""

from __future__ import annotations

from typing import Any

from quadrat.deferred.batch import deferred_batch
from quadrat.input.rows import MAIN, SEQUENCES, bare_column, first_mapping
from quadrat.planning import plan_cache
from quadrat.planning.fallback import FallBack, rounded_up
from quadrat.planning.padded import require_tokenizer
from quadrat.planning.plan_cache import NO_LABELS, Labelling, Plan, PlanKey, Spec, make, planned
from quadrat.ragged import Ragged
from quadrat.support import columns as col
from quadrat.support.kinds import INT64, Framework


def rows_spec(
    collator: Any, framework: Framework, multiple: int | None, labelling: Labelling = NO_LABELS, **more: Any
) -> Spec:
    """`{"input_ids": [rows, width]}` int64, padded only where lengths or `multiple` ask for it, and `labels` of them.

    more: fields of the `Spec`. Raises FallBack.
    """
    tokenizer = collator.tokenizer
    require_tokenizer(tokenizer)
    rounded_up(0, multiple)
    left, pad_id = tokenizer.padding_side != "right", None if tokenizer.pad_token is None else tokenizer.pad_token_id
    pad_id = pad_id if type(pad_id) is int else None
    own: dict[str, Any] = {
        "plan": rows_plan,
        "options": (left, pad_id is not None, labelling.derives),
        "values": lambda collator, key: {MAIN: pad_id},
        "facts": plan_cache.padding_facts(collator, plan_cache.PadOptions()),
        "deferred": deferred_batch if labelling.make is not None and collator.deferred else None,
        "mismatch": ("features are not a list of mappings or rows", "give a list of rows, or of dicts with input_ids"),
    }
    layout = col.BatchLayout(-1, multiple or 1, left)
    return Spec(framework, names=(MAIN,), main=MAIN, layout=layout, labelling=labelling, **{**own, **more})


def make_rows(collator: Any, spec: Spec, features: Any) -> Any:
    """The batch of bare rows, or of mappings with `input_ids`. Raises FallBack."""
    if not isinstance(features, (*SEQUENCES, Ragged)) or not len(features):
        raise FallBack("features are not a list of mappings or rows", "give a list")
    bare = first_mapping(features) is None
    if bare and type(features) not in (*SEQUENCES, Ragged):  # a subclass may give its rows in its own way
        raise FallBack("rows are not in a plain list or tuple", "give list(rows)")
    columns = bare_column(features) if bare and type(features) not in (list, tuple) else None
    optional = None if bare else spec.optional
    return make(collator, spec._replace(bare=bare, optional=optional), features, columns)


@planned
def rows_plan(key: PlanKey) -> Plan:
    """The ids, and their labels."""
    shape, (left, has_pad, derives) = col.column_shapes(key.signature)[0], key.options
    forms, first_form, numbers, *_ = shape
    # From lists and, for torch, arrays the reference makes int64; other rows keep their dtype.
    pt = key.framework == "pt"
    converts, own = (col.LIST | col.ARRAY | col.DERIVED, col.TENSOR) if pt else (col.LIST, col.ARRAY)
    if not (
        (not forms & ~converts and numbers and not numbers & ~(col.INTS | col.BOOLS))
        or (not forms & ~col.PYTHON_ROWS and numbers and not numbers & ~(col.PYTHON_INTS | col.BOOLS))
        or (forms == first_form == own and numbers == col.PYTHON_INTS)
    ):
        if not numbers and not forms & ~col.ROWS:
            raise FallBack("all rows are empty", "leave them out")
        raise FallBack("rows are not lists of ints, or arrays or tensors of int64", "give rows of one such type")
    if shape.forms & col.MEMORY_ROWS and shape.empty:
        raise FallBack("an empty array or tensor, whose dtype may be another", "leave empty rows out")
    if key.framework == "pt" and shape.backward:
        raise FallBack("an array that torch does not take", "give numpy.ascontiguousarray(row)")
    if not shape.full and not has_pad:
        raise FallBack("the tokenizer has no pad token", "set tokenizer.pad_token")
    if not shape.full and left and shape.empty:
        raise FallBack("an empty row on the left", "leave empty rows out")
    action = col.STACK if shape.full else col.PAD
    steps = [(MAIN, 0, action, INT64)]
    if derives:
        steps.append(("labels", 0, action if derives == "fill" else col.LABELS, INT64))
    return Plan(tuple(steps))
