"""`quadrat verify`: a table, the exit status, and what it remembers."""

import json
import re
from pathlib import Path

import pytest

from quadrat.cli import verify
from quadrat.cli.reached import Reached
from quadrat.integration.table import rows
from support.isolated import ended, python
from support.planted_unseen import CONDITIONS, WHOLE

UNKNOWN = "from quadrat.installed import config; config.FINGERPRINTS.clear(); "
VERIFY = "import sys; from quadrat.__main__ import main; sys.exit(main(sys.argv[1:]))"
CHANGED = """
from quadrat.installed import imitated
from quadrat.integration.table import rows
table = rows()
print(imitated.changed(table['DataCollatorWithPadding']) or imitated.changed(table['feature_pad']))
"""
PLANTED = """
from transformers import DataCollatorWithPadding
original = DataCollatorWithPadding.__call__
def changed(self, features):
    batch = original(self, features)
    if "input_ids" in batch and len(features) == 1:
        batch["input_ids"] = batch["input_ids"] + 1
    return batch
DataCollatorWithPadding.__call__ = changed
"""


def run(code, *arguments, home):
    return ended("-c", code, *arguments, XDG_CACHE_HOME=str(home), LOCALAPPDATA=str(home), COLUMNS="100")


def counts(said):
    lines = re.findall(r"^ ([\w. ]+?) +(\d+)((?: +\d+)?) +(equal, [\d.]+ times as fast|\d+ differ)", said, re.MULTILINE)
    return {name: (int(batches), int(compiled or 0), result) for name, batches, compiled, result in lines}


def test_all_batches_agree(tmp_path):
    """Of all collators and functions; some batches fall back, as NumPy's for labels of tokens before 5.16."""
    done = run(VERIFY, "verify", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = counts(done.stdout)
    assert found.keys() == {case.name for case in verify._cases()}
    for name, (batches, compiled, result) in found.items():
        assert batches >= 200, name
        assert compiled > batches / 5 or name in ("convert_to_tensors", "trl pad"), name
        assert result.startswith("equal"), name
    assert "--remember" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_each_row_of_the_table_is_compared():
    rest = {name for name, row in rows().items() if row.compares} - {case.row.name for case in verify._cases()}
    assert rest <= {"DataCollatorForWholeWordMask"}, "a class of 4.57"


def test_lines_that_ran():
    def branches(number, other):
        if number > 1:
            number = 2
        elif number < 0:
            raise ValueError("below 0")
        if other == "tf":
            number = 3
        return [one for one in range(number) if one]

    reached, first = Reached([branches]), branches.__code__.co_firstlineno
    with reached:
        branches(1, "pt")
    branches(5, "tf")  # not recorded
    missed = list(reached.missed(branches))
    assert [(line.number - first, line.is_excused) for line in missed] == [(2, False), (4, True), (6, True)]
    assert str(missed[0]).endswith("number = 2")
    assert "branches" in str(missed[0])
    with reached:
        branches(5, "pt")
    assert all(line.is_excused for line in reached.missed(branches))


def test_a_last_raise_excuses_no_line_that_returns():
    def ends_with_an_error(number):
        if number > 1:
            number = number + 1
            return number
        raise ValueError("too small")

    *missed, last = Reached([ends_with_an_error]).missed(ends_with_an_error)
    assert [line.text for line in missed] == ["if number > 1:", "number = number + 1", "return number"]
    assert not any(line.is_excused for line in missed)
    assert (last.text, last.is_excused) == ('raise ValueError("too small")', True)


@pytest.mark.slow
def test_planted_changes_are_seen_or_not_remembered():
    script = Path(__file__).parents[1] / "support/planted_unseen.py"
    found = [json.loads(line) for line in python("-W", "ignore", script).splitlines()]
    assert [one["name"] for one in found] == [*CONDITIONS, *WHOLE]
    for one in found:
        said = " ".join(one["said"].split())
        if one["name"] == "an error that no batch raises":
            assert (one["status"], one["kept"]) == (0, 1), said
            assert "1 more lines raise errors" in said
            continue
        assert (one["status"], one["kept"]) == (1, 0), said
        assert ("differ" in said) == (one["name"] in CONDITIONS), said
        assert ('batch["input_ids"] = batch["input_ids"] + 1' in said) == (one["name"] in WHOLE), said


@pytest.mark.slow
def test_what_is_remembered_is_known(tmp_path):
    done = run(UNKNOWN + VERIFY, "verify", home=tmp_path)
    assert "quadrat verify --remember" in done.stdout
    assert run(UNKNOWN + CHANGED, home=tmp_path).stdout == "DataCollatorWithPadding\n"
    done = run(UNKNOWN + VERIFY, "verify", "--remember", home=tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "quadrat/known.json"
    assert f" of them are known from now on: {file}" in done.stdout.replace("\n", " ").replace("  ", " ")
    assert run(UNKNOWN + CHANGED, home=tmp_path).stdout == "None\n"
    known = json.loads(file.read_text())
    assert run(UNKNOWN + PLANTED + CHANGED, home=tmp_path).stdout == "DataCollatorWithPadding\n", "code that is another"
    for text in ("{", "[]", '{"DataCollatorWithPadding": 1}', json.dumps({name: ["0"] for name in known})):
        file.write_text(text)
        assert run(UNKNOWN + CHANGED, home=tmp_path).stdout == "DataCollatorWithPadding\n"


@pytest.mark.slow
def test_a_difference_is_named(tmp_path):
    done = run(PLANTED + VERIFY, "verify", "--remember", home=tmp_path)
    assert done.returncode == 1, done.stderr
    assert counts(done.stdout)["DataCollatorWithPadding"][2].endswith("differ")
    assert re.search(r"DataCollatorWithPadding: batch\['input_ids'\]\[0, 0\] is \d+ of the reference", done.stdout)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "value"), [("compare", "compare"), ("compile", "1")])
def test_run_says_what_becomes_of_unknown_code(option, value, tmp_path):
    script = "import os; print(os.environ['QUADRAT_UNTESTED'])"
    done = run(VERIFY, "run", "--quiet", "--untested", option, "-c", script, home=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{value}\n"), done.stderr
