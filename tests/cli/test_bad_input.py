"""What the commands say of data that cannot be read, and of options that make no sense."""

import json
import os
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
        (lambda folder: folder, (), "cannot be read: Directory "),
        (saved({"words": ["a"]}), (), "no column 'text'; choose one with --field: words"),
        (saved({"text": ["a"]}), ("--field", "body"), "no column 'body'; choose one with --field: text"),
        (saved({"text": ["a"]}), ("--split", "train"), "--split is for a folder"),
        (saved({"input_ids": [[1], [2, 3], None]}), (), "row 2: column 'input_ids' is null"),
        (saved({"input_ids": [[0.5]]}), (), "column 'input_ids' holds list<"),
        (saved({"input_ids": [[[7, 8], [9]]]}), (), ">; expected text, or lists of token ids"),
        (saved({"text": []}, num_shards=1), (), "there are no rows"),
        (saved({"text": []}), (), "it, or one of its splits, has no rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_and_status_2(make, options, message, tmp_path, capsys):
    assert message in refused(capsys, "waste", make(tmp_path), *options)


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
    ],
)
def test_numbers_are_checked(option, value, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["waste", "texts.txt", option, value])
    assert exit_.value.code == 2
    assert f"argument {option}: {message}" in capsys.readouterr().err


def test_says_what_is_not_installed(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert here(capsys, "waste", folder / "fixed")[0] == 0  # rows of tokens need no tokenizer
    assert refused(capsys, "waste", folder / "fixed", "--tokenizer", "a") == (
        'quadrat waste: --tokenizer needs transformers: pip install "quadrat[transformers]"\n'
    )
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refused(capsys, "waste", folder / "fixed") == (
        'quadrat waste: this command needs datasets: pip install "quadrat[datasets]"\n'
    )


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
    ("arguments", "ending"),
    [
        (["rum", "train.py"], "; did you mean run?"),
        (["waste", "a.txt", "--tokeniser", "x"], "; did you mean --tokenizer?"),
        (["run", "--maxtokens", "auto", "train.py"], "; did you mean --max-tokens?"),
        (["something"], ""),
    ],
)
def test_names_that_are_nearly_right(arguments, ending, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert errors.rstrip().endswith(ending or ")")
    assert ("did you mean" in errors) == bool(ending)
