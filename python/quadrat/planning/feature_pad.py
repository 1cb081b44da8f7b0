"""`feature_pad`: the result of `SequenceFeatureExtractor.pad`, without its loop over rows."""

from typing import Any, NamedTuple

import numpy as np
from transformers import BatchFeature
from transformers.utils import PaddingStrategy
from transformers.utils.generic import to_numpy

from quadrat import _core
from quadrat.input.items import as_columns
from quadrat.input.rows import Rows, plain, values_of
from quadrat.installed import originals
from quadrat.installed.behaviour import feature_pad_keeps_arrays
from quadrat.installed.imitated import Row, code_of
from quadrat.planning import fallback
from quadrat.planning.conversion import framework_of
from quadrat.planning.fallback import FallBack, Why, or_fall_back, rounded_up, said
from quadrat.planning.making import Function
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, planned
from quadrat.support import columns as col
from quadrat.support.kinds import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT32, Framework, torch_has
from quadrat.support.memory import address_of, interop
from quadrat.support.tensors import is_tensor

MASK = "attention_mask"
# Kept from import time: quadrat does not imitate extractors, or patches of the base class, that differ.
_PARTS = {name: getattr(originals.FEATURE_EXTRACTOR, name, None) for name in originals.PARTS_OF_FEATURE_PAD}
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_HALF = float(np.finfo(np.float16).max)
_FLOAT64 = np.dtype(np.float64)
_NONE = type(None)
_CODE = code_of(
    *(f"SequenceFeatureExtractor.{name}" for name in ("pad", *_PARTS)),
    *("BatchFeature.convert_to_tensors", "BatchFeature._get_is_as_tensor_fns"),
    home="feature_extraction_sequence_utils",
)


class FeaturePadOptions(NamedTuple):
    """The arguments of `SequenceFeatureExtractor.pad` after its input."""

    padding: Any = True
    max_length: Any = None
    truncation: Any = False
    pad_to_multiple_of: Any = None
    return_attention_mask: Any = None
    return_tensors: Any = None


def feature_pad(
    extractor: Any, inputs: Any, options: FeaturePadOptions, kinds: Any = (INT32, None), name: str | None = None
) -> Any:
    """The `BatchFeature` that the extractor's base class makes of inputs, which it changes as the reference does.

    kinds: of an attention mask that is made (the reference's is int32), and of the column to pad by (None: its own).
    name: the only column of rows to take.
    """
    return _function.call(inputs, (extractor, options, name, kinds))


def only(rows: Any, name: str) -> list[dict[str, Any]]:
    """The rows as dicts of one column."""
    return [{name: value} for value in values_of(rows, name)]


