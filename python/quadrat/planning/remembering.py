"""Knowledge of earlier batches, which another collator with the same options begins with."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from quadrat import _core
from quadrat.installed.imitated import NOTHING, Imitation

_MOST_FORMS = 16


class _Shared:
    """A collator's knowledge of earlier batches, for others of its class with the same options."""

    def __init__(
        self, options: Mapping[str, Any], size: int, known: dict[Any, _core.Recipe], run: Callable[..., Any]
    ) -> None:
        self.options, self.size, self.known, self.run = options, size, known, run
        # It lasts until the next garbage collection, so that the tokenizer is not kept alive for longer.
        self.cycle: _Shared | None = self


class Remembering:
    """Base class of collators that keep recipes, in attributes named `_quadrat...`; all others are options."""

    _imitates: ClassVar[Imitation] = NOTHING
    _quadrat_shared: ClassVar[dict[str, weakref.ref[_Shared]]]  # by the name of the attribute; each class has its own
    deferred = False  # where it is not a field
    join_columns: Any = ()  # likewise
    pad_values: Any = None
    pad_axes: Any = None
    dtypes: Any = None
    _keeps_tokenizer: ClassVar[bool] = True  # False: what keeps the collator drops it with its tokenizer

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._quadrat_shared = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy first: other threads may be adding a recipe.
        return {name: value for name, value in self.__dict__.copy().items() if not name.startswith("_quadrat")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """The state of a collator of this class, or of the reference's, which lacks the options that are quadrat's."""
        self.__dict__.update(_defaults(type(self), state))
        self.__dict__.update(state)

    def _remember(self, spec: Any, recipe: _core.Recipe) -> None:
        """Keep a recipe in `_quadrat_pt` or `_quadrat_np`; what it returns: `Recipe::run` in plan/recipe.hpp."""
        known, name = self.__dict__.setdefault("_quadrat_recipes", {}), f"_quadrat_{spec.framework}"
        place = spec.framework, spec.names, spec.absent, spec.bare, spec.plain, spec.layout.total
        if place not in known and len(known) >= _MOST_FORMS:
            known.clear()
        known[place] = recipe
        recipes = [recipe for (framework, *_), recipe in list(known.items()) if framework == spec.framework]
        run = self.__dict__[name] = _core.Recipes(tuple(recipes)).runner()
        if not self._keeps_tokenizer:
            return
        if name in self._quadrat_shared and (before := self._quadrat_shared[name]()) is not None:
            before.cycle = None
        state = Remembering.__getstate__(self)
        options = {name: value for name, value in state.items() if type(value) is not set}
        self._quadrat_shared[name] = weakref.ref(_Shared(options, len(state), known.copy(), run))

    def _recipes_of_equal_collator(self, name: str) -> Callable[..., Any] | None:
        """Reuse an equal collator's recipes; the guard checks options that are sets."""
        state, shared = self.__dict__, self._quadrat_shared.get(name)
        knowledge = None if shared is None else shared()
        if knowledge is None or len(state) != knowledge.size:
            return None
        values = map(state.get, knowledge.options, itertools.repeat(state))
        if not all(map(operator.is_, values, knowledge.options.values())):
            return None
        state["_quadrat_recipes"], state[name] = knowledge.known.copy(), knowledge.run
        return knowledge.run


def guarded_options(cls: type[Any]) -> tuple[str, ...]:
    """The options that decide what becomes of a batch: all fields, but for those that the row of the class names."""
    if "_quadrat_guarded" not in cls.__dict__:
        fields, row = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else (), cls._imitates
        names = dict.fromkeys((*(field.name for field in fields), *row.attributes))
        cls._quadrat_guarded = tuple(name for name in names if name not in row.unguarded)
    return cls._quadrat_guarded  # type: ignore[no-any-return]


def parameters_of(cls: type[Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class, also where an annotation names what only type checkers import."""
    if sys.version_info >= (3, 14):  # which evaluates annotations when they are asked for
        from annotationlib import Format

        return inspect.signature(cls.__init__.__get__(cls), annotation_format=Format.FORWARDREF).parameters
    return inspect.signature(cls.__init__.__get__(cls)).parameters  # 3.11.2 takes an inherited __new__ for a subclass


def _defaults(cls: type[Any], state: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        name: parameter.default
        for name, parameter in parameters_of(cls).items()
        if name not in state and parameter.default is not parameter.empty
    }
    for field in dataclasses.fields(cls):
        if field.name not in state and field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    return defaults
