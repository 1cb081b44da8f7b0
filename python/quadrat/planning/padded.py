"""`PreTrainedTokenizerBase.pad` on columns: a plan is its `_pad` as a table, without the loop over rows."""

import functools
from typing import Any, NamedTuple, Self

import numpy as np
from transformers import BatchEncoding
from transformers.utils.generic import to_py_obj

from quadrat.input.rows import values_of
from quadrat.installed import originals
from quadrat.installed.behaviour import pad_warns_of_fast_tokenizers
from quadrat.planning.extra_columns import LABELS, OwnColumns
from quadrat.planning.facts import METHODS, PAD_ONE, STRATEGIES, Fact
from quadrat.planning.fallback import AlwaysFallBack, FallBack, Reason, or_fall_back, pads_its_own_way, rounded_up
from quadrat.planning.plan_cache import NO_LABELS, Labelling, Plan, PlanKey, Spec, planned
from quadrat.support import columns as col
from quadrat.support.kinds import BOOL, INT64, Framework

FAST_WARNING = "Asking-to-pad-a-fast-tokenizer"


class PadOptions(NamedTuple):
    """How a collator asks its tokenizer to pad; the defaults are those of `tokenizer.pad`."""

    padding: Any = True
    max_length: Any = None
    pad_to_multiple_of: Any = None
    padding_side: Any = None  # None: the tokenizer's own
    return_attention_mask: Any = None  # None: whether the tokenizer's model_input_names list it
    verbose: Any = True

    @property
    def asks_tokenizer(self) -> bool:
        """True if the tokenizer is asked what the options mean."""
        return self.max_length is not None or not (self.padding is True or self.padding == "longest")


class LabelColumn(NamedTuple):
    """The column of labels: set aside, made int64, last in the batch."""

    names: tuple[str, ...]  # the first of these that is there
    # PAD: to the width of the batch, PAD_OWN: to its own longest row, STACK: as it is, NUMBERS: one for several choices
    action: int
    value: int | None = None  # what pads it
    output: str | None = None  # its name in the batch; None: its own
    # Whether the output is None where there is no such column, or it holds None in all rows; then lists follow lists.
    optional: bool = False
    refusal: Reason | None = None  # why batches with labels fall back

    def name_in(self, names: tuple[str, ...]) -> str | None:
        """The name of the column."""
        return next((name for name in self.names if name in names), None)


class PaddedOptions(NamedTuple):
    """The options in the key of a padded batch."""

    main: str  # the column the batch is padded by, usually input_ids
    pads: bool  # False: padding=False or "do_not_pad"
    rounds: bool  # whether there is a multiple to round widths up to
    makes_mask: bool  # the tokenizer's model_input_names list attention_mask
    label: LabelColumn | None
    column_options: OwnColumns
    renames: tuple[str, ...]  # columns that come out as labels
    omits: tuple[str, ...]  # columns that are looked at, and do not come out
    derives: str  # labels made from the padded ids, see `Labelling`
    warns: bool  # the tokenizer warns of the options at each batch


