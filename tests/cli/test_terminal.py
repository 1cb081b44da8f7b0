"""What the commands write to, and how they end."""

import os
import subprocess
import sys

import pytest

from support.command import here


@pytest.mark.parametrize("arguments", [("info",), ("waste", "fixed"), ("waste", "fixed", "--json")])
def test_a_reader_that_goes_away_is_no_error(arguments, folder):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "quadrat", *arguments],
            stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=300, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


def test_an_encoding_without_blocks_is_no_error(folder):
    done = subprocess.run(
        [sys.executable, "-m", "quadrat", "waste", "fixed"],
        capture_output=True, cwd=folder, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"padding-free" in done.stdout


def test_an_interrupt_is_one_line(folder, capsys, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("quadrat.bench.waste_report.examine", interrupted)
    assert here(capsys, "waste", folder / "fixed") == (130, "", "quadrat waste: interrupted\n")
