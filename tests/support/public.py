"""The public names of the package and of its public modules."""

from __future__ import annotations

import importlib
from types import ModuleType

import quadrat
from quadrat._names import PACKAGES

PUBLIC: list[ModuleType] = [importlib.import_module(name) for name in PACKAGES]
# The module of each public function and class, and those of `quadrat` alone.
EVERYWHERE = {name: package._HOMES[name] for package in PUBLIC for name in package.__all__ if name in package._HOMES}
HOMES = {name: home for name, home in quadrat._HOMES.items() if home != "quadrat"}
MODULES = sorted(set(quadrat._HOMES) - set(HOMES))
