"""`quadrat verify`: a table, the exit status, and what it remembers."""

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="what is compared is not installed")

UNKNOWN = "from quadrat.installed import config; config.FINGERPRINTS.clear(); "
VERIFY = "import sys; from quadrat.__main__ import main; sys.exit(main(sys.argv[1:]))"
CHANGED = """
from quadrat.installed import imitated
print(imitated.changed('DataCollatorWithPadding') or imitated.changed('feature_pad'))
"""
PLANTED = """
from transformers import DataCollatorWithPadding
original = DataCollatorWithPadding.__call__
def changed(self, features):
    batch = original(self, features)
    if len(features) == 1:
        batch["input_ids"] = batch["input_ids"] + 1
    return batch
DataCollatorWithPadding.__call__ = changed
"""


def run(code, *arguments, home):
    variables = {**os.environ, "XDG_CACHE_HOME": str(home), "LOCALAPPDATA": str(home), "COLUMNS": "100"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def counts(said):
    lines = re.findall(r"^ ([\w.]+) +(\d+) +(\d+) +(\d+)", said, re.MULTILINE)
    return {name: tuple(map(int, numbers)) for name, *numbers in lines}


def test_all_batches_agree(tmp_path):
    done = run(VERIFY, "verify", home=tmp_path)
    assert done.returncode == 0, done.stderr
    found = counts(done.stdout)
    assert len(found) == 10
    for name, (batches, compiled, differing) in found.items():
        assert batches >= 148, name
        assert 2 * compiled >= batches, name  # all but NumPy's, which fall back before 5.16 for labels of tokens
        assert differing == 0, name
    assert re.search(r"^ convert_to_tensors +150 +0 ", done.stdout, re.MULTILINE)
    assert "--remember" not in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_is_remembered_is_known(tmp_path):
    done = run(UNKNOWN + VERIFY, "verify", home=tmp_path)
    assert "quadrat verify --remember" in done.stdout
    assert run(UNKNOWN + CHANGED, home=tmp_path).stdout == "DataCollatorWithPadding\n"
    done = run(UNKNOWN + VERIFY, "verify", "--remember", home=tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "quadrat/known.json"
    assert f"11 of them are known from now on: {file}" in done.stdout.replace("\n", " ").replace("  ", " ")
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
    assert counts(done.stdout)["DataCollatorWithPadding"][2] > 0
    assert re.search(r"DataCollatorWithPadding: batch\['input_ids'\]\[0, 0\] is \d+ of the reference", done.stdout)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "value"), [("compare", "compare"), ("compile", "1")])
def test_run_says_what_becomes_of_unknown_code(option, value, tmp_path):
    script = "import os; print(os.environ['QUADRAT_UNTESTED'])"
    done = run(VERIFY, "run", "--quiet", "--untested", option, "-c", script, home=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{value}\n"), done.stderr
