"""Shared by the collators: falling back to the reference, and adding hints to its errors."""

import functools
import itertools
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from quadrat.input.rows import SEQUENCES, Rows, is_plain, names_of, plain
from quadrat.installed import imitated
from quadrat.planning.diagnosis import options, rules
from quadrat.support.arrays import fast_form
from quadrat.support.counts import count_fallback
from quadrat.support.kinds import WIDEST

logger = logging.getLogger("quadrat")

# Exceptions that take one message; any other type of the reference's passes as it is.
_REBUILDABLE = (
    *(AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, OverflowError, RuntimeError),
    *(TypeError, UnboundLocalError, ValueError, ZeroDivisionError),
)

_COLUMN = re.compile(r"'([^']*)'")
# Names in a reason: columns, rows, positions. The rest of the text is the kind of reason.
_NAMED = re.compile(r"'[^']*'|\d+")
_MOST_KINDS = 64

# Remedies where nothing needs to change; these are logged at debug level alone.
AS_FAST = "nothing to change: transformers is as fast with such batches"
OTHER_TENSORS = "quadrat makes tensors for 'pt' and arrays for 'np'"
_QUIET = (AS_FAST, OTHER_TENSORS)

Reason = tuple[str, str | None]  # of a FallBack: its reason and remedy

# Marks errors of constructors, which have no features.
NO_FEATURES: Any = object()


class FallBack(Exception):  # noqa: N818 - a decision, not an error
    """The fast path cannot prove that its result would be the reference's: why, and what the user can change."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason, remedy)

    def __str__(self) -> str:
        return str(self.args[0])


def reason_text(reason: str, remedy: str | None) -> str:
    """A reason, and what to change."""
    return reason if remedy is None else f"{reason}; {remedy}"


def pads_its_own_way(cls: type) -> Reason:
    """Why batches of a tokenizer or an extractor that overrides padding fall back."""
    if cls.__module__.startswith("transformers."):
        return f"{cls.__name__} pads in its own way, as its model needs it", None
    return f"{cls.__name__} pads in its own way", "do not override its methods that pad"


def rounded_up(length: int, multiple: Any) -> int:
    """The width of a batch: a length in tokens, rounded up to `pad_to_multiple_of`. Raises FallBack."""
    if multiple is not None:
        if type(multiple) is not int or multiple <= 0:
            raise FallBack("pad_to_multiple_of is not a positive int", "give a positive int, or None")
        if multiple > WIDEST:
            raise FallBack("pad_to_multiple_of is too large for memory", "give a smaller one")
        length = -(-length // multiple) * multiple
    if length > WIDEST:
        raise FallBack("the rows of the batch are too large for memory", "give a smaller max_length")
    return length


class AlwaysFallBack(FallBack):
    """A FallBack for every batch, because of the collator's options or its tokenizer."""


def require_known(row: imitated.Imitation, framework: Any, is_own: Callable[[], bool] = bool) -> None:
    """Raises AlwaysFallBack where the installed libraries differ from those that an imitation was tested with.

    is_own: whether the batch is quadrat's own, so that only libraries that do not work are in its way: a RuntimeError.
    """
    reason = imitated.broken(framework)
    if reason is None and (imitated.changed(row) is None or imitated.compares(row)):
        return
    if not is_own():
        raise AlwaysFallBack(reason or imitated.unknown(row) or "", "upgrade quadrat")
    if reason is not None:
        raise RuntimeError(f"{reason}, and transformers has no such batches: install a version that was tested")


class or_fall_back:  # noqa: N801
    """Turns an error of a block, but for a MemoryError, into a FallBack; the reference raises its own message."""

    # A generator of contextlib leaves its errors in a cycle of references in CPython 3.12.

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self._why = reason, remedy

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, (FallBack, MemoryError)):
            raise FallBack(*self._why) from error


