"""The fuzzer: it takes the tests as they are, finds what there is to find, and what it has found stays mended."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import inputs, targets
from support.isolated import python

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("driver.py")


def test_what_was_found_stays_mended():
    files = {targets.TESTS / name.partition("::")[0] for name in inputs.corpus()}
    assert all(file.exists() for file in files)
    ours = sorted(file for file in files if file.parent == DRIVER.parent)  # the others need what takes long to import
    assert int(python(DRIVER, "--replay", 20, *ours).split()[-3]) > 20 * len(ours)


FAULTY = """
import os, signal
from hypothesis import given, strategies as st

seen = []

@given(st.integers(0, 255))
def test_raises(number):
    seen.append(number)
    assert number % 5

@given(st.lists(st.integers(0, 9), max_size=3))
def test_crashes(numbers):
    if len(seen) > 20 and 7 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process kills itself")
def test_finds_are_kept_and_can_be_repeated(tmp_path):
    tests, folder = tmp_path / "test_faulty.py", tmp_path / "found"
    tests.write_text(FAULTY)
    command = [sys.executable, DRIVER, "--seconds=4", "--jobs=1", f"--folder={folder}", "--seed=1", tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    finds = {path: inputs.read(path)[0] for path in sorted((folder / "finds").glob("*.txt"))}
    assert {target.rpartition("::")[2] for target, _ in finds.values()} == {"test_raises", "test_crashes"}
    raised = next(path for path, (target, _) in finds.items() if target.endswith("test_raises"))
    assert f"--repeat {raised}" in done.stdout
    again = subprocess.run([*command[:2], "--repeat", raised], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "assert number % 5" in again.stderr
