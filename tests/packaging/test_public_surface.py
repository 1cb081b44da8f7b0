"""The public names, their parameters and their methods are those of docs/signatures.json: none changes unnoticed.

The site is built without transformers, and takes its signatures from there: those that Python gives.

    PYTHONPATH=tests python tests/packaging/test_public_surface.py    # records a change that is meant

The rules for such a change are in docs/releasing.md ("Deprecation").
"""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

import quadrat
from quadrat.collators._base import Collator
from support.isolated import python
from support.public import MODULES, PUBLIC

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "signatures.json"
RECORDED: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
PAGES = sorted((ROOT / "docs" / "api").rglob("*.md"))
DOCUMENTED = sorted(name for page in PAGES for name in re.findall(r"(?m)^::: (\S+)", page.read_text(encoding="utf-8")))
# Methods that are called by Python for the user.
SPECIAL = ("__call__", "__getitem__", "__iter__", "__len__")


class Type:
    """A type that shows itself as it is written in the sources."""

    def __init__(self, annotation: Any) -> None:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)

    def __repr__(self) -> str:
        return self.text


def signature(function: Any) -> str:
    """As the site shows it: it reads signatures as Python."""
    if isinstance(function, type) and issubclass(function, Collator):
        function = function.__init__.__get__(function)  # Python 3.11.2 would take an inherited __new__
    actual = inspect.signature(function)
    shown = [
        parameter
        if parameter.annotation is parameter.empty
        else parameter.replace(annotation=Type(parameter.annotation))
        for parameter in actual.parameters.values()
    ]
    text = str(actual.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("<factory>", "...")  # the default of a field of a dataclass


def members(kind: type) -> Iterator[str]:
    """The methods and properties that quadrat's own classes give a class."""
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "quadrat":
            attributes |= vars(base)
    for name, value in sorted(attributes.items()):
        if name.startswith("_") and name not in SPECIAL:
            continue
        if isinstance(value, property):
            yield f"{name}: property"
        elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
            prefix = "" if inspect.isfunction(value) else f"{type(value).__name__} "
            function = getattr(kind, name)
            ours = inspect.unwrap(function).__module__.startswith("quadrat")  # else its own library's parameters
            yield f"{prefix}{name}{signature(function) if ours else ''}"


def described(path: str) -> tuple[str, list[str]]:
    """The signature of a documented name, and its members."""
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    return signature(value), list(members(value)) if isinstance(value, type) else []


@pytest.mark.skipif(
    RECORDED["transformers"] != f"{transformers.__version__}",
    reason="collators have the parameters of another transformers than the recorded one",
)
@pytest.mark.parametrize("path", DOCUMENTED)
def test_the_public_surface_is_the_recorded_one(path: str) -> None:
    if ".trl." in path:
        pytest.importorskip("trl")
    recorded = RECORDED["signatures"].get(path), RECORDED["members"].get(path, [])
    assert recorded == described(path), "if it is meant, this file records it: see above"


def test_public_names_are_the_recorded_ones() -> None:
    assert {f"{module.__name__}.{name}" for module in PUBLIC for name in module.__all__} <= {*DOCUMENTED}
    assert RECORDED["modules"] == MODULES
    assert list(RECORDED["signatures"]) == DOCUMENTED
    for text in RECORDED["signatures"].values():
        ast.parse(f"def function{text}: ...")


def test_names_at_the_top_are_few() -> None:
    """Those that most users type, modules included; the others are in modules."""
    assert len(quadrat.__all__) + len(MODULES) <= 36


def test_what_the_site_shows_is_reachable_from_the_package() -> None:
    """In a new process, where no module of the package was imported."""
    paths = [path.partition(".")[2] for path in DOCUMENTED if ".trl." not in path]
    python("-c", f"import operator, quadrat\nfor path in {paths}: operator.attrgetter(path)(quadrat)")


if __name__ == "__main__":
    surface = {path: described(path) for path in DOCUMENTED}
    record = {
        "transformers": f"{transformers.__version__}",
        "modules": MODULES,
        "signatures": {path: text for path, (text, _) in surface.items()},
        "members": {path: names for path, (_, names) in surface.items() if names},
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
