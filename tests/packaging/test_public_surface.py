"""The public names, their parameters and their methods are those of public_surface.txt: none changes unnoticed.

The signatures on the site are those that Python gives. It is built without transformers, and takes them from
docs/signatures.json.

    PYTHONPATH=tests python tests/packaging/test_public_surface.py    # writes both files, after a change that is meant

The rules for such a change are in docs/releasing.md ("Deprecation").
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

import quadrat
from quadrat._names import PACKAGES
from support.isolated import python
from support.public import MODULES

RECORDED = Path(__file__).with_name("public_surface.txt")
# Methods that are called by Python for the user.
SPECIAL = ("__call__", "__getitem__", "__iter__", "__len__")


ROOT = Path(__file__).parents[2]
SIGNATURES = ROOT / "docs" / "signatures.json"
PAGES = sorted((ROOT / "docs" / "api").rglob("*.md"))
DOCUMENTED = sorted(name for page in PAGES for name in re.findall(r"(?m)^::: (\S+)", page.read_text(encoding="utf-8")))
SHOWN: dict[str, str] = json.loads(SIGNATURES.read_text(encoding="utf-8"))


class Type:
    """A type that shows itself as it is written in the sources."""

    def __init__(self, annotation: Any) -> None:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)

    def __repr__(self) -> str:
        return self.text


def parameters(function: Any, kind: Callable[[Any], Any] = lambda _: inspect.Parameter.empty) -> str:
    """Names, kinds and defaults; without `kind`, what a parameter's type is called is no promise."""
    signature = inspect.signature(function)
    shown = [
        one if one.annotation is one.empty else one.replace(annotation=kind(one.annotation))
        for one in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def signature(path: str) -> str:
    """As the site shows it."""
    module, _, name = path.rpartition(".")
    shown = parameters(getattr(importlib.import_module(module), name), Type)
    return shown.replace("<factory>", "...")  # of a dataclass: the site reads signatures as Python


def members(kind: type) -> Iterator[str]:
    """The methods and properties that quadrat's own classes give a class, one in a line."""
    own: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "quadrat":
            own |= vars(base)
    for name, value in sorted(own.items()):
        if name.startswith("_") and name not in SPECIAL:
            continue
        if isinstance(value, property):
            yield f"    {name}: property"
        elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
            prefix = "" if inspect.isfunction(value) else f"{type(value).__name__} "
            function = getattr(kind, name)
            ours = inspect.unwrap(function).__module__.startswith("quadrat")  # else its own library's parameters
            yield f"    {prefix}{name}{parameters(function) if ours else ''}"


def named() -> Iterator[tuple[str, Any]]:
    """The public names with their values; those of modules with the module before them."""
    for package in map(importlib.import_module, PACKAGES):
        before = package.__name__.partition(".")[2]
        for name in sorted(package.__all__):
            yield f"{before}.{name}".removeprefix("."), getattr(package, name)


def surface() -> str:
    """The public surface of the package as text."""
    lines = [
        f"beside transformers {transformers.__version__}",
        f"modules: {', '.join(MODULES)}",
    ]
    for name, value in named():
        if isinstance(value, type):
            lines += [f"class {name}{parameters(value)}", *members(value)]
        elif callable(value):
            lines.append(f"{name}{parameters(value)}")
        else:
            lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines) + "\n"


def test_the_public_surface_is_the_recorded_one() -> None:
    recorded = RECORDED.read_text()
    if recorded.partition("\n")[0] != surface().partition("\n")[0]:
        pytest.skip("collators have the parameters of another transformers than the recorded one")
    assert surface() == recorded, (
        f"if it is meant: PYTHONPATH=tests python tests/packaging/{Path(__file__).name} records it (docs/releasing.md)"
    )


def test_names_at_the_top_are_few() -> None:
    """Those that most users type, modules included; the others are in modules."""
    assert len(quadrat.__all__) + len(MODULES) <= 36


@pytest.mark.skipif(
    SHOWN["transformers"] != f"{transformers.__version__}",
    reason="the recorded ones are another version's",
)
@pytest.mark.parametrize("path", DOCUMENTED)
def test_the_site_shows_the_real_signature(path: str) -> None:
    if ".trl." in path:
        pytest.importorskip("trl")
    assert SHOWN.get(path) == signature(path), "this file records it: see above"


def test_what_the_site_shows_is_reachable_from_the_package() -> None:
    """In a new process, where no module of the package was imported."""
    paths = [path.partition(".")[2] for path in DOCUMENTED if ".trl." not in path]
    python("-c", f"import operator, quadrat\nfor path in {paths}: operator.attrgetter(path)(quadrat)")


def test_signatures_are_python() -> None:
    assert sorted({*SHOWN} - {"transformers"}) == DOCUMENTED
    for path in DOCUMENTED:
        ast.parse(f"def function{SHOWN[path]}: ...")


if __name__ == "__main__":
    RECORDED.write_text(surface())
    shown = {"transformers": f"{transformers.__version__}"} | {path: signature(path) for path in DOCUMENTED}
    SIGNATURES.write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")
