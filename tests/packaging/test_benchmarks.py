"""The benchmarks run, and each other way to pad makes the reference's tensors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


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
