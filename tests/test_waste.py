"""`python -m quadrat waste`: the numbers against really padded batches, and the command as a user runs it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from transformers import AutoTokenizer
from transformers.trainer_pt_utils import get_length_grouped_indices

import quadrat
from quadrat.__main__ import main
from quadrat.bench import source, waste
from quadrat.bench.advice import ENOUGH_GROUPED, LITTLE_PADDING, advise, grouping
from quadrat.bench.corpus import train_tokenizer

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=150).map(lambda found: np.array(found, dtype=np.int64))
BATCH_SIZES = st.integers(1, 9)
MULTIPLES = st.integers(1, 9)


@st.composite
def rows(draw):
    """Lengths and a permutation of them."""
    lengths = draw(LENGTHS)
    return lengths, np.array(draw(st.permutations(range(len(lengths)))), dtype=np.int64)


def batches(plan):
    return [batch.tolist() for batch in np.split(plan.order, plan.starts[1:])]


def tokens(lengths, batch):
    """A row of ones for each row of a batch."""
    return [np.ones(lengths[row], dtype=np.int64) for row in batch]


@given(of=rows(), batch_size=BATCH_SIZES)
def test_shuffled_batches_are_the_order_cut(of, batch_size):
    _, order = of
    plan = waste.shuffled(order, batch_size)
    found = batches(plan)
    assert list(itertools.chain(*found)) == order.tolist()
    assert [len(batch) for batch in found[:-1]] == [batch_size] * (len(found) - 1)
    assert 1 <= len(found[-1]) <= batch_size


@given(lengths=LENGTHS, batch_size=BATCH_SIZES, seed=st.integers(0, 2**32))
def test_groups_by_length_as_transformers_does(lengths, batch_size, seed):
    expected = get_length_grouped_indices(lengths.tolist(), batch_size, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).numpy()
    before = order.copy()
    plan = waste.length_grouped(lengths, order, batch_size)
    assert plan.order.tolist() == expected
    assert plan.starts.tolist() == list(range(0, len(lengths), batch_size))
    assert (order == before).all()


def test_groups_fifty_batches_at_a_time_as_transformers_does():
    lengths = np.random.default_rng(0).integers(1, 500, 5000)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1)).numpy()
    expected = get_length_grouped_indices(lengths.tolist(), 7, generator=torch.Generator().manual_seed(1))
    assert waste.length_grouped(lengths, order, 7).order.tolist() == expected


@given(of=rows(), batch_size=BATCH_SIZES, max_tokens=st.integers(1, 200), multiple_of=MULTIPLES)
def test_a_token_budget_is_kept_and_used(of, batch_size, max_tokens, multiple_of):
    lengths, order = of
    found = batches(waste.token_budget(lengths, order, batch_size, max_tokens, multiple_of=multiple_of))
    assert sorted(itertools.chain(*found)) == list(range(len(lengths)))
    size = batch_size * max(1, min(len(lengths) // (4 * batch_size), waste.MEGABATCH))
    megabatch = {row: number // size for number, row in enumerate(order.tolist())}
    for batch, after in itertools.zip_longest(found, found[1:]):
        assert len({megabatch[row] for row in batch}) == 1
        assert quadrat.pad(tokens(lengths, batch), multiple_of=multiple_of).size <= max_tokens or len(batch) == 1
        if after is not None and megabatch[after[0]] == megabatch[batch[0]]:
            one_more = quadrat.pad(tokens(lengths, [*batch, after[0]]), multiple_of=multiple_of)
            assert one_more.size > max_tokens


@given(of=rows(), batch_size=BATCH_SIZES, multiple_of=MULTIPLES, more=st.none() | st.integers(0, 9))
def test_padding_costs_what_really_padding_makes(of, batch_size, multiple_of, more):
    lengths, order = of
    to = None if more is None else int(lengths.max()) + more
    plan = waste.length_grouped(lengths, order, batch_size)
    made = [
        quadrat.pad(tokens(lengths, batch), multiple_of=multiple_of, length=to and -(-to // multiple_of) * multiple_of)
        for batch in batches(plan)
    ]
    cost = waste.padded("name", lengths, plan, multiple_of=multiple_of, to=to)
    computed = sum(batch.size for batch in made)
    assert cost == waste.Cost(
        "name",
        batches=len(made),
        largest_batch=max(batch.size for batch in made),
        tokens=sum(int(batch.sum()) for batch in made),
        computed=computed,
        scores=sum(len(batch) * batch.shape[1] ** 2 for batch in made),
    )
    padding = sum(int((batch == 0).sum()) for batch in made)
    assert cost.padding == pytest.approx(padding / computed if computed else 0)
    assert cost.factor == pytest.approx(computed / cost.tokens if cost.tokens else 1)


@given(of=rows(), batch_size=BATCH_SIZES, multiple_of=MULTIPLES)
def test_flattening_costs_what_really_flattening_makes(of, batch_size, multiple_of):
    lengths, order = of
    plan = waste.shuffled(order, batch_size)
    made = [quadrat.flatten(tokens(lengths, batch), multiple_of=multiple_of) for batch in batches(plan)]
    totals = [batch.values.size for batch in made]
    cost = waste.flattened("name", lengths, plan, multiple_of=multiple_of)
    assert cost == waste.Cost(
        "name",
        batches=len(made),
        largest_batch=max(totals),
        tokens=sum(int(batch.values.sum()) for batch in made),
        computed=sum(totals),
        scores=sum(int((np.diff(batch.cu_seqlens).astype(int) ** 2).sum()) for batch in made),
        masked_scores=sum(total**2 for total in totals),
    )


@given(
    lengths=LENGTHS,
    batch_size=BATCH_SIZES,
    more=st.integers(0, 9),
    max_tokens=st.integers(1, 200),
    multiple_of=MULTIPLES,
    seed=st.integers(0, 9),
)
def test_every_way_has_the_same_tokens(*, lengths, batch_size, more, max_tokens, multiple_of, seed):
    options = {"batch_size": batch_size, "max_length": int(lengths.max()) + more, "max_tokens": max_tokens}
    costs = waste.every_way(lengths, **options, multiple_of=multiple_of, seed=seed)
    fixed, dynamic, grouped, budget, flat = costs
    assert {cost.tokens for cost in costs} == {int(lengths.sum())}
    assert fixed.batches == dynamic.batches == grouped.batches == flat.batches == -(-len(lengths) // batch_size)
    assert fixed.computed == len(lengths) * -(-options["max_length"] // multiple_of) * multiple_of
    assert fixed.computed >= max(dynamic.computed, grouped.computed, budget.computed)
    assert all(cost.padding >= 0 and cost.factor >= 1 and cost.scores >= flat.scores for cost in costs)
    assert waste.every_way(lengths, **options, multiple_of=multiple_of, seed=seed) == costs
    if multiple_of == 1:
        assert flat.padding == 0
        assert flat.computed <= min(dynamic.computed, grouped.computed, budget.computed)


@given(lengths=LENGTHS, batch_size=BATCH_SIZES, multiple_of=MULTIPLES)
def test_the_default_budget_has_room_for_every_row(lengths, batch_size, multiple_of):
    budget = waste.default_max_tokens(lengths, batch_size, multiple_of)
    assert budget >= quadrat.pad(tokens(lengths, [int(lengths.argmax())]), multiple_of=multiple_of).size
    assert budget >= batch_size * lengths.mean() - 32


def test_the_default_budget_is_a_batch_of_mean_length():
    assert waste.default_max_tokens(np.array([100, 300]), 32) == 6400


@given(lengths=st.lists(st.integers(0, 10**6), min_size=1, max_size=200), at_most=st.integers(1, 30))
def test_the_histogram_counts_every_row_once(lengths, at_most):
    bins = waste.histogram(np.array(lengths), at_most=at_most)
    widths = {one.last - one.first + 1 for one in bins if one.last is not None}
    assert len(widths) == 1
    assert widths.pop().bit_count() == 1
    assert len([one for one in bins if one.last is not None]) <= at_most
    assert all(one.last is not None for one in bins[:-1])
    assert all(one.last + 1 == after.first for one, after in itertools.pairwise(bins))
    for one in bins:
        last = np.inf if one.last is None else one.last
        assert one.rows == sum(one.first <= length <= last for length in lengths)
    assert sum(one.rows for one in bins) == len(lengths)


def test_one_long_row_does_not_squeeze_the_histogram():
    bins = waste.histogram(np.array([*range(64)] * 10 + [10_000]))
    assert [str(one) for one in bins] == [*(f"{first}\N{EN DASH}{first + 3}" for first in range(0, 64, 4)), "64+"]
    assert [one.rows for one in bins] == [40] * 16 + [1]
    assert str(waste.histogram(np.array([7]))[0]) == "7"


@given(lengths=LENGTHS, max_length=st.integers(1, 50))
def test_the_summary_says_what_it_says(lengths, max_length):
    found = waste.summarise(lengths, max_length)
    rows = sorted(lengths.tolist())
    assert (found.rows, found.tokens, found.longest) == (len(rows), sum(rows), rows[-1])
    assert found.mean == pytest.approx(sum(rows) / len(rows))
    assert sum(length <= found.p95 for length in rows) >= 0.95 * len(rows)
    assert found.p95 in rows
    assert sum(length < found.p95 for length in rows) < 0.95 * len(rows)
    assert sum(length <= found.median for length in rows) >= len(rows) / 2 <= sum(row >= found.median for row in rows)
    assert found.truncated == sum(length > max_length for length in rows)
    assert found.kept == sum(min(length, max_length) for length in rows)


def costs_of(dynamic, grouped, fixed=0.9):
    """Costs of 1,000,000 tokens with these shares of padding."""
    shares = {waste.FIXED: fixed, waste.DYNAMIC: dynamic, waste.GROUPED: grouped, waste.BUDGET: 0, waste.FLATTENED: 0}
    cost = waste.Cost("", batches=100, largest_batch=0, tokens=1_000_000, computed=0, scores=0)
    return [dataclasses.replace(cost, name=name, computed=round(1e6 / (1 - share))) for name, share in shares.items()]


@pytest.mark.parametrize(
    ("dynamic", "grouped", "choice", "setting"),
    [
        (LITTLE_PADDING - 0.001, 0, "Pad to the longest row of each batch: only 4.9%", "DataCollatorWithPadding"),
        (LITTLE_PADDING + 0.001, 0.03, "Group rows by length: padding falls from 5.1% to 3.0%", grouping()),
        (0.72, ENOUGH_GROUPED - 0.001, "Group rows by length: padding falls from 72.0% to 9.9%", grouping()),
        (0.72, ENOUGH_GROUPED + 0.001, "Flatten the batches: rows grouped by length still leave 10.1%", "Flattening"),
    ],
)
def test_advice_follows_the_numbers(dynamic, grouped, choice, setting):
    said = advise(costs_of(dynamic, grouped))
    assert 2 <= len(said) <= 3
    assert said[0].startswith(choice)
    assert setting in said[1]


def test_advice_warns_of_one_length_only_where_it_costs():
    assert "10.0 times" in advise(costs_of(0.01, 0.01))[-1]
    assert len(advise(costs_of(0.01, 0.01, fixed=0.02))) == 2


def test_the_setting_that_groups_is_one_of_the_installed_transformers():
    from transformers import TrainingArguments

    name = grouping().removeprefix("TrainingArguments(").partition("=")[0]
    assert name in {field.name for field in dataclasses.fields(TrainingArguments)}


@pytest.mark.parametrize(
    ("factor", "said"), [(1, "1.00"), (9.994, "9.99"), (10, "10.0"), (962.79, "963"), (4980.2, "4,980")]
)
def test_factors_have_as_many_decimals_as_say_something(factor, said):
    assert waste.times(factor) == said


TEXTS = [" ".join(["several", "words", "of", "text"][: 1 + n % 4] * (1 + n % 23)) for n in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text files, saved data sets and a saved tokenizer, with the same texts in them."""
    folder = tmp_path_factory.mktemp("data")
    tokenizer = train_tokenizer(TEXTS, max_length=40)
    tokenizer.save_pretrained(folder / "tokenizer")
    ids = tokenizer(TEXTS, truncation=False, verbose=False)["input_ids"]
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"body": text, "n": 1}) for text in TEXTS))
    texts = datasets.Dataset.from_dict({"text": TEXTS, "score": [0.5] * len(TEXTS)})
    texts.save_to_disk(folder / "texts")
    rows = datasets.Dataset.from_dict({"input_ids": ids, "label": [0] * len(ids)})
    datasets.DatasetDict({"train": rows, "test": rows.select(range(9))}).save_to_disk(folder / "rows")
    rows.cast_column("input_ids", datasets.LargeList(datasets.Value("int32"))).save_to_disk(folder / "large")
    datasets.Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4}).cast_column(
        "input_ids", datasets.List(datasets.Value("int64"), length=3)
    ).save_to_disk(folder / "fixed")
    return folder


