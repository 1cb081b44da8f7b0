"""The steps of every collator: normalise, look up a known batch, plan, fall back, emit. Collators add hooks."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from transformers.data.data_collator import DataCollatorMixin

from quadrat.deferred.batch import DeferredBatch
from quadrat.input.items import Batch, documents_of, is_packed, normalise, unwrapped
from quadrat.input.rows import UnevenColumns
from quadrat.planning.diagnosis.options import unknown_value
from quadrat.planning.dispatch import Imitator, dispatch
from quadrat.planning.extra_columns import check_pad_values, refuse, require_columns
from quadrat.planning.facts import own_facts
from quadrat.planning.fallback import OTHER_TENSORS, AlwaysFallBack, FallBack, Reason, fall_back
from quadrat.planning.plan_cache import remember_fallback
from quadrat.planning.remembering import Remembering, parameters_of

_DICTS = frozenset((dict,))  # features of these alone are in the form that plans read


class Collator(Imitator):
    """The base of all collators: `_collate` and its hooks, of which `_plan` and `_reference` have no defaults."""

    _explains_errors: ClassVar[bool] = True
    return_tensors: Any
    # Whether a batch is one long row. Packed rows that no plan makes as they are, are then taken apart.
    _joins_rows: ClassVar[bool] = False
    _takes_bare_rows: ClassVar[bool] = False  # rows of token ids without a mapping around them
    _reads_items: ClassVar[bool] = False  # the reference reads features by their number, so that a data set will do
    _explains_columns: ClassVar[bool] = True  # False: the reference says which columns differ in their number of rows
    _lacks: ClassVar[Mapping[str, str]] = {}  # options of other collators, and why this one does not have them

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Rejects unknown options. Raises TypeError."""
        if options:
            _refuse_unknown(cls, options)
        return super().__new__(cls)

    def _check_options(self) -> None:
        check_pad_values(self)

    def _is_own(self, rows: Any) -> bool:
        return bool(self.pad_values or self.join_columns or self.dtypes)

    def _own_batch(self, features: Any, framework: Any, why: Reason) -> Any:
        """A batch that is quadrat's own, and that no plan makes as it is. Raises an error, which says why."""
        refuse(self, features, why)

    def _normalise(self, features: Any) -> Any:
        if self._reads_items and not isinstance(features, (list, tuple)) and hasattr(features, "__getitems__"):
            features = features.__getitems__(list(range(len(features))))
        try:
            return normalise(features, bare=self._takes_bare_rows and not self._joins_rows)
        except UnevenColumns as error:
            if self._explains_columns or self._is_own(features):
                raise
            raise FallBack(str(error), "give all columns one number of rows") from error

    def _emit(self, batch: Any) -> dict[str, Any]:
        """The batch as it is returned: with `deferred=True` a `DeferredBatch`."""
        return batch if not self.deferred or isinstance(batch, DeferredBatch) else DeferredBatch(batch)  # type: ignore[return-value]

    def _collate(self, features: Any, framework: Any) -> dict[str, Any]:
        """The batch of `features`: a known kind in one compiled call, else a new plan's, else the reference's."""
        if (kind := type(features)) is Batch or (kind is list and len(features) == 1):
            features = unwrapped(features)
        name = "_quadrat_pt" if framework == "pt" else self._memory_of(framework)
        run = self.__dict__.get(name) or self._recipes_of_equal_collator(name)
        batch = None if run is None else run(self, features)
        if batch is None or type(batch) is tuple:
            return self._collate_anew(features, framework, batch)
        return self._emit(batch) if self.deferred else batch

    def _memory_of(self, framework: Any) -> str:
        if framework in ("pt", "np"):
            return f"_quadrat_{framework}"
        return "_quadrat_other" if framework is self.return_tensors else ""

    def _with(self, options: dict[str, Any]) -> Any:
        """A collator with these options in place of its own, which other threads may be using."""
        other = object.__new__(type(self))
        vars(other).update(Remembering.__getstate__(self), **options)
        return other

    def _collate_anew(self, features: Any, framework: Any, outcome: Any) -> dict[str, Any]:
        """The batch where recipes have none: `outcome` is None, why it falls back, or () if it is to be compared."""
        rows, facts = features, own_facts(self) if outcome is None else None
        try:
            if not (type(features) is list and features and _DICTS.issuperset(map(type, features))):
                rows = self._normalise(features)
            if outcome is None and rows is not features and (run := self._recipes(framework)) is not None:
                outcome = run(self, rows)
            if outcome is None or type(outcome) is tuple:
                outcome = dispatch(self, rows, framework, outcome, rows)
            return self._emit(outcome) if self.deferred else outcome
        except FallBack as error:
            why: Reason = error.args
            if isinstance(error, AlwaysFallBack) and not getattr(self, "whole_word_mask", False):
                remember_fallback(self, framework, why, facts)
        if self._joins_rows and is_packed(rows):
            return self._collate(documents_of(rows), framework)
        if self._is_own(rows):
            return self._emit(self._own_batch(rows, framework, why))
        return self._emit(fall_back(self, self._reference(framework), rows, why))

    def _recipes(self, framework: Any) -> Any:
        return self.__dict__.get(self._memory_of(framework))

    def _check(self, rows: Any, framework: Any) -> None:
        if self.deferred or framework not in ("pt", "np"):
            check_framework(self, framework)
        if framework not in ("pt", "np"):
            raise (AlwaysFallBack if framework is self.return_tensors else FallBack)(
                f"return_tensors={framework!r}", OTHER_TENSORS
            )
        self._check_options()
        require_columns(self, rows)


