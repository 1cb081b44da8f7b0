"""Wrapping collators; finding and patching objects of other libraries; errors for misspelt arguments."""

import contextlib
import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class CollatorWrapper:
    """A collator around another one, which is asked for the public names that this one does not have."""

    collator: Any

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for methods of this object, before it has a collator.
        if name == "collator" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.collator, name)


def calling_trainer(method: str) -> Any:
    """The Trainer of which this method is running, or None."""
    module, frame = sys.modules.get("transformers.trainer"), sys._getframe(1)
    while module is not None and frame is not None:
        if frame.f_code.co_name == method and isinstance(trainer := frame.f_locals.get("self"), module.Trainer):
            return trainer
        frame = frame.f_back  # type: ignore[assignment]
    return None


def surrounded(
    method: Callable[..., Any],
    before: Callable[..., Any],
    after: Callable[[Any, Any], object] = lambda *_: None,
    *,
    unless: Callable[[], bool] = bool,
) -> Callable[..., Any]:
    """A method that calls `before` with its arguments, then `after` with what that returned, and with the result.

    The result is that of the method, or the error that it raised; tracebacks are as without. unless: whether a call is
    left alone.
    """

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        if unless():
            return method(self, *args, **options)
        state = before(self, *args, **options)
        try:
            result = method(self, *args, **options)
        except BaseException as error:
            after(state, error)
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next  # without this frame
            raise
        after(state, result)
        return result

    return wrapped


def wrap_method(cls: Any, name: str, *hooks: Callable[..., Any], **options: Any) -> None:
    """Has a class call `before` and `after` as of `surrounded`."""
    setattr(cls, name, surrounded(getattr(cls, name), *hooks, **options))


def unexpected(function: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for an argument that a function does not take, with the nearest one that it takes, or all."""
    near = ", ".join(difflib.get_close_matches(name, names := list(known), 1) or names)
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}: did you mean {near}?")


def suggesting(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same function, whose error for an argument that it does not take names the nearest one."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def called(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        for name in options.keys() - known.keys():
            raise unexpected(function.__name__, name, known)
        return function(*args, **options)

    return called


@contextlib.contextmanager
def replaced(*attributes: tuple[Any, str, Any]) -> Iterator[None]:
    """Objects have these attributes meanwhile: each of (object, name, value)."""
    before = [(holder, name, getattr(holder, name)) for holder, name, _ in attributes]
    try:
        for attribute in attributes:
            setattr(*attribute)
        yield
    finally:
        for attribute in before:
            setattr(*attribute)