def run(*arguments, folder=None):
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "quadrat", "waste", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"},
        timeout=300,
        check=False,
    )


def ways(said):
    return {cost["name"]: cost for cost in json.loads(said)["ways"]}


def lengths_of(folder, *, max_length):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = tokenizer(TEXTS, truncation=max_length is not None, max_length=max_length, verbose=False)["input_ids"]
    return np.array([len(row) for row in rows])


def test_a_text_file(folder):
    done = run("texts.txt", "--batch-size", 8, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "texts.txt: 200 texts" in done.stdout
    assert "entries trained on them; give your own with --tokenizer" in done.stdout
    assert "None is truncated." in done.stdout
    for name in (waste.FIXED, waste.DYNAMIC, waste.GROUPED, waste.BUDGET, waste.FLATTENED):
        assert re.search(rf"^ *{name}.* \d+\.\d%", done.stdout, re.MULTILINE), name
    assert "quadrat.DataCollator" in done.stdout


def test_a_json_file_with_the_users_own_tokenizer(folder):
    options = ("--field", "body", "--tokenizer", "tokenizer", "--batch-size", 8, "--max-tokens", 128, "--seed", 3)
    done = run("texts.jsonl", *options, "--pad-to-multiple-of", 8, "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    lengths = lengths_of(folder, max_length=40)
    assert found["max_length"] == 40
    assert found["lengths"]["truncated"] == (lengths_of(folder, max_length=None) > 40).sum() > 0
    assert found["lengths"]["kept"] == lengths.sum()
    costs = waste.every_way(lengths, batch_size=8, max_length=40, max_tokens=128, multiple_of=8, seed=3)
    assert found["ways"] == [
        {**dataclasses.asdict(cost), "padding": cost.padding, "factor": cost.factor} for cost in costs
    ]
    plain = waste.every_way(lengths, batch_size=8, max_length=40, max_tokens=128, seed=3)
    added = [cost.computed - other.computed for cost, other in zip(costs, plain, strict=True)]
    assert list(found["added_by_rounding"].values()) == added


def test_a_saved_data_set_and_a_picture(folder):
    pytest.importorskip("matplotlib", reason="it draws the picture")
    done = run("rows", "--split", "train", "--png", "picture.png", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "200 rows" in done.stdout
    assert "the lists in column 'input_ids'" in done.stdout
    assert "picture.png written" in done.stdout
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def here(capsys, *arguments):
    """The command in this process: status, standard output and standard error."""
    status = main(["waste", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_data_sets_files_and_columns_agree(folder, capsys):
    tokenizer = ("--tokenizer", folder / "tokenizer", "--max-length", 64, "--json")
    found = {}
    for name, options in {
        "texts.txt": (),
        "texts.jsonl": ("--field", "body"),
        "texts": (),
        "rows": ("--split", "train"),
        "large": (),
    }.items():
        status, said, errors = here(capsys, folder / name, *options, *tokenizer)
        assert (status, errors) == (0, "")
        found[name] = ways(said)
    assert found["texts.txt"][waste.FLATTENED]["tokens"] == lengths_of(folder, max_length=64).sum()
    assert all(costs == found["texts.txt"] for costs in found.values())


def test_rows_of_one_length(folder, capsys):
    status, said, _ = here(capsys, folder / "fixed", "--json")
    assert status == 0
    assert {cost["computed"] for cost in ways(said).values()} == {12}


def test_texts_in_pieces_are_all_counted(folder, capsys, monkeypatch):
    arguments = (folder / "texts", "--tokenizer", folder / "tokenizer", "--json")
    before = here(capsys, *arguments)
    monkeypatch.setattr(source, "_CHUNK", 7)
    assert here(capsys, *arguments) == before
    rows = (folder / "rows", "--split", "train", "--json")
    in_pieces = here(capsys, *rows)
    monkeypatch.undo()
    assert here(capsys, *rows) == in_pieces


def test_an_empty_text_is_a_row(tmp_path, folder, capsys):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": ""}\n\n{"text": "several words"}\n')
    status, said, _ = here(capsys, path, "--tokenizer", folder / "tokenizer", "--json")
    assert status == 0
    assert json.loads(said)["lengths"] | {"rows": 2, "tokens": 6} == json.loads(said)["lengths"]


def test_rows_without_a_token(tmp_path, capsys):
    nothing = datasets.Dataset.from_dict(
        {"input_ids": [[], []]}, features=datasets.Features({"input_ids": datasets.List(datasets.Value("int64"))})
    )
    nothing.save_to_disk(tmp_path / "nothing")
    status, said, _ = here(capsys, tmp_path / "nothing")
    assert status == 0
    assert "2 rows, 0 tokens" in said


def test_a_tokenizer_without_a_limit_truncates_nothing(tmp_path, folder, capsys):
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(tmp_path)
    found = json.loads(here(capsys, folder / "texts.txt", "--tokenizer", tmp_path, "--json")[1])
    assert found["max_length"] == found["lengths"]["longest"] > 40


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


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda folder: folder / "none.txt", (), "none.txt: no such file or folder"),
        (written("a.txt", b""), (), "a.txt: the file has no text"),
        (written("a.txt", b"\n \n"), (), "a.txt: the file has no text"),
        (written("a.txt", b"good\nb\xe4d\n"), (), "a.txt, line 2: not UTF-8"),
        (written("a.txt", b"text"), ("--field", "body"), "--field is for .jsonl files"),
        (written("a.txt", b"text"), ("--split", "train"), "--split is for a folder"),
        (written("a.csv", b"text"), (), "a.csv: expected a file that ends in .txt or .jsonl"),
        (written("a.jsonl", b'{"text": "a"}\n{"body": "b"}'), (), 'a.jsonl, line 2: expected an object with a string'),
        (written("a.jsonl", b'{"text": 3}'), (), 'a.jsonl, line 1: expected an object with a string "text"'),
        (written("a.jsonl", b'{"text": "a"}'), ("--field", "body"), 'line 1: expected an object with a string "body"'),
        (written("a.jsonl", b'{"text": "a"'), (), "a.jsonl, line 1: not JSON"),
        (written("a.jsonl", b"[" * 200_000), (), "a.jsonl, line 1: not JSON"),
        (lambda folder: folder, (), "not a folder that save_to_disk wrote"),
        (saved({"words": ["a"]}), (), "no column 'text'; choose one with --field: words"),
        (saved({"text": ["a"]}), ("--field", "body"), "no column 'body'; choose one with --field: text"),
        (saved({"text": ["a"]}), ("--split", "train"), "--split is for a DatasetDict"),
        (saved({"text": ["a", None]}), (), "row 1: column 'text' is null"),
        (saved({"input_ids": [[1], [2, 3], None]}), (), "row 2: column 'input_ids' is null"),
        (saved({"input_ids": [[0.5]]}), (), "column 'input_ids' holds list<"),
        (saved({"text": [3]}), (), "column 'text' holds int64; expected text"),
        (saved({"text": []}, num_shards=1), (), "the data set has no rows"),
        (saved({"text": []}), (), "the data set, or one of its parts, has no rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_and_status_2(make, options, message, tmp_path, capsys):
    status, said, errors = here(capsys, make(tmp_path), *options)
    assert (status, said) == (2, "")
    assert errors.startswith("quadrat waste: ")
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("rows", (), "a DatasetDict; choose one of its parts with --split: train, test"),
        ("rows", ("--split", "dev"), "no split 'dev'; there are: train, test"),
        ("texts.txt", ("--tokenizer", "nowhere/at-all"), "no tokenizer could be loaded from 'nowhere/at-all'"),
        ("texts.txt", ("--tokenizer", os.curdir), "no tokenizer could be loaded from '.'"),
        ("fixed", ("--png", "no/such/folder.png"), "folder.png: there is no folder 'no/such'"),
        ("fixed", ("--png", os.curdir), "a folder; expected the name of a file"),
        ("fixed", ("--png", "picture.docx"), "picture.docx"),
    ],
)
def test_what_was_asked_wrongly_is_one_line_and_status_2(data, options, message, folder, capsys):
    status, _, errors = here(capsys, folder / data, *options)
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_a_picture_is_named_as_asked(folder, tmp_path, capsys):
    path = tmp_path / "picture"
    status, said, _ = here(capsys, folder / "fixed", "--png", path)
    assert status == 0
    assert f"{path} written." in said.replace("\n", "")
    assert [file.name for file in tmp_path.iterdir()] == ["picture"]
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--batch-size", "0", "expected a number from 1 to 1,000,000,000, got 0"),
        ("--max-tokens", str(10**30), "expected a number from 1 to 1,000,000,000, got"),
        ("--max-length", "none", "expected a whole number, got 'none'"),
        ("--seed", "-1", "expected a number of at least 0, got -1"),
    ],
)
def test_numbers_are_checked(option, value, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["waste", "texts.txt", option, value])
    assert exit_.value.code == 2
    assert f"argument {option}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--batch-size", "--max-length", "--max-tokens", "--pad-to-multiple-of"])
