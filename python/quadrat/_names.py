"""The public names of a package are those of its stub: each loads the module it is at home in when it is first used."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("quadrat", "quadrat.batching", "quadrat.evaluation", "quadrat.tokenizers", "quadrat.varlen")


def names_of(file: str) -> dict[str, str]:
    """The names that the stub beside a module imports from its package, and the module of each."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module]
    return {one.name: str(node.module) for node in imports for one in node.names if one.name != "__version__"}


def resolve(package: str, homes: Mapping[str, str], name: str) -> Any:
    """A public name of a package. Raises AttributeError."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    home = homes[name]
    return (
        importlib.import_module(f"{home}.{name}") if home == package else getattr(importlib.import_module(home), name)
    )


def load(name: str) -> Any:
    """The function or class of this name, wherever it is public. Raises KeyError for a name that is not."""
    for package in map(importlib.import_module, PACKAGES):
        if name in package._HOMES:
            return resolve(package.__name__, package._HOMES, name)
    raise KeyError(name)