def require_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for what is not a tokenizer."""
    is_one = (
        hasattr(tokenizer, "pad") and hasattr(tokenizer, "padding_side") and hasattr(tokenizer, "model_input_names")
    )
    if isinstance(tokenizer, type) or not is_one:
        raise FallBack(f"a {type(tokenizer).__name__} is not a tokenizer", "give a tokenizer of transformers")


def warns_of_fast(tokenizer: Any) -> bool:
    """True if the reference will warn, once, that a fast tokenizer has a faster method than `pad`."""
    return (
        pad_warns_of_fast_tokenizers()
        and tokenizer.__class__.__name__.endswith("Fast")
        and not tokenizer.deprecation_warnings.get(FAST_WARNING, False)
    )


def check_tokenizer(tokenizer: Any) -> None:
    """Raises FallBack for a tokenizer that pads in its own way."""
    cls = type(tokenizer)
    if (
        not originals.is_of(getattr(cls, "pad", None), originals.PAD)
        or cls._pad is not PAD_ONE
        or cls._get_padding_truncation_strategies is not STRATEGIES
    ):
        raise AlwaysFallBack(*pads_its_own_way(cls))
    if not METHODS.isdisjoint(tokenizer.__dict__):
        raise FallBack(f"{cls.__name__} pads in its own way", "do not replace its methods that pad")


def _width(tokenizer: Any, options: PadOptions) -> tuple[bool, int]:
    """(Does the reference pad?, to how many tokens; -1: to the longest row)."""
    rounded_up(0, options.pad_to_multiple_of)  # raises where the reference may fail even without padding
    strategy: Any = "longest"
    limit: Any = None
    if options.asks_tokenizer:
        with or_fall_back("the padding options are refused"):
            strategy, _, limit, _ = _strategies(tokenizer, options.padding, options.max_length, verbose=False)
        if type(limit) is not int and limit is not None:
            raise FallBack("max_length is not an int", "give an int, or None")
    if strategy != "max_length" or limit is None:
        return strategy != "do_not_pad", -1
    if limit < 0:
        raise FallBack("max_length is negative", "give a positive int, or None")
    return True, rounded_up(limit, options.pad_to_multiple_of)


def _strategies(tokenizer: Any, padding: Any, max_length: Any, *, verbose: bool) -> Any:
    """The options as the tokenizer understands them. verbose: it warns of them, as for each batch of the reference."""
    return tokenizer._get_padding_truncation_strategies(padding=padding, max_length=max_length, verbose=verbose)


def _main_of(key: PlanKey, shapes: list[col.ColumnShape]) -> tuple[int, bool]:
    """The column to pad by, and whether its rows are arrays. Raises FallBack where the reference decides."""
    names, options = key.names, key.options
    if not all(isinstance(name, str) for name in names):
        raise FallBack("names of columns are not strings", "give strings")
    if options.main not in names:
        raise FallBack(f"no column '{options.main}' to pad by", f"give every row '{options.main}'")
    shape = shapes[names.index(options.main)]
    if shape.over:
        raise FallBack("max_length is below the longest row", "truncate the rows when you tokenize them")
    if missing := {name for name, _ in options.column_options.pads} - {*names, *LABELS}:
        raise FallBack(f"the first row has no column {min(missing)!r}", "give each row the columns of pad_values")
    # In lists the reference looks at the first number; arrays it turns into lists first.
    arrays = bool(shape.first_form & col.MEMORY_ROWS)
    if not arrays and (shape.forms & ~col.PYTHON_ROWS or shape.kinds != col.PYTHON_INTS):
        if not shape.kinds and not shape.forms & ~col.PYTHON_ROWS:
            raise FallBack(f"column '{options.main}' has empty rows only", "leave them out")
        raise FallBack(f"column '{options.main}' is not made of lists of ints", "give lists of ints")
    if _is_padded(options.main, True):
        raise FallBack(f"the tokenizer pads by '{options.main}'", "list the token ids first in model_input_names")
    if not options.pads and not shape.equal:
        raise FallBack("rows of different lengths without padding", "set padding=True")
    return names.index(options.main), arrays


@planned
def padded_plan(key: PlanKey) -> Plan:
    """The step of each column."""
    names, options, shapes = key.names, key.options, col.column_shapes(key.signature)
    columns, label = options.column_options, options.label
    extra = {*dict(columns.pads), *columns.joined}
    labels = None if label is None else label.name_in(names)
    # The model compares what its decoder makes of columns with the labels, which are then as wide.
    beside_labels = label is not None and labels is not None and label.optional and label.action == col.PAD
    main, arrays = _main_of(key, shapes)
    steps: list[col.Step] = []
    for index, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        if name == labels:
            continue
        if name in extra:
            wide = shape.aligned or (beside_labels and name.startswith("decoder_"))
            steps += columns.steps(name, index, shape, key, wide=wide)
        elif options.pads and (index == main or _is_padded(name, options.makes_mask)):
            # Omitted columns are still padded by the reference, which may raise.
            steps.append((name, index, col.PAD, _padded_kind(name, shape, arrays, key.float_kind)))
        elif name not in options.omits:
            steps.append((name, index, *_stacked(name, shape, arrays, key.float_kind)))
    if options.makes_mask and "attention_mask" not in names:
        steps.append(("attention_mask", main, col.MASK, INT64))
    if options.derives:
        if any(name == "labels" and action == col.HOLD for name, _, action, _ in steps):
            raise FallBack("column 'labels' does not stack", "remove it: the collator makes labels")
        steps.append(("labels", main, col.PAD if options.derives == "fill" else col.LABELS, INT64))
    if columns.kinds:
        if odd := [name for name, _, action, _ in steps if name in dict(columns.kinds) and action == col.HOLD]:
            raise FallBack(f"columns {odd} of dtypes are not rows of numbers", "give equal rows of numbers")
        casts = [columns.cast(name, shapes[index]) for name, index, *_ in steps]
        steps = [(*step[:3], step[3] if cast is None else cast) for step, cast in zip(steps, casts, strict=True)]
    steps = _renamed([step for step in steps if step[0] not in options.omits], options.renames)
    held = {name: names[index] for name, index, action, _ in steps if action == col.HOLD}
    deep = [name for name, shape in zip(names, shapes, strict=True) if shape.forms & col.DEEP]
    if label is not None and label.action == col.NUMBERS and (odd := [*held.values(), *deep]):
        raise FallBack(f"columns {odd} do not pad or stack", "give equal rows of numbers")
    if label is not None and (labels is not None or label.optional):
        steps.append(_label_step(label, labels, key, shapes))
    return Plan(tuple(steps), held)


def _label_step(label: LabelColumn, name: str | None, key: PlanKey, shapes: list[col.ColumnShape]) -> col.Step:
    output = label.output or name or ""
    index = 0 if name is None else key.names.index(name)
    shape = shapes[index]
    if label.refusal is not None and name is not None:
        raise FallBack(*label.refusal)
    if label.optional and all(other in key.names for other in label.names):
        raise FallBack("both 'label' and 'labels' are there", "remove one of the two columns")
    if name is None or (label.optional and shape.forms == col.OTHER and shape.nothing):
        return output, 0, col.HOLD, 0
    if label.action == col.PAD_OWN and key.options.rounds and not key.options.pads:
        raise FallBack("the labels are padded where the tokens are not", "leave out pad_to_multiple_of")
    if label.action == col.NUMBERS:
        if shape.forms & ~col.SINGLE_NUMBERS or shape.kinds != col.PYTHON_INTS:
            raise FallBack(f"column '{name}' is not made of ints", "give one int for each example")
        return output, index, col.NUMBERS, INT64
    known = col.LIST if label.optional and shape.first_form == col.LIST else col.ROWS
    if shape.forms & ~known or not shape.kinds or shape.kinds & ~col.INTS:
        raise FallBack(f"column '{name}' is not made of rows of ints", "give lists of ints")
    if label.action == col.STACK and (shape.forms != col.LIST or not shape.equal):
        raise FallBack(f"column '{name}' is not made of lists of one length", "set padding=True")
    return output, index, label.action, INT64


def _renamed(steps: list[col.Step], renames: tuple[str, ...]) -> list[col.Step]:
    for name in renames:
        names = [step[0] for step in steps]
        if name in names and "labels" in names:  # one overwrites the other, but may fail first
            raise FallBack(f"both '{name}' and 'labels' are there", "remove one of the two columns")
        if name in names:
            steps.append(("labels", *steps.pop(names.index(name))[1:]))
    return steps


@functools.cache
def _keeps_numpy_numbers() -> bool:
    """True if NumPy's numbers stay what they are where the reference makes Python objects of arrays; not on 4.57."""
    return not isinstance(to_py_obj([np.int32(1)])[0], int)


