"""Containers of evaluation loops, and metrics without padding."""

from typing import Any

from quadrat._names import names_of, resolve

_HOMES = names_of(__file__)
__all__ = [name for name, home in _HOMES.items() if home != __name__]


def __getattr__(name: str) -> Any:
    value = globals()[name] = resolve(__name__, _HOMES, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
