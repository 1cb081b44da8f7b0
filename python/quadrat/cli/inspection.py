"""How quadrat works with the installed transformers, and with a script: the second part of `quadrat info`."""

import ast
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from quadrat.cli.command import CommandError, errors_of, harmless, one_line
from quadrat.config import show_config

_LIBRARIES = ("transformers", "trl", "datasets")
# Where rows come from in datasets.
_READ = ("Dataset", "load_dataset", "load_from_disk")
# Arguments that take a function which makes batches.
_COLLATORS = ("data_collator", "collate_fn")


def run(options: Namespace) -> int:
    """Print the versions, and what becomes of a script. Raises CommandError."""
    found = show_config() | {"falls back": _what_falls_back()}
    width = max(map(len, found))
    lines = (f"{name:{width}}  {value}" for name, value in found.items())
    for line in chain(lines, () if options.script is None else _inspect(options.script)):
        sys.stdout.write(harmless(line) + "\n")
    return 0


def _what_falls_back() -> str:
    """The collators that fall back with the installed transformers, which is imported."""
    try:
        from quadrat.installed import imitated
        from quadrat.integration.table import rows

        found = {row.name: code for row in rows().values() if (code := imitated.changed(row)) is not None}
        unknown = [f"{name} ({imitated.BROKEN.get(code) or f'{code} is unknown'})" for name, code in found.items()]
    except Exception as error:  # whatever a broken installation raises
        return f"unknown: {type(error).__name__}: {one_line(error)}"
    return ", ".join(unknown) or "nothing: all code that quadrat replaces is known"


def _inspect(path: Path) -> Iterator[str]:
    with errors_of(path, "not a Python script: ", SyntaxError, ValueError):
        if path.is_fifo():  # which might never end
            raise CommandError(f"{path}: not a file")
        tree = ast.parse(path.read_bytes())
    used = _used(tree)
    yield f"{path}, read but not run:"
    for name in sorted(used):
        if (what := _what_is_replaced(*name.split(".", 1))) is not None:
            yield f"  {name}: {what}"
    for line, name in _own_collators(tree):
        yield f"  line {line}: {name} makes batches, and is not replaced: see docs/how-to/own-collator.md"
    if any(isinstance(node, ast.keyword) and node.arg == "streaming" for node in ast.walk(tree)):
        yield "  streaming: rows of a stream cannot be chosen by length: --max-tokens does not change their batches"
    if not used:
        yield "  nothing: it imports neither transformers nor trl nor datasets; other modules are not looked at"


def _what_is_replaced(library: str, name: str) -> str | None:
    if library == "datasets":
        return "quadrat run replaces how rows are read for a collator" if name in _READ else None
    if name.endswith("Trainer"):
        return "quadrat run replaces the collator that it chooses"
    from quadrat.installed.imitated import changed
    from quadrat.installed.originals import PATCHED

    if name not in PATCHED:
        return None
    from quadrat.integration.table import rows

    row = rows().get(name)
    unknown = None if row is None else changed(row)
    return "quadrat run replaces it" if unknown is None else f"transformers makes its batches: {unknown} is unknown"


def _used(tree: ast.AST) -> set[str]:
    """The names of transformers, TRL and datasets that a script imports, or uses as attributes of these."""
    used, modules = set(), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            used |= {f"{node.module.partition('.')[0]}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            used.add(f"{modules[node.value.id].partition('.')[0]}.{node.attr}")
    return {name for name in used if name.partition(".")[0] in _LIBRARIES}


def _own_collators(tree: ast.AST) -> Iterator[tuple[int, str]]:
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _COLLATORS:
            value: Any = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in own):
                yield value.lineno, getattr(value, "id", "a lambda")
