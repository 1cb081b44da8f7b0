"""`python -m quadrat bench`: what it compares and when it fails, and the command as a user runs it."""

import gc
import json
import random
import re
import sys

import datasets
import numpy as np
import pytest
import torch

import quadrat
from quadrat.__main__ import main
from quadrat.cli import measure
from quadrat.cli.comparison import PAIRS
from support.command import TEXTS, here, refused, run
from support.trained import train_tokenizer

SHORT = ("--seconds", 0.01)


def batch(**changed):
    return {"input_ids": torch.tensor([[1, 2], [3, 0]]), "position_ids": torch.arange(4), "max_length": 2, **changed}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (batch(input_ids=torch.tensor([[1, 2], [4, 0]])), r"input_ids differ, first at \(1, 0\): 3 expected, 4 found"),
        (batch(input_ids=torch.tensor([[1, 2, 3, 0]])), "shape of input_ids"),
        (batch(input_ids=torch.tensor([[1, 2], [3, 0]], dtype=torch.int32)), "dtype of input_ids: torch.int64"),
        (batch(input_ids=np.array([[1, 2], [3, 0]])), "type of input_ids"),
        (batch(max_length=3), "max_length: 2 expected, 3 found"),
        (batch(labels=torch.zeros(2)), "keys: "),
        (dict(reversed(batch().items())), "keys: "),
    ],
)  # fmt: skip
def test_batches_that_differ(other, message):
    measure.check_same(batch(), batch())
    with pytest.raises(measure.DifferenceError, match=message):
        measure.check_same(batch(), other)


def test_floats_are_compared_by_their_bits():
    nothing = {"x": np.array([np.nan, 0.0])}
    measure.check_same(nothing, {"x": np.array([np.nan, 0.0])})
    with pytest.raises(measure.DifferenceError, match="values of x differ"):
        measure.check_same({"x": np.array([0.0])}, {"x": np.array([-0.0])})


@pytest.mark.parametrize(
    ("library", "draw"), [("torch", lambda: torch.rand(1)), ("NumPy", np.random.rand), ("Python", random.random)]
)
def test_random_states_that_differ(library, draw):
    measure.check_collators(lambda features: draw() and batch(), lambda features: draw() and batch(), [])
    with pytest.raises(measure.DifferenceError, match=f"{library}'s random generator"):
        measure.check_collators(lambda features: batch(), lambda features: draw() and batch(), [])


