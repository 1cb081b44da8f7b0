"""Errors of functions of the user's: what is added to them, and what would be taken for something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def note(error: Exception, text: str) -> None:
    """Adds to an error what Python shows below its message; before Python 3.11, to the message."""
    if hasattr(error, "add_note"):
        error.add_note(f"quadrat: {text}")
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\nquadrat: {text}", *error.args[1:])


def no_stop(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """The result of a function. Raises RuntimeError for its StopIteration, which would end an iteration unnoticed."""
    try:
        return function(*given, **options)
    except StopIteration as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise RuntimeError(f"{name} raised StopIteration") from error
