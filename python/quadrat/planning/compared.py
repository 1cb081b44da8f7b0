"""Batches made both ways where the installed code is unknown: quadrat's and the reference's are compared to the bit."""

import contextlib
import copy
import logging
import random
import sys
import threading
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from quadrat import _core
from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import plain
from quadrat.installed import imitated
from quadrat.planning.fallback import FallBack, raise_clearer, reraise_with_hint
from quadrat.support.counts import count_compared, uncounted
from quadrat.support.differences import PLAIN, first_difference
from quadrat.support.extras import version
from quadrat.support.locks import new_lock
from quadrat.support.tensors import is_tensor

_FLAGS = "deprecation_warnings"  # of a tokenizer: warnings that it has given
_BEGIN = 40  # characters of a warning
_MOST_KINDS = 1024
_EDITED = (list, dict)  # besides mappings of transformers: what the reference may edit
_EDITING = "DataCollatorForMultipleChoice"  # before transformers 5.23 it takes labels out of features
# What torch says once in a process.
_SAID_ONCE = "numpy.ndarrays is extremely slow", "Converting a tensor with requires_grad=True to a scalar"
_lock = new_lock()  # of the one thread that compares; none waits for it, since code of the user's runs meanwhile
_meanwhile = [0]  # batches of other threads that were to be compared while one was
_threads = [0]  # the one in which the reference makes a batch
_registry: dict[Any, Any] = {}


class _Outcome(NamedTuple):
    """All that a call leaves behind."""

    result: Any
    error: Exception | None
    messages: list[tuple[str, str]]  # categories or levels, and how texts begin
    warned: list[warnings.WarningMessage]
    states: dict[str, Any]


def compared(collator: Any, features: Any, ours: Callable[[Any], Any], reference: Callable[[Any], Any]) -> Any:
    """The reference's batch, or its error, explained; quadrat's is made first, from the same state of all generators.

    At the first difference a warning names it, and from then on the reference makes the batches. While one thread
    compares a batch, the reference alone makes those of others. Raises FallBack.
    """
    if not _lock.acquire(blocking=False):
        _meanwhile[0] += 1
        try:
            return reference(plain(features))
        except Exception as error:
            _explain(error, features, collator)
    try:
        others = _meanwhile[0]
        with uncounted():
            before, copied = _State(collator), _copied(features)
            with _quiet():
                got = _called(ours, copied, before)
            before.restore()
            if isinstance(got.error, FallBack):
                raise got.error
            expected = _called(reference, plain(features), before, as_reference=True)
    finally:
        _lock.release()
    if others == _meanwhile[0]:  # otherwise another thread may have drawn from the generators, or warned
        count_compared()
        if (difference := _difference(expected, got) or _edit(collator, features, copied)) is not None:
            _tell(collator, difference)
    for warning in expected.warned:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno, registry=_registry)
    if expected.error is not None:
        _explain(expected.error, features, collator)
    return expected.result


def _explain(error: Exception, features: Any, collator: Any) -> NoReturn:
    if not collator._explains_errors:
        reraise_with_hint(error, None)
    raise_clearer(error, features, collator)


def reference_is_running() -> bool:
    """True in the thread that runs the reference, whose code must then be the reference's own."""
    return _threads[0] != 0 and _threads[0] == threading.get_ident()


def should_compare(subject: Any, names: tuple[str, ...], columns: _core.Columns, kind: Any) -> bool:
    """True if a batch that no recipe is for is to be compared; counts it, as recipes do: see plan/comparisons.hpp."""
    known: dict[Any, _core.Comparisons] = vars(subject).setdefault("_quadrat_compared", {})
    if len(known) > _MOST_KINDS:
        known.clear()
    return known.setdefault((names, columns.signature(0, 1), kind), _core.Comparisons()).should_compare(columns, names)


def _copied(value: Any) -> Any:
    """A copy of all that a collator may edit: containers, arrays and tensors. Both sides get the same other objects."""
    try:
        if type(value) is list and PLAIN.issuperset(map(type, value)):
            return value[:]
        if isinstance(value, (dict, list, UserDict)):
            copied = copy.copy(value)
            for place in list(value) if not isinstance(value, list) else range(len(value)):
                copied[place] = _copied(value[place])
            return copied
        if type(value) is tuple:
            return tuple(map(_copied, value))
        if is_tensor(value) or type(value) is np.ndarray:
            return value.copy() if getattr(value.dtype, "hasobject", False) else copy.deepcopy(value)
    except Exception:  # what cannot be copied is shared
        return value
    return value


