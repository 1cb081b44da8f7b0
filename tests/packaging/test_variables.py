"""What tests see of the shell that they are started from."""

from support.isolated import words

DROPPED = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TRANSFORMERS_VERBOSITY", "COLUMNS", "HF_HOME", "LANG"}
KEPT = {"PATH", "PIP_FIND_LINKS", "https_proxy"}


def test_processes_of_tests_start_without_the_variables_of_a_shell(monkeypatch):
    for name in {*DROPPED, *KEPT} - {"PATH"}:
        monkeypatch.setenv(name, "1")
    names = set(words("import conftest, os; print(*os.environ)"))
    assert (names & DROPPED, names & KEPT) == (set(), KEPT)
