"""`DataCollatorWithFlattening`: the batch as one long sequence, for attention that gets the row boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from quadrat.collators._base import Collator, with_used_options
from quadrat.collators.default import default_data_collator
from quadrat.input.items import SEQ_LENGTHS, is_packed
from quadrat.input.rows import MAIN, is_plain, names_of, plain, values_of
from quadrat.installed import originals
from quadrat.installed.behaviour import flattening_drops_empty_rows, flattening_takes_a_start, flattening_takes_arrays
from quadrat.installed.imitated import Imitation, code_of
from quadrat.ops.flattening import Names, check_flattening, flattening_of, outputs
from quadrat.planning.diagnosis.values import Role, dimensions, shown
from quadrat.planning.extra_columns import check_pad_values
from quadrat.planning.facts import columns_facts, joined_facts, own_facts
from quadrat.planning.fallback import (
    FallBack,
    Reason,
    fall_back,
    or_fall_back,
    raise_clearer,
    reason_text,
    require_names,
    reraise_with_hint,
)
from quadrat.planning.flat import Flat, refuse

_NAME = "DataCollatorWithFlattening"
_OUTPUTS = frozenset(("labels", "position_ids", "seq_idx")) | outputs()
# Which outputs the reference makes int64, `[1, total]`, and plain ints; a subclass may have changed them.
_KEYS = {
    "_int_64_keys": frozenset(("labels", "position_ids", "input_ids")),
    "_batch_dim_keys": frozenset(("labels", "position_ids", "input_ids", "seq_idx")),
    "_py_int_keys": frozenset(("max_length_q", "max_length_k")),
}

# What the class takes besides `return_tensors`: as the reference, and beyond it.
_OPTIONS = ("return_position_ids", "separator_id", "return_flash_attn_kwargs", "return_seq_idx", "position_ids_start")
_OWN_OPTIONS = (
    *("pad_to_multiple_of", "pad_values", "scalar_labels", "deferred"),
    *("kwargs_for", "align_to", "total_length", "continue_positions", "join_columns", "dtypes"),
)


@dataclass(eq=False)
class DataCollatorWithFlattening(Collator, originals.DataCollatorWithFlattening):
    """Join the rows of a batch into one sequence without padding; replaces the transformers class.

    The result is that of `transformers.DataCollatorWithFlattening` 5.23, on older versions too: a dict of `input_ids`
    and `labels`, `[1, total]` int64, where the first label of each row is `separator_id`, and the outputs that the
    options ask for. There is no attention mask: the attention must get the row boundaries. Labels are made from the
    column `labels` if the first row has one, otherwise from `input_ids`. Rows may be lists, 1-D NumPy arrays or 1-D
    torch tensors; from transformers 5.24 on, those without tokens are left out.

    Args:
        return_position_ids: returns `position_ids`, `[1, total]` int64, counted from `position_ids_start` in each row.
        separator_id: the label of the first token of each row.
        return_flash_attn_kwargs: returns `cu_seq_lens_q` and `cu_seq_lens_k`, `[rows + 1]` int32, and the ints
            `max_length_q` and `max_length_k`.
        return_seq_idx: returns `seq_idx`, `[1, total]` int32, the number of each token's row.
        position_ids_start: the position of the first token of each row; some models, such as RoBERTa, need 2.
        return_tensors, deferred: as in `DataCollatorWithPadding`.
        pad_to_multiple_of: quadrat only: rounds `total` up to a multiple of this. input_ids are padded with
            `pad_values["input_ids"]` or 0, labels with -100, seq_idx with -1. cu_seq_lens and max_length leave the
            padding out.
        pad_values: quadrat only: extra columns with one number per token, and the value to pad each with, for example
            `{"token_type_ids": 0}`. They come last, `[1, total]`: integers as int64, floats in the default dtype.
        scalar_labels: quadrat only: `label` or `labels` holds one number per row and becomes `labels`, `[rows]`, int64
            or float32, instead of one label per token. Without either column there are no labels.
        kwargs_for: quadrat only: returns the row boundaries under the names of a consumer: "transformers" (as with
            `return_flash_attn_kwargs`), "varlen_attn", "flash_attn", "megatron" or "mask", `[1, total]`: see
            `quadrat.flatten`.
        align_to: quadrat only: pads each row to a multiple of this, as `quadrat.align` does; labels with -100.
            Boundaries and lengths are then those of the padded rows, and a `padding_mask`, `[1, total]` bool, is True
            for padding.
        total_length: quadrat only, instead of `pad_to_multiple_of`: the `total` of each batch.
        continue_positions: whether `position_ids` continue through the padding; otherwise all are `position_ids_start`
            there. Code that detects rows by restarting positions counts the padding as part of the last row, or each
            token of it as a row.
        join_columns, dtypes: quadrat only: as in `DataCollatorWithPadding`.

    Raises:
        ValueError: for an unknown option, or one that conflicts with another; for a row of `pad_values` that is not as
            long as its input_ids; with padding, also for such a row of `labels`, and before transformers 5.24 for an
            empty row; for a `total_length` less than the rows need; from 5.24 on, if all rows are empty.
        KeyError, TypeError, ...: as in transformers, with the column and the row added.

    Examples:
        >>> import quadrat
        >>> collator = quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
        >>> batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["position_ids"].tolist()
        ([[5, 6, 7, 8, 9]], [[-100, 6, 7, -100, 9]], [[0, 1, 2, 0, 1]])
        >>> batch["cu_seq_lens_q"].tolist(), batch["max_length_q"]
        ([0, 3, 5], 3)
    """

    _: KW_ONLY
    return_position_ids: bool = True
    separator_id: int = -100
    return_flash_attn_kwargs: bool = False
    return_seq_idx: bool = False
    position_ids_start: int = 0
    pad_to_multiple_of: int | None = None
    pad_values: Mapping[str, Any] | None = None
    scalar_labels: bool = False
    deferred: bool = False
    kwargs_for: Names | None = None
    align_to: int | None = None
    total_length: int | None = None
    continue_positions: bool = True
    join_columns: Sequence[str] = ()
    dtypes: Mapping[str, Any] | None = None

    _imitates: ClassVar[Imitation] = Imitation(
        "DataCollatorWithFlattening", code_of("DataCollatorWithFlattening"), attributes=tuple(_KEYS), form="joined"
    )
    _joins_rows: ClassVar[bool] = True
    _reads_items: ClassVar[bool] = True

    def __post_init__(self) -> None:
        options = vars(self).copy()
        super().__init__(self.return_tensors, **{name: options[name] for name in _OPTIONS[:4]})  # its sets of keys
        self.__dict__.update(options)

    def __repr__(self) -> str:
        """The repr of transformers; if an option of quadrat is used, with all options that are not defaults."""
        return with_used_options(super().__repr__(), self, DataCollatorWithFlattening, _OWN_OPTIONS, _OPTIONS)

    def __call__(self, features: Any, return_tensors: Any = None, separator_id: Any = None) -> dict[str, Any]:
        """Flatten `features`, as the arguments or the collator's own settings say."""
        if return_tensors is None and separator_id is None:
            return self._collate(features, self.return_tensors)
        arguments = {"return_tensors": return_tensors, "separator_id": separator_id}
        other = self._with({name: value for name, value in arguments.items() if value is not None})
        return other._collate(features, other.return_tensors)  # type: ignore[no-any-return]

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        """The reference; in place of an older one, for lists instead of arrays, and for positions from the start on."""
        call = super().__call__
        if type(self) is DataCollatorWithFlattening:  # before Python 3.13, objects whose `__dict__` was read are slower
            call = originals.DataCollatorWithFlattening(self.return_tensors)
            for name in (*_OPTIONS, *_KEYS):
                setattr(call, name, getattr(self, name))

        def flatten(features: Any) -> Any:
            if not self._differs(features):
                return call(features, framework, self.separator_id)
            batch = call([_Listed(feature) for feature in features], framework, self.separator_id)
            if "position_ids" in batch and not flattening_takes_a_start():
                batch["position_ids"] += self.position_ids_start
            return batch

        return flatten

    def _plan(self, features: Any, framework: Any) -> Any:
        names, facts = require_names(features), joined_facts(own_facts(self), columns_facts(self))
        if self._has_other_keys():
            raise FallBack("the reference's sets of keys were changed", "leave the collator's sets of keys as they are")
        packed = is_packed(features)
        if packed and self.scalar_labels:
            raise FallBack("packed rows have no number each")
        with or_fall_back("an option is neither true nor false", "give True or False"):
            spec = self._spec(names, framework, packed=packed, facts=facts)
        return spec.make(self, features)

    def _has_other_keys(self) -> bool:
        return any(getattr(self, name) != keys for name, keys in _KEYS.items())

    def _is_own(self, features: Any = None) -> bool:
        places = self.pad_to_multiple_of, self.kwargs_for, self.align_to, self.total_length
        columns = self.pad_values, self.scalar_labels, self.join_columns, self.dtypes
        return any(place is not None for place in places) or any(columns)

    def _spec(self, names: Any, framework: Any, *, packed: bool = False, facts: Any = None) -> Flat:
        pads, how = self.pad_values or {}, flattening_of(self)
        if how.kwargs_for is None and self.return_flash_attn_kwargs:
            how = how._replace(kwargs_for="transformers")
        label = "labels" if "labels" in names and not self.scalar_labels else None
        extra = {name: value for name, value in pads.items() if name != MAIN and name in names}
        others = () if self.scalar_labels or label is not None else ("labels",)
        return (_WithScalarLabels if self.scalar_labels else Flat).of(
            self,
            framework,
            how,
            extra,
            labels="none" if self.scalar_labels else "shifted",
            label=label,
            input_pad=pads.get(MAIN, 0),
            separator=self.separator_id,
            packed=packed,
            refuses_empty=flattening_drops_empty_rows(),  # the reference drops them
            absent=(
                *others,
                *(name for name in pads if name not in (MAIN, *extra)),
                *(() if packed else (SEQ_LENGTHS,)),
            ),
            facts=facts,
            deferred=self.deferred and not self.scalar_labels,
        )

    def _differs(self, features: Any) -> bool:
        """True if the installed transformers would make something else of these features than the newest does."""
        start = self.position_ids_start
        if self.return_position_ids and (type(start) is not int or start != 0) and not flattening_takes_a_start():
            return True
        if flattening_takes_arrays() or self._has_other_keys() or not isinstance(features, (list, tuple)):
            return False
        if not all(isinstance(feature, Mapping) for feature in features):
            return False  # the reference says so
        if not all(map(is_plain, features)):  # to look would be more than the reference does
            return True
        return any(
            hasattr(feature[name], "tolist") for feature in features for name in (MAIN, "labels") if name in feature
        )

    def _own_batch(self, features: Any, framework: Any, why: Reason) -> Any:
        return fall_back(self, lambda rows: self._with_tokens(rows, framework), features, why)

    def _with_tokens(self, features: Any, framework: Any) -> Any:
        """The batch of the rows with tokens, where the reference drops others. Raises its error, or another."""
        rows = [feature for feature in features if len(feature[MAIN])] if flattening_drops_empty_rows() else features
        try:
            return self._plan(rows, framework)
        except FallBack as reason:
            try:
                self._reference(framework)(rows)
            except Exception as error:
                reraise_with_hint(error, reason_text(*reason.args))
            refuse(self, self._spec(rows[0], framework), rows, reason.args)

    def _check_options(self) -> None:
        if self._is_own():
            check_flattening(flattening_of(self), self.pad_to_multiple_of)
            check_pad_values(self, _OUTPUTS)


class _WithScalarLabels(Flat):
    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        names = names_of(features) or ()
        name = next((label for label in ("label", "labels") if label in names), None)
        if name is None:
            return batch
        values, labels = [], None
        try:
            values = values_of(features, name)
            labels = default_data_collator([{"label": value} for value in values], self.framework).get("labels")
        except Exception as error:
            if not any(map(dimensions, values)):
                raise_clearer(error, plain(features), SimpleNamespace(_roles=lambda _: {name: Role.LABEL}))
        if labels is None or labels.ndim != 1:
            row = next((row for row, value in enumerate(values) if dimensions(value)), 0)
            raise ValueError(
                f"scalar_labels: column '{name}' must hold one number per row; row {row} holds {shown(values[row])}: "
                "leave scalar_labels out if it holds a label for each token"
            )
        return {MAIN: batch.pop(MAIN), "labels": labels, **batch}


class _Listed:
    """A feature whose rows are lists. It is read when the reference reads, since reading may raise or change it."""

    def __init__(self, feature: Any) -> None:
        self.feature = feature

    def __contains__(self, name: str) -> bool:
        return name in self.feature

    def __getitem__(self, name: str) -> Any:
        row = self.feature[name]
        return row.tolist() if hasattr(row, "tolist") else row
