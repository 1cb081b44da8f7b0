"""The public names of a package are those of its stub: each loads the module it is at home in when it is first used."""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGES = ("batching", "config", "data", "deferred", "evaluation", "model", "tokenizers")
# `quadrat.trl` is one too; its dependencies are optional.
PACKAGES = ("quadrat", *(f"quadrat.{name}" for name in _PACKAGES))
# The names of each package and the module of each; that of a module is the package itself.
HOMES: dict[str, dict[str, str]] = {}
_NEED_DATASETS = ("ArrowDataset", "patch_datasets")


def public(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package.

    Modules load like names, and are not part of `__all__`: their dependencies are optional.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module]
    homes = HOMES[package] = {alias.name: str(node.module) for node in imports for alias in node.names}
    listed = [name for name, home in homes.items() if home != package and name != "__version__"]

    def load_once(name: str) -> Any:
        if name not in homes and f"{package}.{name}" not in PACKAGES:
            elsewhere = [f"; it is {home}.{name}" for home in _homes_of(name)]
            raise AttributeError(f"module {package!r} has no attribute {name!r}{''.join(elsewhere)}")
        from quadrat.support.extras import needs

        with needs(f"{package}.{name}", "datasets" if name in _NEED_DATASETS else "transformers"):
            home = homes[name] if name in listed else f"{package}.{name}"
            module = importlib.import_module(home)
            value = getattr(module, name) if name in listed else module
        setattr(sys.modules[package], name, value)
        return value

    return listed, load_once, lambda: sorted(listed)


def load(name: str) -> Any:
    """The function or class of this name, wherever it is public. Raises KeyError for a name that is not."""
    for package in _homes_of(name):
        return getattr(sys.modules[package], name)
    raise KeyError(name)


def _homes_of(name: str) -> list[str]:
    return [package for package in PACKAGES if name in importlib.import_module(package).__all__]
