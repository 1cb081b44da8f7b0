"""The command line, run as a user runs it, or in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from quadrat.__main__ import main

TEXTS = [" ".join(["several", "words", "of", "text"][: 1 + n % 4] * (1 + n % 23)) for n in range(200)]

TESTS = Path(__file__).parents[1]
PYTHON = [sys.executable]
RUN = [sys.executable, "-m", "quadrat", "run"]

# Sets the title of the window, clears the screen, moves the cursor, turns the text around.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\u202eb"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b1A\u202eb"


def run(
    *arguments: object, folder: Path, stdout: Any = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "quadrat", *map(str, arguments)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120", **variables}
    streams: dict[str, Any] = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(command, cwd=folder, env=environment, check=False, **streams)


def ran(folder: Path, command: list[str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script that is run in a folder, where processes leave what the report is made of; it may import `support`."""
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, text=True, check=False, **{**pipes, **options}
    )


def ran_alike(folder: Path, *arguments: str, reports: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script under `quadrat run`, which ends and says what it does under Python; `reports`: beside the report."""
    expected, result = (ran(folder, command, *arguments, **options) for command in (PYTHON, RUN))
    lines = [line for line in result.stderr.splitlines() if not (reports and line.startswith("quadrat run:"))]
    assert (expected.returncode, expected.stdout) == (result.returncode, result.stdout)
    assert expected.stderr.splitlines() == lines
    return result


def reported(
    folder: Path, script: str, *arguments: str, options: Sequence[str] = ()
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A script under `quadrat run`, and the report on it."""
    (folder / "script.py").write_text(dedent(script))
    done = ran(folder, [*RUN, "--report", "report.json", *options], "script.py", *arguments)
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "report.json").read_text())


def here(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()  # what was written before, as by what made the data, is not the command's
    status = main([*map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def in_json(capsys: Any, *arguments: object) -> dict[str, Any]:
    """The JSON that a command prints in this process. Its status must be 0, and it must print no error."""
    status, text, errors = here(capsys, *arguments, "--json")
    assert (status, errors) == (0, "")
    return dict(json.loads(text))


def refused(capsys: Any, command: str, *arguments: object, status: int = 2) -> str:
    """The line on standard error of a command in this process, which says nothing else and ends with `status`."""
    ended, output, errors = here(capsys, command, *arguments)
    assert (ended, output) == (status, "")
    assert errors.startswith(f"quadrat {command}: ")
    assert errors.count("\n") == 1
    return errors
