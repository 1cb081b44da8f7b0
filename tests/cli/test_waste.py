"""`quadrat waste` as a user runs it: what it reads, what padding costs, and what it says of it."""

import json

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from transformers import AutoTokenizer

import quadrat
from quadrat.cli import corpus, waste
from quadrat.cli.costs import Cost, cost_of
from support.command import TEXTS, here, in_json, refused, run

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=150).map(lambda lengths: np.array(lengths, dtype=np.int64))


def ways(report):
    return {cost["name"]: cost for cost in report["ways"]}


def lengths_of(folder, *, max_length):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = tokenizer(TEXTS, truncation=max_length is not None, max_length=max_length, verbose=False)["input_ids"]
    return np.array([len(row) for row in rows])


@given(lengths=LENGTHS, batch_size=st.integers(1, 9))
def test_the_cost_of_batches_is_that_of_padding_them(lengths, batch_size):
    rows = np.random.default_rng(0).permutation(len(lengths)).tolist()
    batches = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
    padded = [quadrat.pad([np.ones(lengths[row], dtype=np.int64) for row in batch]) for batch in batches]
    cost = cost_of(lengths, quadrat.Ragged.from_rows(batches))
    computed, tokens = sum(batch.size for batch in padded), int(lengths.sum())
    assert cost == Cost(len(batches), tokens, computed, sum(len(batch) * batch.shape[1] ** 2 for batch in padded))
    assert cost.padding == pytest.approx(sum((batch == 0).sum() for batch in padded) / computed if computed else 0)
    assert cost.factor == pytest.approx(computed / tokens if tokens else 1)


