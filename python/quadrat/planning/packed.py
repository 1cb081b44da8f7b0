"""Rows of documents in padded batches: where in its document a token stands, and which tokens it sees."""

from collections.abc import Container, Mapping
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from quadrat.input.items import SEQ_LENGTHS, documents_of, is_packed
from quadrat.input.rows import plain
from quadrat.planning.fallback import FallBack, Why, raise_clearer, require_names, said
from quadrat.planning.plan_cache import PlanKey, Spec
from quadrat.support import columns as col
from quadrat.support.kinds import BFLOAT16, BOOL, INT64, KINDS, bits_of, kind_of

Ways = Literal["positions", "numbers", "causal", "bidirectional"]
_WAYS: tuple[str, ...] = get_args(Ways)
BLOCKS = _WAYS[2:]  # whose masks have four dimensions
_MASK, _POSITIONS = "attention_mask", "position_ids"
_LOWEST = -(2 - 2**-7) * 2.0**127  # of bfloat16
_INTS = {_MASK: col.INTS | col.BOOLS, _POSITIONS: col.INTS}


def columns_read(key: PlanKey, shapes: list[col.ColumnShape], others: Container[str]) -> dict[str, col.ColumnShape]:
    """The columns that tell documents apart, and come out as `pack_steps` says; none without `packs`."""
    read = () if key.options.packs is None else (_MASK, _POSITIONS, SEQ_LENGTHS)
    return {name: one for name, one in zip(key.names, shapes, strict=True) if name in read and name not in others}


def pack_steps(key: PlanKey, read: dict[str, col.ColumnShape], main: int, others: Container[str]) -> list[col.Step]:
    """The mask and the positions, of the columns that are read. Raises FallBack where they are not fit for it."""
    way: Ways | None = key.options.packs
    if way is None:
        return []
    require_lengths(read)
    for name, kinds in _INTS.items():
        shape = read.get(name)
        if shape is not None and (shape.forms & ~col.ROWS or shape.kinds & ~kinds or not shape.aligned):
            raise FallBack(f"column '{name}' has other rows than one number per token", "give such rows")
    index = key.names.index(_MASK) if _MASK in read else main
    steps: list[col.Step] = []
    if way != "positions":
        steps.append((_MASK, index, *((col.ROW_MASK, _mask_kind(key)) if way in BLOCKS else (col.ROW_NUMBERS, INT64))))
    if _POSITIONS in read:
        steps.append((_POSITIONS, key.names.index(_POSITIONS), col.COUNT_ON, INT64))
    elif _POSITIONS not in others:
        steps.append((_POSITIONS, index, col.ROW_POSITIONS, INT64))
    return steps


def pack_values(key: PlanKey) -> dict[str, Any]:
    """The values that `pack_steps` write, by output; `Action` in csrc/bindings/plan/execute.hpp describes them."""
    way, given = key.options.packs, _MASK in key.names
    if way is None:
        return {}
    if way not in BLOCKS:
        return {_MASK: (given,), _POSITIONS: (given,)}
    kind = _mask_kind(key)
    lowest = _LOWEST if kind == BFLOAT16 else 0 if kind == BOOL else np.finfo(KINDS[kind]).min
    # Where a token does not see another, and where it does.
    elements = bits_of(lowest, kind), bits_of(kind == BOOL, kind)
    return {_MASK: (given, way == "causal", *elements), _POSITIONS: (given,)}


def _mask_kind(key: PlanKey) -> int:
    kind: int | None = dict(key.options.own.kinds).get(_MASK, key.float_kind)
    if kind is None:
        raise FallBack("torch's default dtype is not known", "give dtypes={'attention_mask': 'bool'}")
    return kind


def require_lengths(shapes: Mapping[str, col.ColumnShape]) -> None:
    """Raises FallBack unless `seq_lengths`, if they are among these columns, are rows of ints."""
    shape = shapes.get(SEQ_LENGTHS)
    if shape is not None and (shape.forms & ~col.ROWS or shape.kinds & ~col.INTS):
        raise FallBack(f"column '{SEQ_LENGTHS}' does not say how long documents are", "give lists of ints")


def check_packs(collator: Any) -> None:
    """Raises ValueError for an option `packs` that is not what it must be, or conflicts with others."""
    way, dtypes = collator.packs, collator.dtypes or {}
    if way is None:
        return
    if way not in _WAYS:
        raise ValueError(f"packs must be one of {', '.join(map(repr, _WAYS))}, not {way!r}")
    for option in ("padding_free", "trim"):
        if getattr(collator, option, False):
            raise ValueError(f"packs says how packs are padded, and {option}=True leaves padding out: give one of them")
    if _POSITIONS in dtypes:
        raise ValueError(f"dtypes: ['{_POSITIONS}'] are made by the collator; leave them out")
    if _MASK in dtypes and not 1 << kind_of(dtypes[_MASK]) & (col.FLOATS | col.BOOLS):
        raise ValueError(f"dtypes: '{_MASK}' of packs={way!r} must be bool or floats, not {dtypes[_MASK]!r}")


def packed_spec(spec: Spec, collator: Any, features: Any) -> Spec:
    """Batches of features with these columns, whose documents are told apart if the collator's `packs` asks for it."""
    if collator.packs is None:
        return spec
    names = [name for name in require_names(features) if name not in spec.joined]
    names.sort(key=lambda name: name != spec.main)  # whose rows the documents lie in comes first
    documents = names.index(SEQ_LENGTHS) if is_packed(features) else -1
    layout = spec.layout._replace(seq_lengths=documents)
    return spec._replace(names=tuple(names), only=spec.joined, layout=layout, deferred=None)


def refuse_packs(collator: Any, features: Any, why: Why) -> NoReturn:
    """Raise why packs are not padded, and what to give: ValueError, or what reading their rows raises."""
    if is_packed(features):
        documents_of(features)  # which names the row whose documents are not as long as it
    raise_clearer(ValueError(f"packs={collator.packs!r}: {said(*why)}"), plain(features), collator)
