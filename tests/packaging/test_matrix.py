"""`make matrix`: the table at its end, and that one version that fails is a failure of all."""

import json
from pathlib import Path

import pytest

from support import matrix

ROOT = Path(__file__).parents[2]
REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="{errors}" failures="{failures}" skipped="1" tests="{tests}">
<properties><property name="transformers" value="5.6.2"/></properties></testsuite></testsuites>"""
RECORD = json.loads((ROOT / matrix.RECORD).read_text())


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
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["transformers", "passed", "failed", "skipped"]
    assert lines[2] == row
    assert len(lines) == 4


def test_what_is_written_from_the_record():
    """`make matrix ARGS=--record` writes all of it."""
    page = (ROOT / matrix.PAGE).read_text()
    assert page.partition(matrix.BEGIN)[2].partition(matrix.END)[0] == matrix.table(RECORD)
    assert (ROOT / matrix.TESTED).read_text() == matrix.tested(RECORD)


def test_the_package_asks_for_tested_versions():
    """The oldest tested version of each package is the oldest that may be installed."""
    text = (ROOT / "pyproject.toml").read_text()
    oldest = {name: version.removesuffix(".0") for name, (version, _) in matrix.ranges(RECORD).items()}
    assert f'dependencies = ["numpy>={oldest["numpy"]}"]' in text
    assert f'["transformers>={oldest["transformers"]},<6", "torch>={oldest["torch"]}"]' in text
    assert f'datasets = ["datasets>={oldest["datasets"]}"]' in text
