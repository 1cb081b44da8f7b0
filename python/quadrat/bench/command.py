"""What the commands share: their errors, what they need installed, and the console they print to."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from quadrat._extras import needs

if TYPE_CHECKING:
    from rich.console import Console

# Of a file or a pipe, where tables would be squeezed into 80 columns.
_WIDTH = 110


class CommandError(Exception):
    """A command cannot do what it was asked to; the message is all that the user needs to know."""


def require(module: str, extra: str, what: str) -> None:
    """Raise CommandError, with what to install, unless a module can be imported."""
    try:
        with needs(what, extra):
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from error


def console() -> Console:
    """A console that prints names and numbers as they are."""
    from rich.console import Console

    fixed = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(width=fixed, highlight=False, markup=False, emoji=False)
