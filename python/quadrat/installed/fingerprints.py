"""Fingerprints of functions and classes: the same text of code has the same one, on each Python."""

import hashlib
import inspect
import linecache
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

# Triple-quoted text that begins a line: docstrings.
_TEXT = re.compile(r"""^\s*[rR]?(\"{3}|'{3}).*?\1\s*$""", re.MULTILINE | re.DOTALL)


def fingerprint(code: Any) -> str | None:
    """A fingerprint of a function, or of all that a class defines, the same on each Python; None without a source."""
    digest = hashlib.sha256()
    for function in functions_of(code):
        lines = source_of(function)
        if not lines:
            return None
        digest.update(_TEXT.sub("", "\n".join(lines)).encode())
    return digest.hexdigest()[:16]


def functions_of(code: Any) -> Iterator[FunctionType]:
    """The functions that a class defines; a function itself. Not what `dataclass` and the compiler of Python make."""
    for value in vars(code).copy().values() if inspect.isclass(code) else (code,):
        for part in (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),):
            if not inspect.isfunction(part) or part.__module__ == "dataclasses":
                continue
            if part.__name__ in ("__repr__", "__annotate__"):  # in 3.14, annotations are in a function
                continue
            if not part.__code__.co_filename.startswith("<"):
                yield part


def source_of(function: FunctionType) -> list[str]:
    """As `inspect.getsource`, which is several times slower: the lines that hold code, none if there is no source."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    source: list[str] = []
    begun, outside = False, 0
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if not source:
            outside = indent
        if begun and indent <= outside and not text.startswith(")"):  # the end of a signature
            break
        begun = begun or text.startswith(("def ", "async def "))
        source.append(line.rstrip())
    return source