class _FeaturePad(Function):
    _imitates = Row("feature_pad", _CODE)

    def look(self, inputs: Any, options: Any) -> tuple[Any, ...]:
        extractor, asked, name, _ = options
        main, strategy = _main_of(extractor), _strategy(extractor, asked)
        of_columns = name is None and isinstance(inputs, (dict, BatchFeature))
        names, columns, framework, *more = _of_columns(inputs, main) if of_columns else _of_rows(inputs, main, name)
        framework = framework if asked.return_tensors is None else framework_of(asked.return_tensors)
        if framework is None:
            raise FallBack(f"return_tensors={asked.return_tensors!r}", fallback.OTHER_TENSORS)
        return names, columns, framework, (type(extractor), asked), *more, main, *strategy

    def write(self, inputs: Any, looked: Any, options: Any) -> BatchFeature:
        extractor, asked, name, (mask_kind, kind) = options
        names, columns, framework, _, values, converted, main, strategy, limit = looked
        index = names.index(main)
        if asked.truncation and columns.longest(index) > limit:
            columns = _cut(names, columns, values, main, limit)
        pads, longest = strategy != PaddingStrategy.DO_NOT_PAD, columns.longest(index)
        width = limit if strategy == PaddingStrategy.MAX_LENGTH else longest
        width = rounded_up(width, asked.pad_to_multiple_of) if pads else width
        if width < longest:
            raise FallBack("max_length is below the longest row", "set truncation=True, or raise max_length")
        masks = extractor.return_attention_mask if asked.return_attention_mask is None else asked.return_attention_mask
        if any(columns.describe(at)[3] == 0 for at in range(len(names))) or len(columns.trailing(index)) > 1:
            raise FallBack("rows of more than two dimensions, or empty ones", "leave empty rows out")
        floats = [at for at in range(len(names)) if columns.stored_kinds(at) & col.PYTHON_FLOATS]
        for rows in (values(names[at]) for at in floats if values is not None):
            # The reference rounds numbers of the dtype that is this object; unpickled arrays have one of their own.
            if any(isinstance(row, np.ndarray) and row.dtype == _FLOAT64 and row.dtype is not _FLOAT64 for row in rows):
                raise FallBack("float64 that the reference does not round", "give numpy.float32")
        key = _KeyOptions(main, pads, bool(masks), mask_kind, kind, extractor.feature_size > 1)
        layout = col.BatchLayout(width, 1, pads and extractor.padding_side == "left")
        spec = Spec(framework, _plan, key, names, main=main, layout=layout, values=_values)
        made = spec.make(extractor, inputs, columns, counts=name is None)
        for at in floats:
            _require_rounded(made[names[at]])
        if converted is not None:
            inputs.update(converted)
        return BatchFeature(made)

    def reference(self, inputs: Any, options: Any) -> Any:
        extractor, asked, name, _ = options
        rows = plain(inputs) if name is None else only(inputs, name)
        return originals.FEATURE_PAD(extractor, rows, **asked._asdict())

    def hint(self, why: Why, inputs: Any) -> str | None:
        """NumPy has no dtype for rows of bfloat16, and the reference does not say so."""
        return said(*why) if "bfloat16" in why[0] else None


_function = type("FeaturePad", (_FeaturePad,), {})()  # the name that logs show


def _main_of(extractor: Any) -> str:
    """The column to pad by. Raises FallBack for an extractor that pads in its own way."""
    cls, own = type(extractor), vars(extractor)
    if any(getattr(cls, name, None) is not part or name in own for name, part in _PARTS.items()):
        raise FallBack(*fallback.pads_its_own_way(cls))
    with or_fall_back("the extractor lacks what the base class has", "call __init__ of the base class"):
        if type(extractor.feature_size) is int:
            return str(extractor.model_input_names[0])
    raise FallBack("feature_size is not an int", "give an int")


def _strategy(extractor: Any, options: FeaturePadOptions) -> tuple[Any, int]:
    """How to pad, and `max_length` as the reference rounds it up; 0 where it is None."""
    limit = options.max_length
    if type(limit) not in (int, _NONE) or (limit or 0) < 0 or type(options.truncation) is not bool:
        raise FallBack("max_length is not a length, or truncation is not a bool", "give an int, and True or False")
    if limit is None and options.truncation:
        raise FallBack("truncation needs max_length", "give max_length")
    if type(options.return_attention_mask) not in (bool, _NONE):
        raise FallBack("return_attention_mask is not a bool", "give True, False or None")
    with or_fall_back("the padding options are refused"):
        strategy = extractor._get_padding_strategies(padding=options.padding, max_length=limit)
    if strategy != PaddingStrategy.DO_NOT_PAD and getattr(extractor, "padding_side", None) not in ("left", "right"):
        raise FallBack("unknown padding_side", "set padding_side to 'right' or 'left'")
    return strategy, rounded_up(limit or 0, options.pad_to_multiple_of)


# (names, columns, the framework that the rows of the column to pad by ask for; what gives the rows of a column by its
# name, None where they lie in Arrow; what the reference puts into its input, in place of its columns, or None)
_Batch = tuple[tuple[str, ...], _core.Columns, Framework | None, Any, dict[str, Any] | None]


