"""`quadrat info`: versions, and how quadrat works with the installed transformers."""

import sys
from argparse import Namespace

from quadrat.cli.command import harmless, one_line
from quadrat.config import show_config


def run(options: Namespace) -> int:
    """Print the versions, and which collators fall back."""
    config = show_config() | {"falls back": _what_falls_back()}
    width = max(map(len, config))
    for name, value in config.items():
        sys.stdout.write(harmless(f"{name:{width}}  {value}") + "\n")
    return 0


def _what_falls_back() -> str:
    """The collators that fall back with the installed transformers, which is imported."""
    try:
        from quadrat.installed import imitated
        from quadrat.integration.table import rows

        changed = {row.name: code for row in rows().values() if (code := imitated.changed(row)) is not None}
        unknown = [f"{name} ({imitated.BROKEN.get(code) or f'{code} is unknown'})" for name, code in changed.items()]
    except Exception as error:  # whatever a broken installation raises
        return f"unknown: {type(error).__name__}: {one_line(error)}"
    return ", ".join(unknown) or "nothing: all code that quadrat replaces is known"
