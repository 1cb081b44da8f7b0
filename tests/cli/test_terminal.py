"""What the commands write, where they write it to, and how they end."""

import json
import os
import re
import subprocess
import sys

import datasets
import hypothesis.strategies as st
import pytest
from hypothesis import given

from quadrat.cli.command import harmless
from support.command import HOSTILE, SHOWN, here, refused, run

pytestmark = pytest.mark.slow


@given(st.text() | st.text(st.sampled_from("a\x1b\x07\x9b\n\r\t\u202e\u200b\ud800\\é文")))
def test_text_is_shown_without_being_obeyed(text):
    shown = harmless(text)
    assert shown.isprintable()
    assert harmless(shown) == shown
    # Printed as Python would, so that one can tell what it was.
    assert shown == "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def is_harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture
def hostile(tmp_path):
    """Texts and rows of tokens whose files, fields and columns have hostile names."""
    (tmp_path / f"{HOSTILE}.txt").write_text(f"{HOSTILE} text\nsecond text")
    (tmp_path / f"{HOSTILE}.jsonl").write_text(json.dumps({HOSTILE: "text", "body\n": "text"}))
    rows = datasets.Dataset.from_dict({HOSTILE: [[1, 2], [3]], "text": [1, 2]})
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / f"{HOSTILE} rows")
    return tmp_path


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (0, ("waste", f"{HOSTILE}.txt")),
        (0, ("waste", f"{HOSTILE}.txt", "--json")),
        (0, ("waste", f"{HOSTILE} rows", "--split", "train", "--field", HOSTILE)),
        (2, ("waste", f"{HOSTILE} rows", "--split", HOSTILE)),
        (2, ("waste", f"{HOSTILE}.jsonl")),
        (2, ("waste", f"{HOSTILE}.none")),
        (2, ("waste", f"{HOSTILE}.txt", "--tokenizer", HOSTILE)),
    ],
)
def test_names_from_outside_are_shown_harmlessly(status, arguments, hostile, capsys, monkeypatch):
    monkeypatch.chdir(hostile)
    ended, output, errors = here(capsys, *arguments)
    assert ended == status
    assert is_harmless(output)
    assert is_harmless(errors)
    assert errors.count("\n") == (status != 0)
    named = output.replace("\n", "") if status == 0 else errors
    if "--json" not in arguments:
        assert SHOWN in named
    else:
        assert json.loads(output)["data"] == f"{HOSTILE}.txt"


def test_errors_of_libraries_are_one_harmless_line(folder, capsys, monkeypatch):
    def fails(options):
        raise ValueError(f"first\nsecond {HOSTILE}")

    monkeypatch.setattr("quadrat.cli.waste.examine", fails)
    output = refused(capsys, "waste", folder / "fixed")
    assert output.startswith("quadrat waste: ValueError: first")
    assert is_harmless(output)


def test_what_others_write_is_harmless_too(tmp_path):
    """Options are argparse's to report, and logs and warnings those of the libraries."""
    done = run("waste", "texts.txt", HOSTILE, folder=tmp_path)
    assert done.returncode == 2
    assert is_harmless(done.stderr)
    assert f"unrecognized arguments: {SHOWN}" in done.stderr
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": HOSTILE, "model_type": HOSTILE}))
    (tmp_path / "texts.txt").write_text("text")
    done = run("waste", "texts.txt", "--tokenizer", tmp_path, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_harmless(done.stderr)


def redirected(arguments, redirection, folder):
    """A command whose streams the shell has redirected or closed."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {redirection}', sys.executable, "-m", "quadrat", *arguments],
        capture_output=True, text=True, cwd=folder, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [("info",), ("waste", "fixed")])
def test_a_closed_output_is_one_line(arguments, folder):
    done = redirected(arguments, ">&-", folder)
    assert (done.returncode, done.stderr) == (2, f"quadrat {arguments[0]}: standard output is closed\n")


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("data", ["fixed", "none.txt"])
def test_a_closed_standard_error_is_no_error(redirection, data, folder):
    done = redirected(("waste", data, "--json"), redirection, folder)
    fails = data == "none.txt" or ">&- 2" in redirection
    assert done.returncode == (2 if fails else 0)
    assert bool(done.stdout) != fails
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", [("info",), ("waste", "fixed")])
def test_a_full_disk_is_one_line(arguments, folder):
    done = redirected(arguments, ">/dev/full", folder)
    assert done.returncode == 2
    assert re.fullmatch(r"quadrat \w+: .*No space left on device\n", done.stderr)
    assert redirected(arguments, ">/dev/full 2>/dev/full", folder).returncode == 2


@pytest.mark.parametrize("arguments", [("info",), ("waste", "fixed")])
def test_a_reader_that_goes_away_is_no_error(arguments, folder):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as pipe:
        done = run(*arguments, folder=folder, stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_encoding_without_a_character_is_no_error(tmp_path):
    (tmp_path / "文.txt").write_text("text")
    done = run("waste", "文.txt", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("?.txt: 1 row, 1 tokens")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt, 130, "interrupted"),
        (MemoryError, 2, "out of memory"),
        (ZeroDivisionError("division\nby zero"), 2, "ZeroDivisionError: division by zero (python -X dev shows where)"),
    ],
)
def test_the_unexpected_is_one_line(error, status, line, *, folder, capsys, monkeypatch):
    def fails(options):
        raise error

    monkeypatch.setattr("quadrat.cli.waste.examine", fails)
    assert refused(capsys, "waste", folder / "fixed", status=status) == f"quadrat waste: {line}\n"


def test_the_whole_traceback_in_development_mode(tmp_path):
    program = (
        "import quadrat.cli.waste, runpy; quadrat.cli.waste.examine = None; "
        "runpy.run_module('quadrat', run_name='__main__')"
    )
    (tmp_path / "texts.txt").write_text("text")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, "waste", "texts.txt"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "TypeError: 'NoneType' object is not callable" in done.stderr
    assert "Traceback" in done.stderr
