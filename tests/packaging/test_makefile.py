"""`make test` runs both of its halves, and says which of them failed."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("newest", "older"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_both_halves_run(tmp_path, newest, older):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name, status in ((".venv", newest), (".venv-4", older)):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho ran {name}\nexit {status}\n")
        python.chmod(0o755)
        (tmp_path / name / ".installed").touch()
    old = [option for name in (".venv", ".venv-4") for option in ("-o", f"{name}/.installed")]
    done = subprocess.run(["make", *old, "test"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["ran", ".venv", "ran", ".venv-4"], done.stderr
    assert (done.returncode == 0) == (newest == older == 0)
    assert ("the newest transformers" in done.stderr) == bool(newest)
    assert ("transformers 4.57" in done.stderr) == bool(older)
