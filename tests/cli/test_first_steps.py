"""`quadrat` as somebody finds it who has just installed it."""

import re
import sys
from pathlib import Path

import pytest

import quadrat
from quadrat import __main__
from quadrat.__main__ import main
from support.command import here, run

COMMANDS = ["run", "waste", "info"]


def test_without_a_command_it_says_what_there_is(capsys):
    status, output, errors = here(capsys)
    assert (status, errors) == (0, "")
    assert re.findall(r"(?m)^    (\w+) ", output) == COMMANDS
    assert len(output.splitlines()) <= 24, "one screen"
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_begins_with_an_example(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    usage, example, _ = capsys.readouterr().out.split("\n\n", 2)
    assert len(usage.splitlines()) == 1
    words = re.fullmatch(rf"Example: .*quadrat ({command}.*)", example)[1]
    assert __main__._parser().parse_args(words.split()).command == command


def test_the_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert (exit_.value.code, capsys.readouterr().out) == (0, f"quadrat {quadrat.__version__}\n")


def test_it_goes_by_the_name_it_was_called_by(tmp_path, capsys, monkeypatch):
    assert run("waste", "--help", folder=tmp_path).stdout.startswith("usage: python -m quadrat waste")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/quadrat"])
    assert here(capsys)[1].startswith("usage: quadrat ")


def test_the_script_is_this_function():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.scripts]\nquadrat = "quadrat.__main__:script"\n' in project
    assert callable(__main__.script)
