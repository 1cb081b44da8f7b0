"""quadrat.stats and show_config: what collators made, and what quadrat found when it was built and imported."""

import ast
import contextlib
import functools
import importlib.metadata
import logging
import multiprocessing
import pathlib
import platform
import re

import numpy as np
import pytest
import torch

import quadrat
from quadrat import _core
from quadrat.config import show_config
from quadrat.installed import config as module
from quadrat.installed.config import RANGES
from quadrat.support import counts
from support.command import here, run
from support.mappings import Wrapped
from support.strategies import make_tokenizer
from support.threads import together

ROWS = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
MIXED = [{"input_ids": [2, 3], "scores": [1, 0.5]}]


@pytest.fixture(autouse=True)
def fresh():
    quadrat.stats(reset=True)
    yield
    quadrat.stats(reset=True)


def test_planned_remembered_and_fallen_back():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    for _ in range(5):
        collator(ROWS)
    for _ in range(3):
        collator(MIXED)
    stats = quadrat.stats()
    assert stats[:3] == (5, 4, 3)
    assert list(stats.causes.values()) == [3]
    (cause,) = stats.causes
    assert cause.startswith("DataCollatorWithPadding: fell back to transformers: column 'scores'")
    assert cause.endswith("; give all rows of the column one element type, for example floats alone")
    assert quadrat.stats(reset=True) == stats
    assert quadrat.stats() == (0, 0, 0, {}, 0)


def test_each_batch_of_tokenizer_pad_counts():
    tokenizer = make_tokenizer()
    for _ in range(4):
        quadrat.tokenizers.tokenizer_pad(tokenizer, ROWS, return_tensors="pt")
    assert quadrat.stats()[:2] == (4, 3)


def test_errors_are_no_batches():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    with pytest.raises(ValueError, match="position 0"):
        collator([{"input_ids": ["a"]}])
    assert quadrat.stats() == (0, 0, 0, {}, 0)


def test_padding_free_rows_that_are_refused_are_not_counted():
    collator = quadrat.DataCollatorForLanguageModeling(make_tokenizer(), mlm=False, padding_free=True)
    with pytest.raises(ValueError, match=r"not a list of plain mappings .*; give dicts with the same keys"):
        collator([Wrapped(row) for row in ROWS])
    assert (quadrat.stats().compiled, quadrat.stats().fell_back) == (0, 0)


def test_the_first_of_a_kind_is_a_warning(caplog):
    with caplog.at_level(logging.DEBUG, "quadrat"):
        for _ in range(2):
            collator = quadrat.DataCollatorWithPadding(make_tokenizer())
            for _ in range(3):
                collator(MIXED)
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.DEBUG]
    assert all("give all rows of the column one element type" in text for text in caplog.messages)


# Reasons that users can do nothing about.
WITHOUT_REMEDY = {
    "packed rows have other columns",  # the rows are taken apart, and then joined
    "packed rows have no number each",
    "transformers 4.x warns about padding with a fast tokenizer first",  # once
    "a vocabulary of that size is drawn from in another way",
    "the padding options are refused",  # by an error of the reference, which follows
}


def test_reasons_to_fall_back_have_remedies():
    reasons = set()
    for path in pathlib.Path(quadrat.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = {"FallBack", "AlwaysFallBack", "or_fall_back"}
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names and len(node.args) == 1:
                (reason,) = node.args
                if isinstance(reason, (ast.Constant, ast.JoinedStr)):
                    reasons.add(ast.unparse(reason).strip("f'\""))
    assert reasons == WITHOUT_REMEDY


@pytest.mark.parametrize("rows", [[[], []], [{"input_ids": []}] * 2])
def test_batches_of_empty_rows_say_so(rows, caplog):
    with caplog.at_level(logging.WARNING, "quadrat"):
        quadrat.DataCollatorForLanguageModeling(make_tokenizer(), mlm=False)(rows)
    assert ["has empty rows only" in text or "all rows are empty" in text for text in caplog.messages] == [True]


def test_what_costs_nothing_is_no_warning(caplog):
    with caplog.at_level(logging.DEBUG, "quadrat"):
        quadrat.DefaultDataCollator()([{"spectrum": np.ones((3, 2), np.complex64)} for _ in range(2)])
    assert quadrat.stats().fell_back == 1
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_causes_are_bounded(monkeypatch):
    monkeypatch.setattr(counts, "_MOST_CAUSES", 3)
    for number in range(10):
        counts.count_fallback(f"kind {number}", f"cause {number}")
    assert sum(quadrat.stats().causes.values()) == 10
    assert len(quadrat.stats().causes) == 4


def test_threads():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    collator(ROWS)
    together(*[lambda: [collator(ROWS) for _ in range(200)]] * 4)
    assert quadrat.stats()[:2] == (801, 800)


def test_a_copied_process_begins_at_zero():
    quadrat.DataCollatorWithFlattening()(ROWS)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=lambda: queue.put(quadrat.stats()))
    process.start()
    assert queue.get() == (0, 0, 0, {}, 0)
    process.join()
    assert quadrat.stats().compiled == 1


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    return functools.partial(run, folder=tmp_path)


