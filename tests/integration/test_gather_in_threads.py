"""Containers that several threads, and signal handlers at any moment, use at a time."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from support.threads import together

pytestmark = pytest.mark.slow
THREADS, STEPS, ROWS = 4, 60, 64


def look(container: Any, name: str) -> Any:
    value = getattr(container, name)
    return value() if callable(value) else value


def in_each_thread(call: Any) -> None:
    together(*[lambda thread=thread: call(thread) for thread in range(THREADS)])


def batch(thread: int, step: int, transposed: bool) -> Any:
    tensor = torch.full((48, ROWS, 32), float(1000 * thread + step)).permute(1, 2, 0)
    return tensor if transposed else tensor.contiguous(), {"labels": torch.full((ROWS, 32), 1000 * thread + step)}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("between", ["", "to_cpu_and_numpy", "tensors", "get_arrays"])
def test_threads_that_add(between, transposed):
    container, steps = quadrat.evaluation.EvalLoopContainer(), STEPS // 3 if between else STEPS

    def add(thread):
        for step in range(steps):
            container.add(batch(thread, step, transposed))
            if between and step % 7 == thread:
                look(container, between)

    in_each_thread(add)
    predictions, named = container.get_arrays()
    labels = named["labels"]
    assert (predictions == labels[..., None]).all(), "predictions and labels do not go together"
    blocks = labels.reshape(THREADS * steps, ROWS, 32)
    assert (blocks == blocks[:, :1, :1]).all(), "batches are mixed"
    order = blocks[:, 0, 0].tolist()
    for thread in range(THREADS):
        assert [number % 1000 for number in order if number // 1000 == thread] == list(range(steps)), "another order"


def test_threads_that_add_and_keep_rows():
    container = quadrat.evaluation.EvalLoopContainer(ragged=True)

    def add(thread):
        for step in range(20):
            container.add(batch(thread, step, True))
            if step % 5 == thread:
                kept = container.arrays[0].values
                before = kept.copy()
                container.add(batch(thread + 10, step, False))
                assert (kept == before).all(), "what was handed out has changed"

    in_each_thread(add)
    predictions, named = container.get_arrays()
    labels = named["labels"].values
    assert len(predictions) == THREADS * 24 * ROWS
    assert (predictions.values == labels[:, None]).all()
    blocks = labels.reshape(-1, ROWS * 32)
    assert (blocks == blocks[:, :1]).all()


@pytest.mark.parametrize("odd", [False, True])
def test_threads_that_add_to_a_gatherer(odd):
    steps, rows = 40, 32
    gatherer = quadrat.evaluation.DistributedTensorGatherer(2, THREADS * steps * rows)

    def add(thread):
        for step in range(steps):
            number = 1000 * thread + step
            wide = np.full((24, rows), number, np.int64).T
            gatherer.add_arrays((wide.astype(float) if odd and step == 3 else wide, np.full(rows, number)))

    in_each_thread(add)
    wide, narrow = gatherer.finalize()
    assert (wide == narrow[:, None]).all()
    blocks = narrow.reshape(2, -1, rows // 2)
    assert (blocks == blocks[:1, :, :1]).all()
    numbers = [1000 * thread + step for thread in range(THREADS) for step in range(steps)]
    assert sorted(blocks[0, :, 0].tolist()) == numbers


def test_a_container_blocks_nobody_else():
    """The lock is one container's, and free after an error."""
    container = quadrat.evaluation.EvalLoopContainer()
    container.add(torch.ones(2, 3))
    with pytest.raises(AssertionError):
        container.add([torch.ones(2, 3)])
    thread = threading.Thread(target=container.add, args=(torch.ones(2, 4),))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert container.get_arrays().shape == (4, 4)