def _is_padded(name: str, makes_mask: bool) -> bool:
    return name in ("token_type_ids", "special_tokens_mask") or (makes_mask and name == "attention_mask")


def _padded_kind(name: str, shape: col.ColumnShape, arrays: bool, float_kind: int | None) -> int:
    if not shape.aligned:
        raise FallBack(f"column '{name}' differs in length from the tokens", "give one number for each token")
    # The reference cannot add a list to a tuple.
    allowed = col.ROWS if arrays else col.PYTHON_ROWS if shape.full else col.LIST
    kind = None if shape.forms & ~allowed else col.inferred_kind(shape.kinds, float_kind)
    if kind is None:
        raise FallBack(f"column '{name}' holds something else than rows of numbers", "give lists of numbers")
    return INT64 if kind == BOOL and not shape.full else kind


def _stacked(name: str, shape: col.ColumnShape, arrays: bool, float_kind: int | None) -> tuple[int, int]:
    kind = col.inferred_kind(shape.kinds, float_kind)
    # Of arrays and tensors, transformers 5.24 puts it last, and does not mix them.
    if name == "attention_mask" and shape.forms & col.DEEP and shape.forms & (col.MEMORY_ROWS | col.OTHER):
        raise FallBack("an attention mask of more dimensions", "give one number for each token")
    # Beside arrays, tensors of one number become Python numbers first.
    if kind is not None and (shape.forms == col.NUMBER or (arrays and shape.forms == col.TENSOR_NUMBER)):
        return col.NUMBERS, kind
    if kind is not None and shape.forms == col.SCALAR and shape.kinds in col.KEPT_KINDS:
        keeps = not arrays or _keeps_numpy_numbers()
        return col.NUMBERS, shape.kinds.bit_length() - 1 if keeps else kind
    if kind is not None and shape.equal and not shape.forms & ~(col.ROWS if arrays else col.PYTHON_ROWS) & ~col.DEEP:
        return col.STACK, kind
    if not arrays and shape.equal and shape.forms == col.ARRAY | col.DEEP and shape.kinds in col.KEPT_KINDS:
        return col.STACK, shape.kinds.bit_length() - 1
    if name == "attention_mask" and shape.forms & (col.OTHER | col.DEEP):
        raise FallBack("an attention mask of more dimensions", "give one number for each token")
    return col.HOLD, 0


