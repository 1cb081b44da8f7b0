"""Drop-in, bit-identical, compiled replacements for the transformers data collators.

Importing quadrat imports neither torch nor transformers: names load on first use.
"""

from typing import Any

from quadrat._core import __version__
from quadrat._names import names_of, resolve

_HOMES = names_of(__file__)
# Modules load like names, and are no part of `from quadrat import *`: not everybody has what they need.
__all__ = ["__version__", *(name for name, home in _HOMES.items() if home != "quadrat")]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'quadrat' has no attribute {name!r}")
    from quadrat.support.extras import needs

    with needs(f"quadrat.{name}", "datasets" if name in ("ArrowDataset", "patch_datasets") else "transformers"):
        value = globals()[name] = resolve("quadrat", _HOMES, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