def test_says_what_it_is_and_what_it_found():
    config = show_config()
    assert all(type(text) is str and text for pair in config.items() for text in pair)
    assert config["quadrat"] == quadrat.__version__ == importlib.metadata.version("quadrat")
    assert platform.python_version() in config["python"]
    assert config["compiler"] == _core.compiler()
    assert config["compiler"].split()[0] in ("gcc", "clang", "msvc")
    assert config["SIMD level"] in ("x86-64", "x86-64-v3", "x86-64-v4", "portable")
    for name in ("numpy", "torch", "transformers"):
        assert config[name] == importlib.metadata.version(name)
    has_exchange = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    assert config["torch exchange"] == ("DLPack exchange API" if has_exchange else "data_ptr()")


def test_the_simd_level_is_one_this_processor_has():
    level = show_config()["SIMD level"]
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(set(line.split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        pytest.skip("no /proc/cpuinfo with flags")
    if level != "portable":
        best = "x86-64-v4" if "avx512vl" in flags else "x86-64-v3" if "avx2" in flags else "x86-64"
        assert level == best


def test_says_what_is_not_installed(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    config = show_config()
    assert [config[name] for name in ("numpy", "torch", "transformers")] == ["not installed"] * 3


def test_says_which_versions_are_untested(monkeypatch):
    installed = {"torch": "99.0.1", "numpy": "1.25.2", "transformers": "not installed"}
    monkeypatch.setattr(module, "version", lambda name: installed.get(name, "not installed"))
    oldest, newest = RANGES["torch"]
    assert show_config()["versions"] == f"not tested with torch 99.0.1 (tested: {oldest} to {newest})"
    installed["torch"] = "not installed"
    assert "numpy 1.25.2" not in show_config()["versions"]
    assert show_config()["versions"] == "all versions tested"


def test_info_prints_the_configuration(command):
    done = command("info")
    assert (done.returncode, done.stderr) == (0, "")
    config = show_config()
    config["torch exchange"] = "torch not loaded yet"  # it loads later, with transformers
    lines = done.stdout.splitlines()
    assert [line[:14].strip() for line in lines[len(config) :]] == ["falls back"]
    assert "nothing: all code that quadrat replaces is known" in lines[-1]
    lines = lines[: len(config)]
    places = set()
    for line, (name, value) in zip(lines, config.items(), strict=True):
        assert line.startswith(name)
        assert line[len(name) :].strip() == value
        places.add(len(line) - len(value))
    assert len(places) == 1, "the values stand in one column"


def test_info_says_what_falls_back(capsys, monkeypatch):
    from quadrat.installed import imitated

    monkeypatch.setattr(imitated, "changed", lambda row: "tolist" if row.name == "DataCollatorForSeq2Seq" else None)
    assert re.search(
        r"^falls back +DataCollatorForSeq2Seq \(tolist is unknown\)$", here(capsys, "info")[1], re.MULTILINE
    )
    monkeypatch.setattr(imitated, "changed", None)
    assert "unknown: TypeError" in here(capsys, "info")[1]


def test_pauses_that_overlap():
    """Each batch that is made in one of them, or in both, is left out once."""
    collator, features = quadrat.DataCollatorWithFlattening(), [{"input_ids": [5, 6]}, {"input_ids": [7]}]
    collator(features)
    before = quadrat.stats(reset=True)._replace(compiled=0, remembered=0, fell_back=0, causes={})
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        for pause in (first, second):
            pause.enter_context(counts.uncounted())
            collator(features)
        assert quadrat.stats() == before
        first.close()
        collator(features)
        quadrat.stats(reset=True)
        collator(features)
    assert quadrat.stats() == before
    collator(features)
    assert quadrat.stats() == before._replace(compiled=1, remembered=1)
