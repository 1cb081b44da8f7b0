"""Methods of other libraries with something before and after them, and tracebacks as without."""

import functools
from collections.abc import Callable
from typing import Any


def wrap_method(
    cls: Any, name: str, before: Callable[..., Any], after: Any = lambda *_: None, *, unless: Callable[[], bool] = bool
) -> None:
    """Has `before` called with the arguments of a method, then `after` with what it returned, and with the result.

    The result is that of the method, or the error that it raised. unless: whether a call is left alone.
    """
    method = getattr(cls, name)

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

    setattr(cls, name, wrapped)
