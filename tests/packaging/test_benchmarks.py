"""The benchmarks run and compare equal results; the tables of README and docs are made of these."""

import ast
import html
import importlib
import json
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted((ROOT / "benchmarks").rglob("*.py"))
}
CASES = {name.removeprefix("benchmarks.cases."): path for name, path in MODULES.items() if ".cases." in name}
del CASES["__init__"]


def imports_of(path):
    """The modules of the benchmarks that a source loads, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "benchmarks":
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "benchmarks")


GRAPH = {name: set(imports_of(path)) for name, path in MODULES.items()}


def run(*arguments):
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=offline, check=False, capture_output=True, text=True)


def test_imports_close_no_circle():
    assert set().union(*GRAPH.values()) <= set(MODULES)
    assert GRAPH["benchmarks.cases.cuda"] >= {"benchmarks.gpu", "benchmarks.measure"}
    TopologicalSorter(GRAPH).prepare()  # raises CycleError, which names them


def test_cases_are_loaded_by_name_alone():
    assert {name for loaded in GRAPH.values() for name in loaded if name.startswith("benchmarks.cases")} == set()


def test_every_benchmark_is_listed():
    done = run("-m", "benchmarks")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == sorted(CASES)
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines())


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.measure")


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "-0.0"),
        ([1], (1,), "list .* tuple"),
        (None, lambda: np.random.seed(1), "generators"),
    ],
)
def test_what_differs_is_not_measured(measure, one, other, what):
    ways = {"one": lambda: one, "other": other if callable(other) else lambda: other}
    measure.check(measure.Case({"one": ways["one"], "same": ways["one"]}))
    with pytest.raises(AssertionError, match=what):
        measure.check(measure.Case(ways))
    if "tuple" in what:
        measure.check(measure.Case(ways, containers=False))


def test_ways_are_measured_in_turn(measure):
    """By a stopwatch that tells the number of the call: of eleven rounds, one way takes part in every fifth."""
    called = []

    def stopwatch(call, calls):
        called.append(call())
        return {"ns": len(called), "bytes": 6}

    ways = {"one": lambda: "one", "rare": measure.Way(lambda: "rare", every=5, scale=10), "quadrat": lambda: "quadrat"}
    case = measure.Case(ways, {"rows": 3}, rounds=11, per=2, stopwatch=stopwatch)
    found = measure.measure(case)
    assert called[:8] == ["one", "rare", "quadrat", "one", "quadrat", "one", "quadrat", "one"]
    assert (found["rows"], found["rounds"], called.count("rare")) == (3, 11, 3)
    one, rare = found["ways"]["one"], found["ways"]["rare"]
    assert (one["ns"], one["bytes"], one["ratio"]) == (6, 3, pytest.approx(10 / 11))
    assert (rare["ns"], rare["ratio"]) == (65, pytest.approx(65 / 7))


@pytest.mark.parametrize(("ns", "busy"), [(3000, True), (1200, False), (300, True)])
def test_a_busy_machine_is_said(measure, ns, busy):
    """By a stopwatch whose samples differ in time alone: quadrat is not slower, for CPU time counts."""
    main = importlib.import_module("benchmarks.__main__")
    samples = {"one": {"ns": ns, "cpu_ns": 1000}, "quadrat": {"ns": 1000, "cpu_ns": 1000}}
    ways = {"one": lambda: "one", "quadrat": lambda: "quadrat"}
    case = measure.Case(ways, stopwatch=lambda call, _: dict(samples[call()]), least=0.95)
    record = measure.measure(case)
    assert ("; the machine was busy: 1.0" in main.said(record)) == busy
    assert not measure.slower(case, record)


@pytest.mark.slow
def test_all_ways_make_the_same_tensors(tmp_path):
    done = run("-m", "benchmarks", "peers", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    cases = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))["cases"]
    ways = {way for case in cases for way in case["ways"]}
    assert ways > {"transformers", "pad_sequence", "torch nested", "pyarrow", "awkward"}
    sizes = {(case["job"], case["rows"], case["longest"]) for case in cases}
    assert sizes >= {("padding", 1, 64), ("flattening", 32, 512)}
    assert all((tmp_path / f"peers.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batching", "unpad", "never_slower", "threads"])
def test_benchmarks_run(name, tmp_path):
    done = run("-m", "benchmarks", name, "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("*.json")
    found = json.loads(written.read_text(encoding="utf-8"))
    assert found["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert all(way for case in found["cases"] for way in case.get("ways", {}).values())


@pytest.mark.slow
def test_results_have_the_cases_that_are_measured():
    # The cases of audio are the installed extractors.
    names = sorted(set(CASES) - {"audio"})
    code = f"""
import importlib, json
modules = {{name: importlib.import_module(f"benchmarks.cases.{{name}}") for name in {names}}}
print(json.dumps({{name: list(module.cases(quick=False)) for name, module in modules.items()}}))
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    for name, cases in json.loads(done.stdout).items():
        document = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
        assert {case["case"] for case in document["cases"]} <= set(cases), name


def test_tables_are_those_of_the_results():
    every = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    pages = [str(page.relative_to(ROOT)) for page in every if "[[[cog" in page.read_text(encoding="utf-8")]
    done = run("-m", "cogapp", "-P", "--check", "-I", "benchmarks", *pages)
    assert done.returncode == 0, f"`make bench` writes the tables anew: {done.stdout}{done.stderr}"
    assert "docs/performance.md" in done.stdout


SHOWN = [
    (page, name)
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    for name in re.findall(r"benchmarks/results/(\w+)\.png", page.read_text())
]


@pytest.mark.parametrize(("page", "name"), SHOWN, ids=lambda value: getattr(value, "stem", value))
def test_a_picture_and_the_tables_of_its_page_agree(measure, page, name, monkeypatch):
    """What a bar says is in a table that has a row or a column of its name. The stored picture says the same."""
    pictures, bars = importlib.import_module("benchmarks.pictures"), []
    monkeypatch.setattr(pictures, "bars", lambda *drawn, **_: bars.append(drawn[3:]))
    pictures.draw(name, ROOT / "benchmarks/results")
    ((labels, series),) = bars
    texts = [text for _, _, texts in series.values() for text in texts]
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    headings = (row for row, below in zip(rows, lines[1:], strict=False) if re.match(r"\|[ :]*-+", below))
    names = {row[0] for row in rows}.union(*headings)
    cells = {cell for row in rows for cell in row[1:]}
    shared = set()
    for label, text in zip(labels * len(series), texts, strict=True):
        if label in names or label.startswith("to the device"):
            shared.add(label)
            assert {part.removesuffix(" GB/s") for part in text.split(", ")} <= cells, label
    assert len(shared) > 1
    drawn = re.findall(r">([^<>]+)</text>", (ROOT / f"benchmarks/results/{name}.svg").read_text())
    assert set(texts) <= {html.unescape(text) for text in drawn}
