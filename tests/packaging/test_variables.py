"""What tests see of the shell that they are started from."""

import subprocess
import sys
from pathlib import Path

from support.isolated import words

DROPPED = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TRANSFORMERS_VERBOSITY", "COLUMNS", "HF_HOME", "LANG"}
KEPT = {"PATH", "PIP_FIND_LINKS", "https_proxy"}


def test_processes_of_tests_start_without_the_variables_of_a_shell(monkeypatch):
    for name in {*DROPPED, *KEPT} - {"PATH"}:
        monkeypatch.setenv(name, "1")
    names = set(words("import conftest, os; print(*os.environ)"))
    assert (names & DROPPED, names & KEPT) == (set(), KEPT)


def test_what_a_job_in_the_background_starts_hears_an_interrupt():
    child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    program = f"import conftest, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    command = ["/bin/sh", "-c", 'trap \'\' INT; exec "$0" "$@"', sys.executable, "-c", program]
    tests = Path(__file__).parents[1]
    assert subprocess.run(command, cwd=tests, capture_output=True, text=True, check=True).stdout == "True\n"
