"""The command line, run as a user runs it, or in this process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from quadrat.__main__ import main

TEXTS = [" ".join(["several", "words", "of", "text"][: 1 + n % 4] * (1 + n % 23)) for n in range(200)]

PYTHON = [sys.executable]
RUN = [sys.executable, "-m", "quadrat", "run"]

# Sets the title of the window, clears the screen, moves the cursor, turns the text around.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\u202eb"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b1A\u202eb"


def run(*arguments: object, folder: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quadrat", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"},
        timeout=timeout,
        check=False,
    )


def ran(folder: Path, command: list[str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script that is run in a folder; what processes leave for the report lies there too."""
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, text=True, check=False, **{**pipes, **options}
    )


def here(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()  # what was written before, as by what made the data, is not the command's
    status = main([*map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def refused(capsys: Any, command: str, *arguments: object, status: int = 2) -> str:
    """The line on standard error of a command in this process, which says nothing else and ends with `status`."""
    ended, said, errors = here(capsys, command, *arguments)
    assert (ended, said) == (status, "")
    assert errors.startswith(f"quadrat {command}: ")
    assert errors.count("\n") == 1
    return errors
