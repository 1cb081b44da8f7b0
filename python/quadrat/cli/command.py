"""Shared by the commands: errors, and output to a terminal."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

# A message lists at most so many names.
_MOST_NAMES = 12


class CommandError(Exception):
    """A command cannot do what it was asked to; the message is all that the user needs to know."""


def harmless(text: str) -> str:
    """The text with control characters (line ends too) as Python's escape sequences, safe for a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class HarmlessStream:
    """A text stream that keeps lines and escapes control characters in them; `raw` is the stream it writes to."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write text, its lines as they are; returns its length."""
        self.raw.write("\n".join(map(harmless, text.split("\n"))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def complain(text: str) -> None:
    """Write one line to standard error, if that can be written to."""
    try:
        sys.stderr.write(harmless(text) + "\n")
        sys.stderr.flush()
    except OSError:
        let_go_of(sys.stderr)


def let_go_of(stream: TextIO) -> None:
    """Keep the interpreter from failing once more, when it flushes a stream at its end."""
    with contextlib.suppress(OSError):  # a stream that is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def one_line(error: BaseException) -> str:
    """The message of a library's error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def listed(names: Sequence[str]) -> str:
    """Names to choose from, the first of them where there are many."""
    others = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {others:,} more" if others > 0 else "")
