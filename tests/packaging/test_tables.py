"""The tables of README and docs are those that benchmarks/tables.py makes of the measurements."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_are_those_of_the_results():
    every = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    pages = [str(page.relative_to(ROOT)) for page in every if "[[[cog" in page.read_text(encoding="utf-8")]
    command = [sys.executable, "-m", "cogapp", "-P", "--check", "-I", "benchmarks", *pages]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"`make bench` writes the tables anew: {done.stdout}{done.stderr}"
    assert "docs/performance.md" in done.stdout