def require_names(features: Any) -> Collection[str]:
    """As `names_of`. Raises FallBack unless features are a list, and reading the first one does nothing more."""
    names = names_of(features) if type(features) in SEQUENCES else None
    if names is None or not (type(features) is Rows or is_plain(features[0])):
        raise FallBack("features are not a list of plain mappings", "give dicts, or rows of a datasets.Dataset")
    return names


def fall_back(collator: Any, reference: Callable[[Any], Any], features: Any, why: Reason) -> Any:
    """The reference's result for `features`, or its error with what quadrat can add to it."""
    if type(features) is not list:
        features = plain(features)
    try:
        batch = reference(features)
    except Exception as error:
        log_once(collator, why, features, counts=False)
        raise_clearer(error, features, collator)
    log_once(collator, why, features)
    return batch


def _with_fast_form(why: Reason, features: Any) -> Reason:
    """The reason, and as the remedy the form of rows that the kernels read, where the first row is of another type."""
    first = features[0] if isinstance(features, (list, tuple)) and features else None
    if isinstance(first, Mapping):
        named = [first[name] for name in _COLUMN.findall(why[0]) if name in first] if is_plain(first) else []
    else:
        named = [first]
    form, row = next(((form, row) for row in named if (form := fast_form(row)) is not None), (None, None))
    return why if form is None else (why[0], f"give {form} in place of each {type(row).__name__}")


def raise_clearer(error: Exception, features: Any, collator: Any) -> NoReturn:
    """Raise `error` again: same type, the reference's message, then column, row, lengths and what to do."""
    try:
        # Only where reading the features has no side effects.
        may_be_read = not isinstance(features, (list, tuple)) or all(
            is_plain(feature) or not isinstance(feature, Mapping) for feature in features
        )
        reraise_with_hint(error, diagnose(features, collator) if may_be_read else None)
    finally:
        del error  # see `reraise_with_hint`


def diagnose(features: Any, collator: Any) -> str | None:
    """The first problem found in the collator's options or in `features`, or None."""
    try:
        problem = next(options.not_a_tokenizer(collator), None)
        if problem is not None or features is NO_FEATURES:
            return problem
        problem = next(itertools.chain(options.not_features(features), options.unknown(collator)), None)
        return rules.first_problem(features, collator) if problem is None else problem
    except Exception:  # a feature that fails to be looked at: the reference's error stands alone
        return None


def reraise_with_hint(error: Exception, hint: str | None) -> NoReturn:
    """Raise `error` again: same type, the reference's message, then what quadrat adds; None adds nothing."""
    if hint is None or type(error) not in _REBUILDABLE:
        try:
            raise error
        finally:
            del error  # which holds this frame: a cycle, that would keep the batch until garbage is collected
    separator = "; " if isinstance(error, KeyError) else "\n"  # a KeyError shows its message escaped
    message = str(error.args[0]) if len(error.args) == 1 else str(error)
    message = message.partition(f"{separator}quadrat: ")[0]  # of a part of the batch, which has other names
    raise type(error)(f"{message}{separator}quadrat: {hint}") from error


@functools.lru_cache(maxsize=256)
def _kind_of(reason: str) -> str:
    return _NAMED.sub("", reason)


def log_once(collator: Any, why: Reason, features: Any = None, *, counts: bool = True) -> None:
    """Log why a batch falls back, once per collator and kind of reason: the first as a warning. counts: it was made."""
    known, of = collator.__dict__.setdefault("_quadrat_fell_back", {}), _kind_of(why[0])
    texts = known.get(of)
    if is_new := texts is None:
        why = _with_fast_form(why, features)
        library = getattr(collator, "_imitates", imitated.NOTHING).library
        who = f"{type(collator).__name__}: fell back to {library}"
        texts = f"{who}: {of}", f"{who}: {reason_text(*why)}"
        if is_new := len(known) < _MOST_KINDS:
            known[of] = texts
    first = counts and count_fallback(*texts)
    if is_new:
        logger.log(logging.WARNING if first and why[1] not in _QUIET else logging.DEBUG, "%s", texts[1])
