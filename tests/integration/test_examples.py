"""The examples run, briefly, and say what they promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: object) -> str:
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_classify_packages():
    said = run(EXAMPLES / "classify_packages.py", "--steps", 4)
    assert "Identical losses at all 4 steps" in said


def test_classify_a_file_of_ones_own(tmp_path):
    lines = [
        {"text": " ".join(f"{word}{n * k % 17}" for k in range(9)), "label": word}
        for n in range(120)
        for word in ("alpha", "beta")
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert "Identical losses at all 3 steps" in run(EXAMPLES / "classify_packages.py", "--text", path, "--steps", 3)
