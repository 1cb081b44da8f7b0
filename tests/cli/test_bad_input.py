"""What the commands say of data that cannot be read, and of options that make no sense."""

import json
import os
import re
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quadrat.__main__ import main
from quadrat.cli.corpus import EXPECTED
from support.command import here, refused, run


def saved(rows, **options):
    def write(folder):
        datasets.Dataset.from_dict(rows).save_to_disk(folder / "data", **options)
        return folder / "data"

    return write


def written(name, content):
    def write(folder):
        path = folder / name
        path.write_bytes(content)
        return path

    return write


def parquet(columns):
    def write(folder):
        pq.write_table(pa.table(columns), folder / "a.parquet")
        return folder / "a.parquet"

    return write


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda folder: folder / "none.txt", (), f"none.txt: no such file or folder; {EXPECTED}\n"),
        (written("a.txt", b"good\nb\xe4d\n"), (), "a.txt: cannot be read: 'utf-8' codec can't decode byte 0xe4"),
        (written("a.txt", b"text"), ("--split", "train"), "--split is for a folder"),
        (written("a.pkl", b"text"), (), f"a.pkl: {EXPECTED}\n"),
        (written("a.jsonl", b'{"text": "a"}\n{"body": "b"}'), (), "a.jsonl, row 1: column 'text' is null"),
        (written("a.jsonl", b'{"text": 3}'), (), "column 'text' holds int64; expected text"),
        (
            written("a.jsonl", json.dumps({f"f{n}": "a" for n in range(500)}).encode()),
            ("--field", ""),
            "no column ''; choose one with --field: f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, and 488 more",
        ),
        (written("a.jsonl", b'{"text": "a"'), (), "a.jsonl: cannot be read: "),
        (written("a.csv", b""), (), "a.csv: cannot be read: "),
        (written("a.csv", b"id,body\n1,a"), (), "a.csv: no column 'text'; choose one with --field: id, body"),
        (written("a.csv", b"id,text\n1,\xe4"), (), "a.csv: cannot be read: "),
        (written("a.parquet", b"text"), (), "a.parquet: cannot be read: "),
        (parquet({"body": ["a"]}), (), "a.parquet: no column 'text'; choose one with --field: body"),
        (parquet({"text": ["a", None]}), (), "a.parquet, row 1: column 'text' is null"),
        (parquet({"text": [0.5]}), (), "a.parquet: column 'text' holds double; expected text, or lists of token ids"),
        (lambda folder: folder, (), f"{EXPECTED}: Directory "),
        (saved({"words": ["a"]}), (), "no column 'text'; choose one with --field: words"),
        (saved({"text": ["a"]}), ("--field", "body"), "no column 'body'; choose one with --field: text"),
        (saved({"text": ["a"]}), ("--split", "train"), "--split is for a DatasetDict"),
        (saved({"input_ids": [[1], [2, 3], None]}), (), "row 2: column 'input_ids' is null"),
        (saved({"input_ids": [[0.5]]}), (), "column 'input_ids' holds list<"),
        (saved({"text": [3]}), (), "column 'text' holds int64; expected text"),
        (saved({"text": []}, num_shards=1), (), "there are no rows"),
        (saved({"text": []}), (), "the dataset, or one of its splits, has no rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_and_status_2(make, options, message, tmp_path, capsys):
    assert message in refused(capsys, "waste", make(tmp_path), *options)


@pytest.mark.parametrize("name", ["imdb", "stanfordnlp/imdb", "HuggingFaceFW/fineweb-2.0"])
def test_a_name_of_the_hub_says_how_to_save_its_rows(name, tmp_path, capsys, monkeypatch):
    """The code that it names writes a folder that the command reads."""
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "waste", name)
    assert said.startswith(f"quadrat waste: {name}: no such file or folder; {EXPECTED}. ")
    code, folder = re.search(r'python -c "(.*)", and give that folder, (\S+)$', said.strip()).groups()
    made = datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": ["some words", "more"]}))
    monkeypatch.setattr(datasets, "load_dataset", {name: made}.__getitem__)
    exec(code)
    assert "choose one with --split: train" in refused(capsys, "waste", folder)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("rows", (), "a DatasetDict without a split None; choose one with --split: train, test"),
        ("rows", ("--split", "dev"), "a DatasetDict without a split 'dev'; choose one with --split: train, test"),
        ("texts.txt", ("--tokenizer", "nowhere/at-all"), "no tokenizer could be loaded from 'nowhere/at-all'"),
        ("texts.txt", ("--tokenizer", os.curdir), "no tokenizer could be loaded from '.'"),
    ],
)
def test_what_was_asked_wrongly_is_one_line_and_status_2(data, options, message, folder, capsys):
    assert message in refused(capsys, "waste", folder / data, *options)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--batch-size", "0", "expected a number from 1 to 1,000,000,000, got 0"),
        ("--max-tokens", str(10**30), "expected a number from 1 to 1,000,000,000, got"),
        ("--max-length", "none", "expected a whole number, got 'none'"),
        ("--seed", "-1", "expected a number from 0 to 1,000,000,000, got -1"),
    ],
)
def test_numbers_are_checked(option, value, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["waste", "texts.txt", option, value])
    assert exit_.value.code == 2
    assert f"argument {option}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "options", "extra"),
    [("rich", (), "cli"), ("matplotlib", ("--png", "a.png"), "cli"), ("datasets", ("--json",), "datasets")],
)
def test_says_what_is_not_installed(*, missing, options, extra, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    said = refused(capsys, "waste", folder / "fixed", *options)
    assert f'needs {missing}: pip install "quadrat[{extra}]"' in said


def test_says_all_that_is_not_installed_at_once(folder, capsys, monkeypatch):
    for name in ("rich", "matplotlib", "torch", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    assert refused(capsys, "waste", folder / "fixed", "--png", "a.png") == (
        "quadrat waste: this command needs torch, datasets, rich and matplotlib: "
        'pip install "quadrat[transformers,datasets,cli]"\n'
    )


@pytest.mark.parametrize("missing", ["rich", "transformers"])
def test_json_of_rows_of_tokens_needs_little(missing, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    assert here(capsys, "waste", folder / "fixed", "--json")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.parquet"])
def test_what_is_no_file_is_not_waited_for(name, tmp_path, capsys):
    """Nothing may ever be written to a pipe, and a device may have no end."""
    os.mkfifo(tmp_path / name)
    done = run("waste", name, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"quadrat waste: {name}: not a file; {EXPECTED}\n"
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(os.devnull)
    assert f"{name}: not a file" in refused(capsys, "waste", tmp_path / name)


def test_a_link_to_a_file_is_a_file(folder, tmp_path, capsys):
    (tmp_path / "a.txt").symlink_to(folder / "texts.txt")
    assert here(capsys, "waste", tmp_path / "a.txt", "--json")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum", "train.py"], "; did you mean run?"),
        (["waste", "a.txt", "--tokeniser", "x"], "; did you mean --tokenizer?"),
        (["run", "--maxtokens", "auto", "train.py"], "; did you mean --max-tokens?"),
        (["something"], ""),
    ],
)
def test_names_that_are_nearly_right(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert errors.rstrip().endswith(said or ")")
    assert ("did you mean" in errors) == bool(said)