def _of_columns(inputs: Any, main: str) -> _Batch:
    data = inputs.data if type(inputs) is BatchFeature else inputs
    if type(data) is not dict or main not in data or any(type(name) is not str for name in data):
        raise FallBack("the input is not a dict of columns", f"give a dict with '{main}'")
    with or_fall_back("a column does not convert to arrays", "give rows of numbers"):
        first = data[main][0]
        if type(first) in (list, tuple):
            first = next(row for row in data[main] if len(row))[0]
        converted = {name: _as_arrays(value) for name, value in data.items()}
        # Spectrograms are often transposed, and are read where their elements lie side by side.
        values = converted.values()
        columns = _columns_of([[np.ascontiguousarray(a) if np.ndim(a) > 1 else a for a in rows] for rows in values])
    known = type(first) in (int, float, bool, list, tuple) or isinstance(first, np.ndarray)
    framework: Framework | None = "pt" if is_tensor(first) else "np" if known else None
    return tuple(data), columns, framework, converted.get, converted


def _as_arrays(value: Any) -> Any:
    if isinstance(value[0], (int, float)):
        return to_numpy(value)
    kept = isinstance(value, np.ndarray) and feature_pad_keeps_arrays()
    return value if kept else [to_numpy(one) for one in value]


def _columns_of(values: list[list[Any]]) -> _core.Columns:
    columns = _core.Columns()
    for rows in values:
        columns.add_values(rows, interop())
    if len(set(map(len, values))) != 1:
        raise FallBack("columns differ in their number of rows", "give all columns one number of rows")
    return columns


def _of_rows(inputs: Any, main: str, name: str | None) -> _Batch:
    inputs = as_columns(inputs)
    if type(inputs) is Rows and inputs.handed_out:
        inputs = inputs.as_list()
    if type(inputs) in (list, tuple):
        if not all(isinstance(one, (dict, BatchFeature)) for one in inputs):
            raise FallBack("the input is not a list of dicts", "give a list of dicts")
        inputs = [one.data if type(one) is BatchFeature else one for one in inputs]
    found = _core.collect(inputs, None if name is None else (name,), interop())
    if found is None or main not in found[0] or any(type(name) is not str for name in found[0]):
        raise FallBack("the input is not a list of plain dicts with the same keys", f"give each '{main}'")
    framework: Framework = "pt" if found[1].describe(found[0].index(main))[1] & col.TENSOR else "np"
    values = None if type(inputs) is Rows else lambda name: [one[name] for one in inputs]
    return *found, framework, values, None


def _cut(names: tuple[str, ...], columns: _core.Columns, values: Any, main: str, limit: int) -> _core.Columns:
    cut = [names.index(name) for name in (main, MASK) if name in names]
    if columns.first_difference(cut[0], cut[-1]) >= 0:
        raise FallBack("the attention mask differs in length from the rows", "give one number for each sample or frame")
    if values is not None:
        if any(columns.describe(index)[0] & ~(col.MEMORY_ROWS | col.DEEP) for index in cut):
            raise FallBack("rows that are neither arrays nor tensors are cut", "give arrays: numpy.asarray(row)")
        made = [
            [one[:limit] for one in rows] if at in cut else list(rows) for at, rows in enumerate(map(values, names))
        ]
        return _columns_of(made)
    starts = np.zeros(columns.count(cut[0]), np.int64)
    lengths = np.empty_like(starts)
    columns.lengths(cut[0], address_of(lengths))
    np.minimum(lengths, limit, out=lengths)
    with or_fall_back("rows that do not lie in memory are cut", "give arrays: numpy.asarray(row)"):
        for index in cut:
            columns.cut(index, address_of(starts), address_of(lengths))
    return columns


class _KeyOptions(NamedTuple):
    main: str
    pads: bool
    mask: bool
    mask_kind: int
    kind: int | None  # of the column to pad by; None: its own
    vectors: bool  # whether rows of two dimensions are padded, or else of one


