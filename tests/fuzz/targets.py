"""The property tests as targets: functions of bytes that raise where quadrat is not what it promises to be."""

import importlib.util
import inspect
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

TESTS = Path(__file__).parents[1]
ROOMS = ("fuzz", "identity", "functions", "kernels", "masking", "deferred", "integration")
_ZEROS = bytes(4096)  # what is drawn where the bytes end
_SETTINGS = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))


class Target:
    """A property test, whose inputs hypothesis draws from bytes.

    Args:
        test: the function that `given` made.
        cases: its other parameters: what `parametrize` gives them, a dict for each case.
    """

    def __init__(self, test: Any, cases: list[dict[str, Any]]) -> None:
        self._cases, self._case = cases, cases[0]
        body = test.hypothesis.inner_test

        @_SETTINGS
        @given(**test.hypothesis._given_kwargs)
        def run(**drawn: Any) -> None:
            body(**drawn, **self._case)

        self._draw = run.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def __call__(self, data: bytes) -> bool:
        """Run the test on what the bytes give; False where they give nothing."""
        self._case = self._cases[data[0] % len(self._cases)] if data else self._cases[0]
        try:
            return self._draw(data[1:] + _ZEROS) is not None
        except pytest.skip.Exception:
            return False
        except pytest.fail.Exception as failed:  # which is no Exception
            raise AssertionError(str(failed)) from failed


def cases_of(test: Any) -> Iterator[dict[str, Any]]:
    """What `parametrize` gives a test, each combination."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    parts = []
    for mark in marks:
        names, values = mark.args[:2]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        alone = len(names) == 1
        rows = [value.values if hasattr(value, "marks") else (value,) if alone else value for value in values]
        parts.append([dict(zip(names, row, strict=True)) for row in rows])
    for combination in itertools.product(*parts):
        yield {name: value for part in combination for name, value in part.items()}


def load(file: Path) -> Any:
    name = f"fuzzed_{file.parent.name}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what it defines can be pickled
    spec.loader.exec_module(module)
    return module


def find(files: Iterable[Path] = (), told: Callable[[str], object] = lambda _: None) -> dict[str, Target]:
    """The targets in these files of tests, by default in all rooms. told: called with what is left out, and why."""
    files = list(files) or [file for room in ROOMS for file in sorted((TESTS / room).glob("test_*.py"))]
    known: dict[str, Target] = {}
    from support import guarded, ingest

    fixtures = {"guarded": guarded.Guarded, "interops": ingest.interops()}
    for file in files:
        if "@given" not in file.read_text():
            continue
        place = str(file.relative_to(TESTS) if file.is_relative_to(TESTS) else file)
        try:
            module = load(file)
        except (pytest.skip.Exception, ImportError) as reason:  # what it needs is not installed
            told(f"{place}: {reason}")
            continue
        for name, test in vars(module).items():
            if not (name.startswith("test") and getattr(test, "is_hypothesis_test", False)):
                continue
            cases = list(cases_of(test))
            others = set(inspect.signature(test).parameters) - set(cases[0])
            if others - set(fixtures):
                told(f"{place}::{name}: needs {', '.join(sorted(others - set(fixtures)))}")
                continue
            of_module = getattr(module, "pytestmark", [])
            marks = [*getattr(test, "pytestmark", []), *(of_module if type(of_module) is list else [of_module])]
            if any(mark.name == "skipif" and mark.args[0] for mark in marks):
                told(f"{place}::{name}: is skipped")
                continue
            lent = {other: fixtures[other] for other in others}
            known[f"{place}::{name}"] = Target(test, [case | lent for case in cases])
    return known


def prepare() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    assert math.isfinite(torch.ones(1).item())