class _State:
    """The generators, the collator's options and its tokenizer's flags, as they are before a call."""

    def __init__(self, collator: Any) -> None:
        self.collator, self.torch = collator, sys.modules.get("torch")
        flags = getattr(getattr(collator, "tokenizer", None), _FLAGS, None)
        self.flags: dict[str, Any] = flags if isinstance(flags, dict) else {}
        self.kept_flags = self.flags.copy()
        self.options = _options(collator)
        self.generators = self.read()

    def read(self) -> dict[str, Any]:
        """The states of all generators."""
        generator: Any = getattr(self.collator, "generator", None)
        bits = getattr(generator, "bit_generator", None)
        state = (
            generator.get_state() if hasattr(generator, "get_state") else copy.deepcopy(getattr(bits, "state", None))
        )
        states = {
            "numpy.random": np.random.get_state(legacy=False),
            "random": random.getstate(),
            "the collator's generator": state,
        }
        return states if self.torch is None else states | {"torch's generator": self.torch.get_rng_state()}

    def restore(self) -> None:
        """All as it was."""
        self.flags.clear()
        self.flags.update(self.kept_flags)
        np.random.set_state(self.generators["numpy.random"])
        random.setstate(self.generators["random"])
        if self.torch is not None:
            self.torch.set_rng_state(self.generators["torch's generator"])
        options = vars(self.collator)
        for name in _options(self.collator).keys() - self.options.keys():
            del options[name]
        options.update(self.options)
        generator: Any = self.options.get("generator")
        state = self.generators["the collator's generator"]
        if hasattr(generator, "set_state"):
            generator.set_state(state)
        elif state is not None:
            generator.bit_generator.state = state


def _options(collator: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(collator).items() if not name.startswith("_quadrat")}


class _Log(logging.Handler):
    """What this thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()
        self.messages: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if threading.get_ident() == self.thread:
            self.messages.append((record.levelname, record.getMessage()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What this thread logs meanwhile is not shown."""
    thread, library = threading.get_ident(), logging.getLogger("transformers")
    handlers = [*library.handlers, *(logging.getLogger().handlers if library.propagate else ())]

    def passes(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def _called(call: Callable[[Any], Any], features: Any, before: _State, *, as_reference: bool = False) -> _Outcome:
    library, log = logging.getLogger("transformers"), _Log()
    result = error = None
    library.addHandler(log)
    try:
        _threads[0] = threading.get_ident() if as_reference else 0
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = call(features)
                result = result.to("cpu") if isinstance(result, DeferredBatch) else result
            except (MemoryError, RecursionError):
                raise
            except Exception as raised:
                error = raised
    finally:
        _threads[0] = 0
        library.removeHandler(log)
    texts = [(warning.category.__name__, str(warning.message)) for warning in warned]
    texts = [(kind, text) for kind, text in texts if not any(words in text for words in _SAID_ONCE)]
    # How they begin: quadrat says more in some.
    messages = list(dict.fromkeys((kind, text[:_BEGIN]) for kind, text in (*log.messages, *texts)))
    states = before.read() | {"the tokenizer's flags": [name for name, is_set in before.flags.items() if is_set]}
    return _Outcome(result, error, messages, warned, states)


def _difference(expected: _Outcome, got: _Outcome) -> str | None:
    if expected.error is not None or got.error is not None:
        if type(expected.error) is not type(got.error):
            shown = [
                "a batch" if result.error is None else f"{type(result.error).__name__}" for result in (expected, got)
            ]
            return f"the reference gives {shown[0]}, and quadrat {shown[1]}"
    elif (difference := first_difference(expected.result, got.result)) is not None:
        return difference
    if expected.messages != got.messages:
        return f"the reference warns {expected.messages}, and quadrat {got.messages}"
    differing = (
        name for name, state in expected.states.items() if first_difference(state, got.states[name]) is not None
    )
    return next((f"{name} differs afterwards" for name in differing), None)


def _edit(collator: Any, features: Any, copied: Any) -> str | None:
    """The first difference of what the reference and quadrat leave in features."""
    row = getattr(collator, "_imitates", imitated.NOTHING)
    if row.name == _EDITING or not (type(features) in _EDITED or isinstance(features, UserDict)):
        return None
    return first_difference(features, copied, "features afterwards: features")


def _tell(collator: Any, difference: str) -> None:
    name, row = type(collator).__name__, collator._imitates
    library = row.library
    theirs = f"{library} {version(library.lower())}"
    imitated.DIFFERENCES[row.name] = f"{name} differs from {theirs}"
    warnings.warn(
        f"{name}: quadrat {_core.__version__} and {theirs} differ: {difference}. From now on {library} makes its "
        "batches in this process: the results are right, but not faster. Please report this, and upgrade quadrat.",
        stacklevel=2,
    )
