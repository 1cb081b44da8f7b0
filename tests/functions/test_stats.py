"""`quadrat.stats`: what collators made, and the log of what they did not."""

import logging
import multiprocessing
import threading
from types import MappingProxyType

import numpy as np
import pytest

import quadrat
from quadrat.support import counts
from support.strategies import make_tokenizer

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
    assert "column 'scores'" in next(iter(stats.causes))
    assert quadrat.stats(reset=True) == stats
    assert quadrat.stats() == (0, 0, 0, {})


def test_each_batch_of_tokenizer_pad_counts():
    tokenizer = make_tokenizer()
    for _ in range(4):
        quadrat.tokenizers.tokenizer_pad(tokenizer, ROWS, return_tensors="pt")
    assert quadrat.stats()[:2] == (4, 3)


def test_errors_are_no_batches():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    with pytest.raises(ValueError, match="position 0"):
        collator([{"input_ids": ["a"]}])
    assert quadrat.stats() == (0, 0, 0, {})


def test_flattening_without_a_plan_is_counted_once():
    collator = quadrat.DataCollatorForLanguageModeling(make_tokenizer(), mlm=False, padding_free=True)
    collator([MappingProxyType(row) for row in ROWS])
    assert (quadrat.stats().compiled, quadrat.stats().fell_back) == (0, 1)


def test_the_first_of_a_kind_is_a_warning(caplog):
    with caplog.at_level(logging.DEBUG, "quadrat"):
        for _ in range(2):
            collator = quadrat.DataCollatorWithPadding(make_tokenizer())
            for _ in range(3):
                collator(MIXED)
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.DEBUG]
    assert all("give all rows of the column one element type" in text for text in caplog.messages)


def test_what_costs_nothing_is_no_warning(caplog):
    with caplog.at_level(logging.DEBUG, "quadrat"):
        quadrat.DefaultDataCollator()([{"pixels": np.ones((3, 2, 2))} for _ in range(2)])
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
    threads = [threading.Thread(target=lambda: [collator(ROWS) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quadrat.stats()[:2] == (801, 800)


def in_child(queue):
    queue.put(quadrat.stats())


def test_a_copied_process_begins_at_zero():
    quadrat.DataCollatorWithFlattening()(ROWS)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=in_child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == (0, 0, 0, {})
    process.join()
    assert quadrat.stats().compiled == 1
