"""Packages that quadrat does without until something needs one: what needs it, and how to install it."""

from __future__ import annotations

from types import TracebackType

# Those that may be missing, as they are called where that is not the name of the module.
_PACKAGES = {
    "datasets": "datasets",
    "jax": "jax",
    "matplotlib": "matplotlib",
    "pyarrow": "pyarrow",
    "ray": "Ray Data 2.47 or later",
    "rich": "rich",
    "tensorflow": "tensorflow",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "transformers": "transformers",
}

# What each of quadrat's extras installs of these.
EXTRAS = {
    "cli": ("rich", "matplotlib"),
    "datasets": ("datasets", "pyarrow"),
    "ray": ("ray", "pyarrow"),
    "transformers": ("transformers", "tokenizers", "torch"),
}


class needs:  # noqa: N801 - reads as a statement: with needs("Ragged.to_nested"): import torch
    """Surrounds imports of packages that may be missing.

    Args:
        what: what the user asked for, which needs them.
        extra: the one of quadrat's extras that has them; by default each is installed by its own name.

    Raises:
        ModuleNotFoundError: naming the package that is missing and how to install it. Of other modules, as it is.
    """

    def __init__(self, what: str, extra: str | None = None) -> None:
        """See the class."""
        self._what, self._extra = what, extra

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise the error again, in clearer words."""
        if not isinstance(error, ModuleNotFoundError) or error.name is None:
            return
        package = error.name.partition(".")[0]
        if package in _PACKAGES:
            install = f'"quadrat[{self._extra}]"' if package in EXTRAS.get(self._extra or "", ()) else package
            message = f"{self._what} needs {_PACKAGES[package]}: pip install {install}"
            raise ModuleNotFoundError(message, name=package) from error