def test_the_largest_numbers_overflow_nothing(option, folder, capsys):
    status, said, errors = here(capsys, folder / "fixed", option, 10**9, "--json")
    assert (status, errors) == (0, "")
    assert all(cost["tokens"] <= cost["computed"] for cost in ways(said).values())


@pytest.mark.parametrize("arguments", [("info",), ("waste", "fixed"), ("waste", "fixed", "--json")])
def test_a_reader_that_goes_away_is_no_error(arguments, folder):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "quadrat", *arguments],
            stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=300, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


def test_an_encoding_without_blocks_is_no_error(folder):
    done = subprocess.run(
        [sys.executable, "-m", "quadrat", "waste", "fixed"],
        capture_output=True, cwd=folder, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"padding-free" in done.stdout


def test_an_interrupt_is_one_line(folder, capsys, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("quadrat.bench.waste_report.examine", interrupted)
    assert here(capsys, folder / "fixed") == (130, "", "quadrat waste: interrupted\n")


@pytest.mark.parametrize(
    ("missing", "options", "extra"),
    [("rich", (), "cli"), ("matplotlib", ("--png", "a.png"), "cli"), ("datasets", ("--json",), "datasets")],
)
def test_says_what_is_not_installed(*, missing, options, extra, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    status, said, errors = here(capsys, folder / "fixed", *options)
    assert (status, said) == (2, "")
    assert f'needs {missing}: pip install "quadrat[{extra}]"' in errors


@pytest.mark.parametrize("missing", ["rich", "transformers"])
def test_json_of_rows_of_tokens_needs_little(missing, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    assert here(capsys, folder / "fixed", "--json")[0] == 0
