"""The benchmarks run and compare equal tensors; the tables of README and docs are made of their results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_all_ways_make_the_same_tensors(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/peers.py", "--seconds", "0", "--out", tmp_path]
    sizes = ["--rows", "1", "32", "--lengths", "64", "512"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([*command, *sizes], env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "peers.json").read_text())["cells"]
    assert {cell["differs"] for cell in cells} == {""}
    assert {cell["way"] for cell in cells} > {"transformers", "pad_sequence", "torch nested", "pyarrow", "awkward"}
    assert {(cell["job"], cell["rows"], cell["longest"]) for cell in cells} >= {
        ("padding", 1, 64),
        ("flattening", 32, 512),
    }
    assert all((tmp_path / f"peers.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))


def test_tables_are_those_of_the_results():
    every = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    pages = [str(page.relative_to(ROOT)) for page in every if "[[[cog" in page.read_text(encoding="utf-8")]
    command = [sys.executable, "-m", "cogapp", "-P", "--check", "-I", "benchmarks", *pages]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"`make bench` writes the tables anew: {done.stdout}{done.stderr}"
    assert "docs/performance.md" in done.stdout
