"""`make matrix`: the table at its end, and that one version that fails is a failure of all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import matrix

ROOT = Path(__file__).parents[2]
REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="{errors}" failures="{failures}" skipped="1" tests="{tests}">
<properties><property name="transformers" value="5.6.2"/></properties></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("numbers", "row", "status"),
    [
        ({"tests": 9, "failures": 0, "errors": 0}, "5.6       5.6.2                 8        0        1", 0),
        ({"tests": 9, "failures": 2, "errors": 0}, "5.6       5.6.2                 6        2        1", 1),
        ({"tests": 9, "failures": 1, "errors": 2}, "5.6       5.6.2                 5        3        1", 1),
        ({"tests": 0, "failures": 0, "errors": 0}, "5.6       did not run           -        -        -", 1),
        (None, "5.6       did not run           -        -        -", 1),
    ],
)
def test_table(numbers, row, status, tmp_path, capsys):
    good = REPORT.format(tests=3, failures=0, errors=0)
    (tmp_path / "4.xml").write_text(good)
    if numbers is not None:
        (tmp_path / "5.6.xml").write_text(REPORT.format(**numbers))
    (tmp_path / "newest.xml").write_text(good)
    assert matrix.main(str(tmp_path), "4", "5.6", "newest") == status
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["transformers", "passed", "failed", "skipped"]
    assert said[2] == row
    assert len(said) == 4


def test_a_report_of_pytest_s_own(tmp_path):
    (tmp_path / "test_one.py").write_text("""
import pytest
def test_passes(): pass
def test_fails(): assert 0
def test_is_skipped(): pytest.skip("why")
@pytest.fixture
def broken(): raise ValueError
def test_has_an_error(broken): pass
""")
    path = tmp_path / "report.xml"
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    done = subprocess.run((*command, f"--junitxml={path}"), capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    assert matrix.read(path) == ("?", 1, 2, 1)


def test_versions_between_the_oldest_and_the_newest():
    """Each has an environment of its own; these are what large fine-tuning stacks pin, and where collators changed."""
    versions = re.search(r"^VERSIONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"4", "5.0", "5.6", "5.12", "5.14", "5.18", "5.22", "newest"} <= set(versions[1].split())


def test_a_report_that_names_no_version_is_a_failure(tmp_path, capsys):
    report = REPORT.format(tests=3, failures=0, errors=0)
    (tmp_path / "4.xml").write_text(report)
    assert matrix.main(str(tmp_path), "4") == 0
    (tmp_path / "4.xml").write_text(report.replace('name="transformers"', 'name="another"'))
    assert matrix.main(str(tmp_path), "4") == 1
    assert capsys.readouterr().out.splitlines()[-1].split()[1] == "?"
