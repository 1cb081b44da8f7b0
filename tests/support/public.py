"""The public names of the package and of its public modules."""

import importlib
from types import ModuleType

from quadrat._names import HOMES as BY_PACKAGE
from quadrat._names import PACKAGES

PUBLIC: list[ModuleType] = [importlib.import_module(name) for name in PACKAGES]
# The module of each public function and class, and those of `quadrat` alone.
EVERYWHERE = {
    name: BY_PACKAGE[package.__name__][name] for package in PUBLIC for name in package.__all__ if name != "__version__"
}
HOMES = {name: home for name, home in BY_PACKAGE["quadrat"].items() if home != "quadrat" and name != "__version__"}
MODULES = sorted(name for name, home in BY_PACKAGE["quadrat"].items() if home == "quadrat")
