"""The public names of the package and of its public modules."""

import importlib
from types import ModuleType

from quadrat._names import HOMES as BY_PACKAGE
from quadrat._names import PACKAGES

PUBLIC: list[ModuleType] = [importlib.import_module(name) for name in PACKAGES]
# The module of each public function and class, and those of `quadrat` alone.
EVERYWHERE = {name: BY_PACKAGE[package.__name__][name] for package in PUBLIC for name in package.__all__}
HOMES = {name: BY_PACKAGE["quadrat"][name] for name in PUBLIC[0].__all__}
MODULES = sorted(name for name, home in BY_PACKAGE["quadrat"].items() if home == "quadrat")
