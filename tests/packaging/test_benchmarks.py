"""The benchmarks compare results before they time them, in turn; the tables of README and docs are made of these.

`make test` also tries small cases of all benchmarks.
"""

import html
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))


def run(*arguments):
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    offline = {**others, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # as a command by itself
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=offline, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("expected", "result", "what"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "-0.0"),
        ([1], (1,), "list .* tuple"),
        (None, lambda: np.random.seed(1), "generators"),
    ],
)
def test_what_differs_is_not_timed(expected, result, what):
    from benchmarks.jobs import Job

    ways = {"expected": lambda: expected, "other": result if callable(result) else lambda: result}
    Job({"expected": ways["expected"], "same": ways["expected"]}).compare()
    with pytest.raises(AssertionError, match=what):
        Job(ways).compare()
    if "tuple" in what:
        Job(ways, containers=False).compare()


CASES = """
import pytest
from benchmarks.jobs import Job, each, report, reported

SECONDS = {"rare": 30, "other": 3, "quadrat": 2}
CALLED = []

def make():
    def way(name):
        CALLED.append(name)
        report(SECONDS[name])
    ways = {name: lambda name=name: way(name) for name in SECONDS}
    return Job(ways, {"rows": 7}, slow=("rare",), factors={"rare": 10}, per=2)

@pytest.mark.benchmark(timer=reported)
@each(["a case"], tuple(SECONDS))
def test_in_turn(in_turn, case, way):
    in_turn(make, way, least=3)
    turns = {"rare": ["other", "quadrat", "rare"], "other": ["quadrat", "other"] * 3}
    turns["quadrat"] = ["other", "quadrat"] * 3
    assert CALLED[-len(turns[way]):] == turns[way]

@each(["a case"], ("other", "quadrat"))
def test_alone(alone, case, way):
    alone(lambda: Job({"other": int, "quadrat": int}), way, said_as="warm_ns")

@each(["different"], ("other", "quadrat"))
def test_different(in_turn, case, way):
    in_turn(lambda: Job({"other": int, "quadrat": float}), way)
"""


def test_ways_are_timed_in_turn(tmp_path):
    """By a clock that goes on as the calls say; the way that is slow is called once, and not between the others."""
    tests, report, stored = tmp_path / "test_try.py", tmp_path / "report.json", tmp_path / "cpu.json"
    tests.write_text(CASES)
    done = run(
        "-m", "pytest", "-q", "-p", "benchmarks.conftest", tests, "--benchmark-only", f"--benchmark-json={report}"
    )
    assert "2 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("AssertionError: what quadrat makes") == 2

    document = json.loads(report.read_text())
    document["machine_info"] |= {"gil": True, "transformers": "5.0"}
    importlib.import_module("benchmarks.results").store(document, tmp_path)
    ((job, (case,)),) = json.loads(stored.read_text())["jobs"].items()
    assert (job, case["case"], case["rows"]) == ("try", "a case", 7)
    ways = case["ways"]
    assert {name: (way["ns"], way["rounds"], way.get("ratio")) for name, way in ways.items()} == {
        "rare": (150e9, 1, 150.0),
        "other": (1.5e9, 3, 1.5),
        "quadrat": (1e9, 3, None),
    }
    assert ways["other"]["ratio_quartiles"] == [1.5, 1.5]
    assert ways["other"]["warm_ns"] > 0


@pytest.mark.slow
def test_results_have_the_cases_that_are_measured():
    done = run("-m", "pytest", "benchmarks", "--collect-only", "-q")
    assert done.returncode == 0, done.stdout
    for place in ("cpu", "gpu", "models"):
        jobs = json.loads((ROOT / f"benchmarks/results/{place}.json").read_text(encoding="utf-8"))["jobs"]
        for job, cases in jobs.items():
            tests = re.findall(rf"(?m)^benchmarks/test_{job}\.py::\w+\[(.*)\]$", done.stdout)
            ways = [f"{case['case']}-{way}" for case in cases for way in case["ways"]]
            assert set(ways) <= set(tests), job


def test_tables_are_those_of_the_results():
    pages = [str(page.relative_to(ROOT)) for page in PAGES if "[[[cog" in page.read_text(encoding="utf-8")]
    done = run("-m", "cogapp", "-P", "--check", "-I", "benchmarks", *pages)
    assert done.returncode == 0, f"`make bench` writes the tables anew: {done.stdout}{done.stderr}"
    assert "docs/performance.md" in done.stdout


SHOWN = sorted({name for page in PAGES for name in re.findall(r"benchmarks/results/(\w+)\.png", page.read_text())})


@pytest.mark.parametrize("name", SHOWN)
def test_pictures_are_those_of_the_results(name, monkeypatch):
    pictures, bars = importlib.import_module("benchmarks.pictures"), []
    monkeypatch.setattr(pictures, "bars", lambda *drawn, **_: bars.append(drawn[3:]))
    pictures.draw(name)
    ((labels, series),) = bars
    texts = [*labels, *series, *(text for _, _, texts in series.values() for text in texts)]
    drawn = re.findall(r">([^<>]+)</text>", (ROOT / f"benchmarks/results/{name}.svg").read_text())
    assert set(texts) - {""} <= {html.unescape(text) for text in drawn}
