"""The examples in docstrings run as printed, and every public name has one."""

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

import quadrat
from support.public import EVERYWHERE

PACKAGE = Path(quadrat.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
OF_TRL = ("quadrat.trl", "quadrat.integration.patch_trl")


def examples(value: Any, name: str) -> list[doctest.DocTest]:
    """The docstrings with examples. Each has a namespace of its own: an example imports what it needs."""
    tests = doctest.DocTestFinder().find(value, name, globs={})
    return [example for example in tests if example.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name: str) -> None:
    if name.startswith(OF_TRL):
        pytest.importorskip("trl", reason="TRL, which the examples use, is not installed")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"the installed TRL or transformers has no such class: {error}")
    tests = examples(module, name)
    for example in tests:
        report: list[str] = []
        assert doctest.DocTestRunner().run(example, out=report.append).failed == 0, "".join(report)
    assert tests or name == "quadrat.collators.whole_word"  # with 4.57, its class is in another module


def test_public_names_have_examples() -> None:
    names = {name: getattr(importlib.import_module(place), name) for name, place in EVERYWHERE.items()}
    assert [name for name, value in names.items() if not examples(value, name)] == []
    # Modules that are public themselves, with one or two names each.
    assert {f"quadrat.trl.{name}" for name in ("dpo", "kto", "padding", "reward", "sft", "tpo")} <= set(MODULES)
