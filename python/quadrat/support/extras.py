"""Packages that quadrat does without until something needs one: what needs it, and how to install it."""

import contextlib
import importlib.metadata
import re
from collections.abc import Iterator

# What each of quadrat's extras installs.
EXTRAS = {"datasets": ("datasets", "pyarrow"), "transformers": ("transformers", "tokenizers", "torch")}

# All packages that may be missing.
_PACKAGES = frozenset({"trl"}.union(*EXTRAS.values()))


@contextlib.contextmanager
def needs(what: str, extra: str | None = None) -> Iterator[None]:
    """Surrounds imports: the error for a missing package says that `what` needs it, and which `extra` installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        install = f'"quadrat[{extra}]"' if package in EXTRAS.get(extra or "", ()) else package
        raise ModuleNotFoundError(f"{what} needs {package}: pip install {install}", name=package) from error


def version(package: str) -> str:
    """The version of an installed package, or that it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def is_within(tested: tuple[str, str], installed: str) -> bool:
    """True if a version lies between two others; of all three, the first two numbers count."""
    matches = [re.match(r"(\d+)\.(\d+)", version) for version in (tested[0], installed, tested[1])]
    numbers = [tuple(map(int, match.groups())) for match in matches if match is not None]
    return len(numbers) == len(matches) and numbers == sorted(numbers)