def test_both_are_called_in_turn_and_alone_and_quietly():
    calls, quiet = [], set()

    def collate(name):
        def call(features):
            calls.append(name)
            quiet.add((torch.get_num_threads(), gc.isenabled()))
            return batch()

        return call

    threads = torch.get_num_threads()
    found = measure.timed((collate("r"), collate("q")), [], seconds=0.001, calls=3, at_least=20)
    assert (len(found) >= 20, found.shape[1], (found > 0).all()) == (True, 2, True)
    assert "".join(calls) == "rrrqqq" * (1 + len(found))  # one to warm up
    assert (torch.get_num_threads(), gc.isenabled()) == (threads, True)
    assert quiet == {(1, False)}
    assert measure.calls_of(lambda features: sum(range(100_000)), []) <= 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text file, a saved data set of tokens, and the tokenizer of both."""
    folder = tmp_path_factory.mktemp("data")
    tokenizer = train_tokenizer(TEXTS[:100], max_length=40)
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "texts.txt").write_text("\n".join(TEXTS[:100]))
    columns = dict(tokenizer(TEXTS[:100], truncation=True, return_special_tokens_mask=True))
    datasets.Dataset.from_dict(columns).save_to_disk(folder / "rows")
    datasets.Dataset.from_dict({"ids": [*columns["input_ids"], None]}).save_to_disk(folder / "missing")
    datasets.Dataset.from_dict({"input_ids": [[1, 2]], "attention_mask": [1]}).save_to_disk(folder / "number")
    return folder


@pytest.mark.slow
def test_a_text_file(folder):
    done = run("bench", "texts.txt", "--tokenizer", "tokenizer", "--batch-size", 8, *SHORT, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "texts.txt: 12 batches of 8 rows; tokenizer: tokenizer." in done.stdout
    assert "All batches equal those of transformers: keys, dtypes, values" in done.stdout
    for name in PAIRS:
        assert re.search(rf"^ {name} .*µs .*{measure.TIMES} .*{measure.TIMES}", done.stdout, re.MULTILINE), name


def test_a_saved_data_set(folder, capsys):
    options = ("--tokenizer", folder / "tokenizer", "--batch-size", 30, "--json", *SHORT)
    status, said, errors = here(capsys, "bench", folder / "rows", *options)
    assert (status, errors) == (0, "")
    found = json.loads(said)
    assert [one["name"] for one in found["collators"]] == list(PAIRS)
    assert found["machine"]["transformers"] == measure.version("transformers")
    for one in found["collators"]:
        assert (one["rows"], one["compared"]) == (30, 3)
        assert one["computed"] == (one["tokens"] if one["name"] == "flattening" else 30 * 40)
    cut = here(capsys, "bench", folder / "rows", *options, "--max-length", 5, "--collators", "clm")[1]
    assert json.loads(cut)["collators"][0]["computed"] == 30 * 5


def test_fewer_rows_than_a_batch(folder, capsys):
    options = ("--tokenizer", folder / "tokenizer", "--batch-size", 500, "--collators", "padding", *SHORT)
    said = here(capsys, "bench", folder / "texts.txt", *options)[1]
    assert "1 batch of 100 rows" in said


def test_a_tokenizer_without_mask_and_padding(folder, generative, capsys):
    status, said, _ = here(capsys, "bench", folder / "texts.txt", "--tokenizer", generative / "eos", *SHORT)
    assert status == 0
    assert "padding with its end-of-sequence token <eos>" in " ".join(said.split())
    assert "\n mlm " not in said
    assert "\n clm " in said


@pytest.mark.parametrize(
    ("data", "tokenizer", "options", "message"),
    [
        ("texts.txt", "eos", ("--collators", "clm", "mlm"), "mlm: the tokenizer has no mask token"),
        ("texts.txt", "none", (), "has neither a pad token nor an end-of-sequence token"),
        ("rows", None, (), "the collators need your tokenizer: give --tokenizer"),
        ("missing", "eos", ("--field", "ids"), "row 100: column 'ids' is null"),
        ("number", "eos", (), "column 'attention_mask' holds int8; expected lists of numbers"),
        ("texts.txt", "nowhere", (), "no tokenizer could be loaded from"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_status_2(
    *, data, tokenizer, options, message, folder, generative, capsys
):
    given = () if tokenizer is None else ("--tokenizer", generative / tokenizer)
    # Every row is in a batch.
    assert message in refused(capsys, "bench", folder / data, *given, *options, "--batch-size", 1000, *SHORT)


class Changes(quadrat.DataCollatorWithPadding):
    """Differs from the reference in one number."""

    def __call__(self, features):
        batch = super().__call__(features)
        batch["attention_mask"][0, 0] = 7
        return batch


class Fails(quadrat.DataCollatorWithPadding):
    """Raises where the reference does not."""

    def __call__(self, features):
        raise RuntimeError("no room")


@pytest.mark.parametrize(
    ("collator", "message"),
    [
        (Changes, "batch 1 of 3: values of attention_mask differ, first at (0, 0): 1 expected, 7 found"),
        (Fails, "batch 1 of 3: RuntimeError: no room"),
    ],
)
def test_a_difference_is_said_and_is_status_1(collator, message, folder, capsys, monkeypatch):
    monkeypatch.setattr(quadrat, "DataCollatorWithPadding", collator)
    options = ("--tokenizer", folder / "tokenizer", *SHORT)
    said = refused(capsys, "bench", folder / "texts.txt", *options, status=1)
    assert said == f"quadrat bench: padding: DataCollatorWithPadding differs from transformers: {message}\n"
    assert here(capsys, "bench", folder / "texts.txt", *options, "--collators", "flattening")[0] == 0


def test_says_when_the_reference_itself_fails(folder, capsys, tmp_path):
    rows = {"input_ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1, 1]]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "rows")
    said = refused(capsys, "bench", tmp_path / "rows", "--tokenizer", folder / "tokenizer", *SHORT)
    assert "padding, batch 1 of 1: transformers' collator fails with it: " in said


@pytest.mark.parametrize("options", [("--seconds", "0"), ("--seconds", "nan"), ("--collators", "nothing")])
def test_options_are_checked(options, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "texts.txt", *options])
    assert exit_.value.code == 2
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize(("missing", "extra"), [("rich", "cli"), ("transformers", "transformers")])
def test_says_what_is_not_installed(missing, extra, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    assert f'needs {missing}: pip install "quadrat[{extra}]"' in refused(capsys, "bench", folder / "texts.txt")
