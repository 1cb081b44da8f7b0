"""Shared by the commands: errors, required packages, and output to a terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Line width of sentences in a file or a pipe; tables are not limited there.
_WIDTH, _WIDEST = 80, 10_000
# A message lists at most so many names.
_MOST_NAMES = 12


class CommandError(Exception):
    """A command cannot do what it was asked to; the message is all that the user needs to know."""


def require(what: str, packages: Mapping[str, str]) -> None:
    """Raise CommandError that names the missing packages, of those given with the extras that install them."""
    if absent := [name for name in packages if importlib.util.find_spec(name) is None]:
        names = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
        extras = ",".join(dict.fromkeys(packages[name] for name in absent))
        raise CommandError(f'{what} needs {names}: pip install "quadrat[{extras}]"')


def harmless(text: str) -> str:
    """The text with control characters (line ends too) as Python's escape sequences, safe for a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


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


@contextlib.contextmanager
def errors_of(path: Path, what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise CommandError for what the system says of a file, and after `what`, for errors of some kinds."""
    try:
        yield
    except CommandError:
        raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except kinds as error:
        raise CommandError(f"{path}: {what}{one_line(error)}") from error


def listed(names: Sequence[str]) -> str:
    """Names to choose from, the first of them where there are many."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more:,} more" if more > 0 else "")


def console() -> Console:
    """A console on standard output that prints text as it is."""
    from rich.console import Console

    width = None if _knows_its_width() else _WIDEST
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def say(out: Console, text: str = "", style: str = "") -> None:
    """Print sentences harmlessly, in lines of a width that is easy to read."""
    out.print(harmless(text), style=style, width=None if _knows_its_width() else _WIDTH)


def _knows_its_width() -> bool:
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table with a name and numbers in each row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, padding=0)
    for heading in headings:
        made.add_column(Text(heading), justify="right" if made.columns else "left", no_wrap=not made.columns)
    for row in rows:
        made.add_row(*row)
    return made
