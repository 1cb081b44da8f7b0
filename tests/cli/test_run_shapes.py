"""`quadrat run --shapes K`: what the processes of a run are told."""

import pytest

from quadrat.__main__ import main
from quadrat.cli import run


@pytest.mark.parametrize(("given", "shapes"), [([], None), (["--shapes", "3"], 3)])
def test_shapes_are_passed_on(monkeypatch, given, shapes):
    told = []
    monkeypatch.setattr(run, "launch", lambda command, options: told.append((command, options.shapes)) or 0)
    assert main(["run", "--max-tokens", "64", *given, "script.py"]) == 0
    assert told == [(["script.py"], shapes)]


def test_a_number_of_shapes(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--shapes", "0", "script.py"])
    assert "--shapes" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "attention"), [([], None), (["auto"], "auto"), (["512"], 512)])
def test_attention_is_passed_on(monkeypatch, given, attention):
    told = []
    monkeypatch.setattr(run, "launch", lambda command, options: told.append(options.attention) or 0)
    more = ["--attention", *given] if given else []
    assert main(["run", "--max-tokens", "64", *more, "script.py"]) == 0
    assert told == [attention]


def test_attention_does_nothing_without_a_budget(capsys):
    assert run._of_trainer(run.Options(attention="auto")) == ()
    assert "--attention does nothing without --max-tokens" in capsys.readouterr().err
