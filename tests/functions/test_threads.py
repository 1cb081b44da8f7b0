"""Functions in sixteen threads at once, on lists, tables and generators that they share. Runs without transformers."""

import itertools
import random
import sys
import sysconfig
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import quadrat
from quadrat.input.rows import Rows, table_of_arrow
from support.isolated import python
from support.threads import THREADS, everywhere

ROWS = [[number] * (3 + number % 7) for number in range(48)]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
def test_the_gil_stays_off():
    output = python("-c", "import quadrat, quadrat._testing, sys; print(sys._is_gil_enabled())").strip()
    assert output == str(sys._is_gil_enabled())


@pytest.mark.parametrize("library", ["np", "pt"])
def test_shared_rows(library):
    expected = quadrat.pad(ROWS, return_tensors=library).tolist()
    for results in everywhere(lambda _: [quadrat.pad(ROWS, return_tensors=library).tolist() for _ in range(20)]):
        assert results == [expected] * 20


def test_a_shared_table():
    source = table_of_arrow(pa.table({"input_ids": ROWS, "labels": list(range(len(ROWS)))}))

    def read(number: int) -> Any:
        chosen = random.Random(number).sample(range(len(ROWS)), 20)
        rows = Rows(source, chosen)
        return [(row["input_ids"], row["labels"]) for row in rows] == [(ROWS[at], at) for at in chosen]

    assert everywhere(lambda number: all(read(number + at) for at in range(20))) == [True] * THREADS


def test_a_sampler_of_epochs_that_others_set():
    """Each iteration is one epoch's, and each state one that an iteration was in."""
    sampler = quadrat.TokenBudgetBatchSampler([len(row) for row in ROWS], 64, seed=3)
    expected = [sampler.batches(epoch).to_lists() for epoch in range(4)]
    longest = max(map(len, expected))

    def work(number: int) -> bool:
        checks = []
        for at in range(20):
            if number % 4 == 0:
                sampler.set_epoch((number + at) % 4)
            state = sampler.state_dict()
            checks.append(list(sampler) in expected and state["epoch"] < 4 and state["batch"] <= longest)
        return all(checks)

    assert everywhere(work) == [True] * THREADS


def test_rows_that_others_measure():
    rows: list[Any] = [{"input_ids": list(row)} for row in ROWS]
    stop = threading.Event()

    def work(number: int) -> None:
        if number % 2:
            while not stop.is_set():
                rows.append(rows.pop(0))
                rows[0]["input_ids"] = [number] * 4
            return
        try:
            for _ in range(25):
                try:
                    assert len(quadrat.lengths(rows)) >= 1
                except (ValueError, IndexError, TypeError):
                    assert len(rows) >= len(ROWS) - THREADS
        finally:
            stop.set()

    everywhere(work)


@pytest.mark.parametrize("library", ["np", "pt"])
def test_no_two_threads_draw_the_same(library):
    """All draw from one generator, one after the other: together what one thread draws alone."""
    ids = np.arange(1000, 1400).reshape(4, 100)

    def draw(generator: Any) -> Any:
        inputs = ids.copy() if library == "np" else torch.from_numpy(ids.copy())
        options = {"mask_token_id": 5, "vocab_size": 2000, "special_ids": (), "generator": generator}
        return quadrat.mask_tokens(inputs, **options)[0].tolist()

    def new() -> Any:
        return np.random.default_rng(7) if library == "np" else torch.Generator().manual_seed(7)

    alone, shared = new(), new()
    expected = [draw(alone) for _ in range(4 * THREADS)]
    draws = everywhere(lambda _: [draw(shared) for _ in range(4)])
    assert sorted(itertools.chain(*draws)) == sorted(expected)