class Padded(Spec):
    """Batches whose columns are padded as the collator's tokenizer would, keys in the reference's order."""

    wrapper = BatchEncoding()
    plan = staticmethod(padded_plan)

    @classmethod
    def of(
        cls,
        collator: Any,
        framework: Framework,
        options: PadOptions,
        *,
        label: LabelColumn | None = None,
        renames: tuple[str, ...] = (),
        labelling: Labelling = NO_LABELS,
        absent: tuple[str, ...] = (),
        facts: tuple[Fact, ...] | None,
        deferred: bool = False,
    ) -> Self:
        """Of a collator. labelling: how `labels` are made from the padded ids. facts: `padding_facts`, read before.

        Raises FallBack.
        """
        tokenizer, columns = collator.tokenizer, OwnColumns.of(collator)
        check_tokenizer(tokenizer)
        side = tokenizer.padding_side if options.padding_side is None else options.padding_side
        if side not in ("left", "right"):
            raise FallBack("unknown padding_side", "set tokenizer.padding_side to 'right' or 'left'")
        inputs, asks = tokenizer.model_input_names, options.asks_tokenizer
        pads, width = _width(tokenizer, options)
        mask = options.return_attention_mask
        return cls(
            framework=framework,
            options=PaddedOptions(
                inputs[0],
                pads,
                options.pad_to_multiple_of is not None,
                "attention_mask" in inputs if mask is None else mask,
                label,
                columns,
                renames,
                labelling.omits,
                labelling.derives,
                asks and options.verbose,
            ),
            absent=absent,
            main=inputs[0],
            plain=label.names[0] if label is not None and label.action == col.NUMBERS else None,
            layout=col.BatchLayout(width, options.pad_to_multiple_of or 1 if pads else 1, side == "left"),
            labelling=labelling,
            facts=None if asks and "model_max_length" not in tokenizer.__dict__ else facts,
            deferred=deferred and columns.defers,
            **columns.fields,
        )

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        """The padding value of each column. Raises FallBack."""
        names, options, tokenizer = key.names, key.options, collator.tokenizer
        values: dict[str, Any] = {"attention_mask": 0, "special_tokens_mask": 1}
        if options.pads:
            pad_token_id = tokenizer.pad_token_id
            if pad_token_id is None or pad_token_id < 0:
                raise FallBack("the tokenizer has no pad token", "set tokenizer.pad_token")
            values[options.main] = pad_token_id
            if "token_type_ids" in names:
                values["token_type_ids"] = tokenizer.pad_token_type_id
        if pad_values := collator.pad_values:
            values |= {**pad_values, **options.column_options.values(pad_values, names.index(options.main))}
        if options.label is not None:
            values[options.label.output or options.label.name_in(names)] = options.label.value
        labels = [values[name] for name in options.renames if name in names and name in values]
        return values | {"labels": labels[0]} if labels else values

    def hold(self, name: str, features: Any, key: PlanKey) -> Any:
        """A column that is not padded depends on no other: the reference's own conversion, for it alone."""
        arrays = col.column_shapes(key.signature)[key.names.index(key.options.main)].first_form & col.MEMORY_ROWS
        values = values_of(features, name)
        with or_fall_back(f"column '{name}' does not stack", "give all its rows one shape, or remove it"):
            return BatchEncoding({name: to_py_obj(values) if arrays else values}, tensor_type=key.framework)[name]

    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        """The batch; where the reference makes it, it warns by itself."""
        if self.options.warns:
            _strategies(collator.tokenizer, collator.padding, collator.max_length, verbose=True)
        return batch

    @property
    def finishes(self) -> bool:
        """Whether `finish` has something to do."""
        return self.options.warns or type(self).finish is not Padded.finish