@planned
def _plan(key: PlanKey) -> Plan:
    asked, steps = key.options, []
    shapes = dict(zip(key.names, col.column_shapes(key.signature), strict=True))
    dimensions = 1 + asked.vectors
    for index, (name, shape) in enumerate(shapes.items()):
        kind = shape.kinds.bit_length() - 1
        if shape.kinds.bit_count() != 1:
            raise FallBack(f"column '{name}' holds numbers of several kinds, or none", "give all rows one dtype")
        rows = not shape.forms & ~(col.ROWS | col.DEEP)
        if kind == BFLOAT16:
            raise FallBack(f"NumPy has no bfloat16, which column '{name}' holds", "give row.float()")
        if key.framework == "pt" and not torch_has(kind, of_numbers=shape.forms == col.SCALAR):
            raise FallBack(f"torch cannot make tensors of column '{name}'", "give a dtype that torch has")
        if name == asked.main and (not rows or kind == BOOL):
            raise FallBack(f"column '{name}' is not made of rows of numbers", "give lists or arrays of numbers")
        padded = name == asked.main or (name == MASK and asked.mask)
        action = col.PAD if padded and asked.pads else col.STACK if rows else col.NUMBERS
        single = col.SINGLE_NUMBERS if key.framework == "pt" else col.NUMBER | col.SCALAR
        if (action == col.PAD and not (rows and shape.aligned)) or (action == col.STACK and not shape.equal):
            raise FallBack(f"rows of column '{name}' differ in length", "give them one length, or remove it")
        if action == col.PAD and bool(shape.forms & col.DEEP) != (asked.vectors and name != MASK) and not shape.full:
            raise FallBack(f"rows of column '{name}' do not have {dimensions} dimensions", "give such rows")
        if action == col.NUMBERS and (shape.forms & ~single or kind == BOOL):
            raise FallBack(f"column '{name}' holds bools, or is mixed", "give numbers")  # 5.x leaves bools in a list
        kind = FLOAT32 if shape.kinds == col.PYTHON_FLOATS else kind
        steps.append((name, index, action, kind if asked.kind is None or name != asked.main else asked.kind))
    if asked.mask and MASK not in shapes:
        steps.append((MASK, key.names.index(asked.main), col.MASK, asked.mask_kind))
    return Plan(tuple(steps))


def _values(extractor: Any, key: PlanKey) -> dict[str, Any]:
    shape = col.column_shapes(key.signature)[key.names.index(key.options.main)]
    kind = FLOAT32 if shape.kinds == col.PYTHON_FLOATS else shape.kinds.bit_length() - 1
    return {key.options.main: _fill(extractor.padding_value, kind) if key.options.pads else 0, MASK: 0}


def _fill(value: Any, kind: int) -> Any:
    """The value that fills the gaps. Raises FallBack for what NumPy changes, or warns of."""
    if type(value) not in (int, float) or not abs(value) <= _LARGEST:
        raise FallBack("padding_value is not a usual number", "set padding_value to a number that float32 holds")
    if kind == FLOAT32:
        return float(value)
    if not (abs(value) < _LARGEST_HALF and np.float16(value) == value if kind == FLOAT16 else value == int(value)):
        raise FallBack("padding_value does not fit the numbers of the rows", "give rows of floats")
    return float(value) if kind == FLOAT16 else int(value)


def _require_rounded(made: Any) -> None:
    """Raises FallBack unless all numbers are finite: NumPy may warn of those that a float32 does not hold."""
    flat = np.asarray(made.float() if is_tensor(made) else made).reshape(-1)
    with np.errstate(all="ignore"):
        square = np.dot(flat, flat)  # in one pass
    if not np.isfinite(square) and not np.isfinite(flat).all():
        raise FallBack("a number is beyond those of float32", "scale the numbers")
