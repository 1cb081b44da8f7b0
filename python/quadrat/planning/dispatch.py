"""What happens when no recipe matches: quadrat's batch, compared with the reference's, or the reference's alone."""

from collections.abc import Callable
from typing import Any, ClassVar

from quadrat import _core
from quadrat.installed import imitated
from quadrat.planning.compared import compared, make_with_recipes, reference_is_running, should_compare
from quadrat.planning.fallback import FallBack, Reason, log_once, require_known, reraise_with_hint
from quadrat.planning.remembering import Remembering
from quadrat.support.memory import interop


def make(
    subject: Any,
    given: Any,
    framework: Any,
    ours: Callable[[Any], Any],
    reference: Callable[[Any], Any],
    *,
    outcome: Any = None,
    is_own: Callable[[], bool] = bool,
    rows: Any = None,
) -> Any:
    """The batch that `ours` makes of what is given; the reference's where both are made, to be compared.

    Args:
        subject: a collator, or a function with its options; `_imitates` is what it imitates.
        outcome: what recipes return: None, why the batch falls back, or () if it is to be compared.
        is_own: whether the batch is quadrat's own, which the reference cannot make.
        rows: of functions, which explain errors themselves: the features in what is given.

    Raises FallBack where the code of the row is unknown, and where `ours` does.
    """
    if outcome:
        raise FallBack(*outcome)
    if outcome is None:
        require_known(subject._imitates, framework, is_own)
    if not imitated.compares(subject._imitates) or is_own():
        return ours(given)
    if outcome is None:
        found = _core.collect(given if rows is None else rows, None, interop())
        if found is not None and found[0] and not should_compare(subject, *found, framework):
            return ours(given)
    return compared(subject, given, ours, reference, explains=rows is None)


class Options(Remembering):
    """A function that is imitated, with its options: it has recipes, as a collator."""

    _keeps_tokenizer: ClassVar[bool] = False
    return_tensors: Any

    @property
    def run(self) -> Any:
        """The function that makes known batches (`Recipes` in plan/recipe.hpp); None before the first batch."""
        return self.__dict__.get("_quadrat_pt" if self.return_tensors == "pt" else "_quadrat_np")

    def plan(self, rows: Any) -> Any:
        """The batch of rows of another form, or under other facts. Raises FallBack."""
        raise NotImplementedError

    def make_anew(
        self,
        given: Any,
        rows: Any,
        outcome: Any,
        look: Callable[[Any], Any],
        *,
        finish: Callable[[Any, Any], Any],
        reference: Callable[[Any], Any],
    ) -> Any:
        """The result where recipes have none, see `make`; the reference's where quadrat falls back.

        look: what is given -> its rows. finish: (batch of rows, what is given) -> the result.
        """

        def ours(again: Any) -> Any:
            own = rows if again is given else look(again)
            return finish(self.plan(own) if outcome is None else make_with_recipes(self.run, self, own), again)

        try:
            return make(self, given, self.return_tensors, ours, reference, outcome=outcome, rows=rows)
        except FallBack as reason:
            log_once(self, reason.args, counts=False)
        return reference(given)


class Function:
    """A function that is imitated, and has no recipes. Subclasses have the name that logs show, and these methods.

    Each is given what the function is, and its options; `write` between them what `look` returned.
    """

    _imitates: ClassVar[imitated.Imitation]

    def look(self, given: Any, options: Any) -> tuple[Any, ...]:
        """(names, columns, framework, what else tells kinds of batches apart), and perhaps more. Raises FallBack."""
        raise NotImplementedError

    def write(self, given: Any, looked: Any, options: Any) -> Any:
        """The result. Raises FallBack."""
        raise NotImplementedError

    def reference(self, given: Any, options: Any) -> Any:
        """The reference's result."""
        raise NotImplementedError

    def hint(self, why: Reason, given: Any) -> str | None:
        """A hint for the error of the reference, or None. why: the reason to fall back."""

    def call(self, given: Any, options: Any) -> Any:
        """The result; the reference's where the code is unknown, where `look` or `write` fall back, or to compare."""
        why: Reason = "", None
        if not reference_is_running():
            try:
                looked = self.look(given, options)
                require_known(self._imitates, looked[2])
                if imitated.compares(self._imitates) and should_compare(self, looked[0], looked[1], looked[2:4]):
                    return self._compared(given, options)
                return self.write(given, looked, options)
            except FallBack as reason:
                why = reason.args
                log_once(self, why, counts=False)
        try:
            return self.reference(given, options)
        except Exception as error:
            reraise_with_hint(error, self.hint(why, given))

    def _compared(self, given: Any, options: Any) -> Any:
        def ours(again: Any) -> Any:
            return self.write(again, self.look(again, options), options)

        return compared(self, given, ours, lambda again: self.reference(again, options), explains=False)
