"""`python -m quadrat waste` as a user runs it: what it reads, and what it says of it."""

import dataclasses
import json
import re

import datasets
import numpy as np
import pytest
from transformers import AutoTokenizer

import quadrat
from quadrat.cli import corpus, waste
from support.command import TEXTS, here, in_json, refused, run


def ways(found):
    return {cost["name"]: cost for cost in found["ways"]}


def shown(costs):
    """What JSON has of ways of batching."""
    return [
        {"name": name, **dataclasses.asdict(cost), "padding": cost.padding, "factor": cost.factor}
        for name, cost in costs.items()
    ]


def lengths_of(folder, *, max_length):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = tokenizer(TEXTS, truncation=max_length is not None, max_length=max_length, verbose=False)["input_ids"]
    return np.array([len(row) for row in rows])


def test_a_text_file(folder):
    done = run("waste", "texts.txt", "--batch-size", 8, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "texts.txt: 200 texts" in done.stdout
    assert "words, which are fewer than tokens; give your tokenizer with --tokenizer" in " ".join(done.stdout.split())
    assert "No row is truncated." in done.stdout
    for name in (waste.FIXED, waste.DYNAMIC, waste.GROUPED, waste.BUDGET, waste.FLATTENED, waste.PACKED):
        assert re.search(rf"^ *{name}.* \d+\.\d%", done.stdout, re.MULTILINE), name
    assert re.search(r"^    (\w+) = quadrat\.", done.stdout, re.MULTILINE)
    table = re.search(r"^ batches are .*?(?=^Dynamic)", done.stdout, re.MULTILINE | re.DOTALL)[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80


def test_tables_are_as_wide_as_they_are_and_sentences_are_not(folder, capsys, monkeypatch):
    """In a pipe, whose width nobody knows."""
    monkeypatch.delenv("COLUMNS", raising=False)
    status, said, _ = here(capsys, "waste", folder / "fixed", "--max-tokens", 10**9, "--max-length", 10**9)
    assert status == 0
    table = re.search(r"^ batches are .*?(?=^Dynamic)", said, re.MULTILINE | re.DOTALL)[0].splitlines()
    assert "fixed length, 1,000,000,000" in "".join(table)
    assert sum(bool(line.strip()) for line in table) == 8
    assert max(len(line.rstrip()) for line in said.splitlines() if line not in table and line[:4].strip()) <= 80


def test_nothing_to_save(tmp_path, capsys):
    datasets.Dataset.from_dict({"input_ids": [[1, 2]] * 4}).save_to_disk(tmp_path / "rows")
    advice = in_json(capsys, "waste", tmp_path / "rows")["advice"]
    assert advice[0].endswith("no token is padding, so there is nothing to save.")


@pytest.mark.slow
def test_a_json_file_with_the_users_own_tokenizer(folder):
    options = ("--field", "body", "--tokenizer", "tokenizer", "--batch-size", 8, "--max-tokens", 128, "--seed", 3)
    done = run("waste", "texts.jsonl", *options, "--pad-to-multiple-of", 8, "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    lengths = lengths_of(folder, max_length=40)
    assert found["max_length"] == 40
    assert found["lengths"]["truncated"] == (lengths_of(folder, max_length=None) > 40).sum() > 0
    assert found["lengths"]["kept"] == lengths.sum()
    costs = waste.every_way(lengths, batch_size=8, max_length=40, max_tokens=128, multiple_of=8, seed=3)
    assert found["ways"] == shown(costs)
    packs = quadrat.batching.plan_packs(lengths, 40)
    fewest = -(-lengths.sum() // 40)
    assert found["packing"] == {"packs": len(packs), "fewest": fewest, "fill": lengths.sum() / (40 * len(packs))}
    assert all("quadrat." in "".join(lines) for lines in found["code"].values())


def test_a_budget_that_no_batch_can_keep(folder, capsys):
    said = refused(capsys, "waste", folder / "fixed", "--max-tokens", 7, "--pad-to-multiple-of", 8)
    assert "--max-tokens 7 is less than --pad-to-multiple-of 8" in said


def test_data_sets_files_and_columns_agree(folder, capsys):
    tokenizer = ("--tokenizer", folder / "tokenizer", "--max-length", 64)
    found = {}
    for name, options in {
        "texts.txt": (),
        "texts.jsonl": ("--field", "body"),
        "texts.json": ("--field", "body"),
        "lines.json": ("--field", "body"),
        "texts.csv": (),
        "texts.tsv": (),
        "texts.parquet": (),
        "rows.parquet": (),
        "texts": (),
        "rows": ("--split", "train"),
        "large": (),
    }.items():
        found[name] = ways(in_json(capsys, "waste", folder / name, *options, *tokenizer))
    assert found["texts.txt"][waste.FLATTENED]["tokens"] == lengths_of(folder, max_length=64).sum()
    assert all(costs == found["texts.txt"] for costs in found.values())


def test_rows_of_one_length(folder, capsys):
    assert {cost["computed"] for cost in in_json(capsys, "waste", folder / "fixed")["ways"]} == {12}


def test_texts_in_pieces_are_all_counted(folder, capsys, monkeypatch):
    arguments = (folder / "texts", "--tokenizer", folder / "tokenizer", "--json")
    before = here(capsys, "waste", *arguments)
    monkeypatch.setattr(corpus, "_CHUNK", 7)
    assert here(capsys, "waste", *arguments) == before
    rows = (folder / "rows", "--split", "train", "--json")
    in_pieces = here(capsys, "waste", *rows)
    monkeypatch.undo()
    assert here(capsys, "waste", *rows) == in_pieces


def test_without_a_tokenizer_words_are_counted(tmp_path, capsys):
    """However long they are."""
    (tmp_path / "texts.csv").write_text('n,text\n1,"two\n words "\n2,NA\n3,\n4,' + "a" * 300_000)
    histogram = in_json(capsys, "waste", tmp_path / "texts.csv")["histogram"]
    assert [(one["first"], one["rows"]) for one in histogram] == [(0, 1), (1, 2), (2, 1)]


@pytest.mark.parametrize("longest", [40, 400])
def test_limits_in_words_say_so_beside_the_code(longest, tmp_path, capsys):
    path, rows = tmp_path / "texts.txt", tmp_path / "rows.jsonl"
    sizes = [1 + 7 * row % longest for row in range(400)]
    path.write_text("\n".join("word " * size for size in sizes))
    rows.write_text("\n".join(json.dumps({"input_ids": [5] * size}) for size in sizes))
    said = "# the limit counts words, which are fewer than tokens: give your tokenizer with --tokenizer"
    pieces = re.split(r"\n\n", here(capsys, "waste", path)[1])
    limited = [piece for piece in pieces if re.search(r"    .*max.(tokens|length)[= ]\d", piece)]
    assert limited
    assert all(said in piece for piece in limited)
    assert [lines[0] == said for lines in in_json(capsys, "waste", path)["code"].values()] == [False, False, True]
    assert said not in here(capsys, "waste", rows)[1]


def test_token_ids_of_json(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2], "n": 1}\n{"input_ids": [3], "n": 2}\n')
    assert in_json(capsys, "waste", tmp_path / "rows.jsonl")["lengths"]["tokens"] == 3


@pytest.mark.parametrize("form", ["folder", "parquet", "json"])
def test_rows_that_were_stored_padded(form, tmp_path, capsys):
    """They are counted, and batched, without the padding, which is named."""
    lengths = [1 + row * row % 37 for row in range(64)]
    rows = [{"input_ids": [7] * n + [0] * (50 - n), "attention_mask": [1] * n + [0] * (50 - n)} for n in lengths]
    data, path = datasets.Dataset.from_list(rows), tmp_path / "rows"
    if form == "folder":
        data.save_to_disk(path)
    elif form == "parquet":
        data.to_parquet(path := path.with_suffix(".parquet"))
    else:
        data.to_json(path := path.with_suffix(".jsonl"))
    capsys.readouterr()
    found = in_json(capsys, "waste", path, "--batch-size", 8)
    assert found["lengths"]["tokens"] == sum(lengths)
    assert found["stored"] == {"longest": 50, "padding": pytest.approx(1 - sum(lengths) / (50 * 64))}
    sizes = {"batch_size": 8, "max_length": 50, "max_tokens": found["max_tokens"]}
    assert found["ways"] == shown(waste.every_way(np.array(lengths), **sizes))
    assert found["ways"][0]["computed"] == 50 * 64  # as they are now
    assert found["advice"][0].startswith("Rows are stored padded to 50 tokens: ")
    assert {lines[0] for lines in found["code"].values()} == {"# a dataset that was mapped without padding"}
    assert "quadrat run" not in here(capsys, "waste", path, "--batch-size", 8)[1]


def test_rows_that_are_not_stored_padded(tmp_path, capsys):
    """A masked token here and there is as little as none; other masks do not count."""
    mask = [[0, *[1] * 30]] * 8
    datasets.Dataset.from_dict({"input_ids": [[7] * 31] * 8, "attention_mask": mask}).save_to_disk(tmp_path / "rows")
    found = in_json(capsys, "waste", tmp_path / "rows")
    assert found["stored"] == {}
    assert "mapped" not in json.dumps([found["code"], found["advice"]])
    masks = [[0] * 30] * 8
    datasets.Dataset.from_dict({"input_ids": [[7] * 31] * 8, "attention_mask": masks}).save_to_disk(tmp_path / "odd")
    assert "row 0 has 31 tokens, and 30 in 'attention_mask'" in refused(capsys, "waste", tmp_path / "odd")


def test_choices_are_not_rows_of_tokens(tmp_path, capsys):
    datasets.Dataset.from_dict({"input_ids": [[[7, 8], [9]]] * 4}).save_to_disk(tmp_path / "choices")
    said = refused(capsys, "waste", tmp_path / "choices")
    assert (
        "expected text, or lists of token ids. For rows of multiple choice, use quadrat run --max-tokens auto" in said
    )


def test_an_empty_text_is_a_row(tmp_path, folder, capsys):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": ""}\n\n{"text": "several words"}\n')
    lengths = in_json(capsys, "waste", path, "--tokenizer", folder / "tokenizer")["lengths"]
    assert (lengths["rows"], lengths["tokens"]) == (2, 6)


def test_rows_without_a_token(tmp_path, capsys):
    nothing = datasets.Dataset.from_dict(
        {"input_ids": [[], []]}, features=datasets.Features({"input_ids": datasets.List(datasets.Value("int64"))})
    )
    nothing.save_to_disk(tmp_path / "nothing")
    status, said, _ = here(capsys, "waste", tmp_path / "nothing")
    assert status == 0
    assert "2 rows, 0 tokens" in " ".join(said.split())


def test_a_tokenizer_without_a_limit_truncates_nothing(tmp_path, folder, capsys):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(tmp_path)
    found = in_json(capsys, "waste", folder / "texts.txt", "--tokenizer", tmp_path)
    assert found["max_length"] == found["lengths"]["longest"] > 40


@pytest.mark.parametrize("option", ["--batch-size", "--max-length", "--max-tokens", "--pad-to-multiple-of"])
def test_the_largest_numbers_overflow_nothing(option, folder, capsys):
    found = in_json(capsys, "waste", folder / "fixed", option, 10**9)
    assert all(cost["tokens"] <= cost["computed"] for cost in found["ways"])


@pytest.mark.parametrize(
    ("tokenizer", "before_padding"),
    [
        ("eos", "set tokenizer.pad_token = tokenizer.eos_token"),
        ("none", 'tokenizer.add_special_tokens({"pad_token": "[PAD]"}) and model.resize_token_embeddings'),
    ],
)
def test_a_tokenizer_without_a_pad_token_is_given_one_first(tokenizer, before_padding, folder, generative, capsys):
    for data in (("texts.txt",), ("rows", "--split", "train")):
        found = in_json(capsys, "waste", folder / data[0], *data[1:], "--tokenizer", generative / tokenizer)
        advice, code = found["advice"], found["code"]
        assert any("DataCollatorWithPadding(tokenizer)" in line for lines in code.values() for line in lines)
        assert "no pad token" in advice[-1]
        assert before_padding in advice[-1]
    said = here(capsys, "waste", folder / "texts.txt", "--tokenizer", folder / "tokenizer", "--json")[1]
    assert "pad token" not in said