@given(lengths=LENGTHS, batch_size=st.integers(1, 9), max_tokens=st.none() | st.integers(9, 200))
def test_every_way_has_the_same_tokens(lengths, batch_size, max_tokens):
    max_length = max(1, int(lengths.max()))
    costs, budget = waste._ways(lengths, max_length, batch_size, max_tokens)
    fixed, dynamic, by_tokens, flat = costs.values()
    assert {cost.tokens for cost in costs.values()} == {int(lengths.sum())}
    assert fixed.batches == dynamic.batches == flat.batches == -(-len(lengths) // batch_size)
    assert fixed.computed == len(lengths) * max_length
    assert fixed.computed >= max(dynamic.computed, by_tokens.computed)
    assert min(dynamic.computed, by_tokens.computed) >= flat.computed == lengths.sum()
    assert all(cost.scores >= flat.scores == (lengths**2).sum() for cost in costs.values())
    assert budget == (max_tokens or budget)
    sampler = quadrat.TokenBudgetBatchSampler(lengths, budget, overlong="alone")
    if max_tokens:
        assert by_tokens == cost_of(lengths, quadrat.Ragged.from_rows(list(sampler)))


def test_a_text_file(folder):
    done = run("waste", "texts.txt", "--batch-size", 8, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert text.startswith(f"texts.txt: 200 rows, {sum(map(len, map(str.split, TEXTS))):,} tokens, counted by words, ")
    assert "No row is truncated. One epoch in batches of 8:" in text
    table = done.stdout.split("\n\n")[2].splitlines()
    assert len({*map(len, table)}) == 1
    assert [line[:12].rstrip(" ,") for line in table[1:]] == ["fixed length", "dynamic", "token budget", "padding-free"]
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_a_json_file_with_the_users_own_tokenizer(folder):
    options = ("--field", "body", "--tokenizer", "tokenizer", "--batch-size", 8, "--max-tokens", 128)
    done = run("waste", "texts.jsonl", *options, "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    lengths, rows = lengths_of(folder, max_length=40), lengths_of(folder, max_length=None)
    assert (report["max_length"], report["max_tokens"]) == (40, 128)
    assert report["lengths"] == {
        "rows": len(rows),
        "tokens": rows.sum(),
        "mean": pytest.approx(rows.mean()),
        "median": np.median(rows),
        "p95": sorted(rows)[-(-95 * len(rows) // 100) - 1],
        "longest": rows.max(),
        "truncated": (rows > 40).sum(),
        "kept": lengths.sum(),
    }
    for name, cost in waste._ways(lengths, 40, 8, 128)[0].items():
        expected = {"name": name, **vars(cost), "padding": cost.padding, "factor": cost.factor}
        assert ways(report)[name] == expected
    assert any("quadrat.batch_by_tokens(trainer, 128)" in sentence for sentence in report["advice"])


def test_data_sets_files_and_columns_agree(folder, capsys):
    tokenizer = ("--tokenizer", folder / "tokenizer", "--max-length", 64)
    costs = {
        name: ways(in_json(capsys, "waste", folder / name, *options, *tokenizer))
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
        }.items()
    }
    assert costs["texts.txt"][waste.FLATTENED]["tokens"] == lengths_of(folder, max_length=64).sum()
    assert all(cost == costs["texts.txt"] for cost in costs.values())


@pytest.mark.parametrize(
    ("lengths", "max_length", "advice"),
    [
        ([12] * 4, (), ["Pad to the longest row of each batch: no token is padding, so there is nothing to save."]),
        ([30] * 99 + [31], ("--max-length", 62), ["only ", " times as many tokens."]),
        (
            [1, 30] * 50,
            (),
            ["Have the model compute no padding: ", "quadrat.remove_padding(model) ", " padding, for any model"],
        ),
        ([], (), ["nothing to save"]),
    ],
)
def test_advice_follows_the_numbers(lengths, max_length, advice, tmp_path, capsys):
    """Also of rows without a token."""
    kind = datasets.Features({"input_ids": datasets.List(datasets.Value("int64"))})
    rows = {"input_ids": [[5] * length for length in lengths] or [[], []]}
    datasets.Dataset.from_dict(rows, features=kind).save_to_disk(tmp_path / "rows")
    sentences = " ".join(in_json(capsys, "waste", tmp_path / "rows", *max_length)["advice"])
    assert all(part in sentences for part in advice)
    assert ("remove_padding" in sentences) == (len(advice) == 3)
    assert here(capsys, "waste", tmp_path / "rows", *max_length)[0] == 0


def test_rows_of_one_length(folder, capsys):
    assert {cost["computed"] for cost in in_json(capsys, "waste", folder / "fixed")["ways"]} == {12}


def test_texts_in_pieces_are_all_counted(folder, capsys, monkeypatch):
    arguments = (folder / "texts", "--tokenizer", folder / "tokenizer", "--json")
    before = here(capsys, "waste", *arguments)
    monkeypatch.setattr(corpus, "_CHUNK", 7)
    assert here(capsys, "waste", *arguments) == before


def test_without_a_tokenizer_words_are_counted(tmp_path, capsys):
    """However long they are."""
    (tmp_path / "texts.csv").write_text('n,text\n1,"two\n words "\n2,NA\n3,\n4,' + "a" * 300_000)
    lengths = in_json(capsys, "waste", tmp_path / "texts.csv")["lengths"]
    assert (lengths["rows"], lengths["tokens"], lengths["longest"], lengths["median"]) == (4, 4, 2, 1)


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
    report = in_json(capsys, "waste", path, "--batch-size", 8)
    assert report["lengths"]["tokens"] == sum(lengths)
    assert report["stored"] == {"longest": 50, "padding": pytest.approx(1 - sum(lengths) / (50 * 64))}
    assert ways(report)[waste.FIXED]["computed"] == 50 * 64  # as they are now
    assert ways(report)[waste.FLATTENED]["computed"] == sum(lengths)
    assert report["advice"][0].startswith("Rows are stored padded to 50 tokens: ")


def test_rows_that_are_not_stored_padded(tmp_path, capsys):
    """A masked token here and there is as little as none; other masks do not count."""
    mask = [[0, *[1] * 30]] * 8
    datasets.Dataset.from_dict({"input_ids": [[7] * 31] * 8, "attention_mask": mask}).save_to_disk(tmp_path / "rows")
    report = in_json(capsys, "waste", tmp_path / "rows")
    assert (report["stored"], report["lengths"]["tokens"]) == ({}, 240)
    masks = [[0] * 30] * 8
    datasets.Dataset.from_dict({"input_ids": [[7] * 31] * 8, "attention_mask": masks}).save_to_disk(tmp_path / "odd")
    assert "row 0 has 31 tokens, and 30 in 'attention_mask'" in refused(capsys, "waste", tmp_path / "odd")


def test_an_empty_text_is_a_row(tmp_path, folder, capsys):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": ""}\n\n{"text": "several words"}\n')
    lengths = in_json(capsys, "waste", path, "--tokenizer", folder / "tokenizer")["lengths"]
    assert (lengths["rows"], lengths["tokens"]) == (2, 6)


def test_a_tokenizer_without_a_limit_truncates_nothing(tmp_path, folder, capsys):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(tmp_path)
    report = in_json(capsys, "waste", folder / "texts.txt", "--tokenizer", tmp_path)
    assert report["max_length"] == report["lengths"]["longest"] > 40


@pytest.mark.parametrize("option", ["--batch-size", "--max-length", "--max-tokens"])
def test_the_largest_numbers_overflow_nothing(option, folder, capsys):
    report = in_json(capsys, "waste", folder / "fixed", option, 10**9)
    assert all(cost["tokens"] <= cost["computed"] for cost in report["ways"])