class MixinCollator(Collator, DataCollatorMixin):
    """A `Collator` whose `__call__` chooses between `torch_call` and `numpy_call`, as in the reference."""

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate `examples` into torch tensors."""
        return self._collate(examples, "pt")

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return super().torch_call if framework == "pt" else super().numpy_call  # type: ignore[no-any-return]

    def __call__(self, features: Any, return_tensors: Any = None) -> dict[str, Any]:
        """Collate `features`, as `return_tensors` or the collator's own setting says."""
        if return_tensors is None:
            return_tensors = self.return_tensors
        if return_tensors == "pt":
            batch = self.torch_call(features)
            return self._emit(batch) if self.deferred else batch
        check_framework(self, return_tensors)
        if return_tensors == "np" and hasattr(self, "numpy_call"):
            return self.numpy_call(features)  # type: ignore[no-any-return]
        call = super().__call__

        def reference(rows: Any) -> Any:
            try:
                return call(rows, return_tensors)
            except ValueError as error:
                if hasattr(self, f"{return_tensors}_call"):
                    raise
                raise ValueError(f"{error}\nquadrat: {unknown_value('return_tensors', return_tensors)}") from error

        why = f"return_tensors={return_tensors!r}", OTHER_TENSORS
        return fall_back(self, reference, features, why)  # type: ignore[no-any-return]


def _refuse_unknown(cls: type[Collator], options: Mapping[str, Any]) -> None:
    code = getattr(cls.__init__, "__code__", None)  # `inspect.signature` takes longer than a small batch
    if code is not None and options.keys() <= set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        return
    known = parameters_of(cls)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for name in options:
        if name not in known:
            near = [f" Did you mean '{parameter}'?" for parameter in difflib.get_close_matches(name, known, 1)]
            why = [f" {cls.__name__} has no {name}: {cls._lacks[name]}"] if name in cls._lacks else near
            message = f"{cls.__name__}.__init__() got an unexpected keyword argument '{name}'"
            raise TypeError(".".join([message, *why]))


def check_framework(collator: Any, framework: Any) -> None:
    """Raises ValueError if the options ask for a batch that is not made for this framework."""
    if collator.deferred and framework != "pt":
        raise ValueError(f"deferred=True makes torch tensors: return_tensors must be 'pt', not {framework!r}")
    if framework not in ("pt", "np", None) and collator._is_own(()):
        raise ValueError(
            f"{collator._imitates.library} makes batches for return_tensors={framework!r}, and lacks options of "
            "quadrat's that are used here; use 'pt' or 'np', or leave these options out"
        )


def with_used_options(text: str, collator: Any, cls: type, own_names: Iterable[str], others: Iterable[str] = ()) -> str:
    """The reference's repr, to which options are added where one of quadrat's `own` is used: all but the defaults."""
    parameters = parameters_of(cls)
    used = {
        name: value
        for name in (*others, *own_names)
        if (value := getattr(collator, name, parameters[name].default)) != parameters[name].default
    }
    if not used.keys() & set(own_names):
        return text
    return f"{text.removesuffix(')')}, {', '.join(f'{name}={value!r}' for name, value in used.items())})"
