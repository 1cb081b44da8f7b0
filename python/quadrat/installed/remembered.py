"""Code of transformers that `quadrat verify --remember` found to agree, in a file of the user."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from quadrat import _core


def path() -> Path:
    """The file."""
    usual = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    return Path(usual or Path.home() / ".cache") / "quadrat" / "known.json"


def key(fingerprints: Iterable[str | None]) -> str | None:
    """A key of this code and this version of quadrat; None where some code has no source."""
    found = list(fingerprints)
    if None in found:
        return None
    return hashlib.sha256(repr((_core.__version__, found)).encode()).hexdigest()[:32]


def load() -> dict[str, list[str]]:
    """Keys by what imitates the code; nothing if there is no such file, or another one."""
    try:
        known = json.loads(path().read_text(encoding="utf-8"))
        return {str(name): [str(one) for one in keys] for name, keys in known.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def add(keys: dict[str, str]) -> Path:
    """Adds keys to the file. Raises OSError."""
    known, file = load(), path()
    for name, one in keys.items():
        known[name] = sorted({*known.get(name, ()), one})
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(known, indent=1), encoding="utf-8")
    part.replace(file)  # whole, for processes that read it meanwhile
    return file
