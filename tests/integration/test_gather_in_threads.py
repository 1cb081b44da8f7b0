"""Containers that several threads, and signal handlers at any moment, use at a time."""

import signal
import threading

import pytest
import torch

import quadrat
from support.isolated import python

pytestmark = pytest.mark.slow

LOOKED_AT = """
import sys
import torch
import quadrat
from support.threads import together

sys.setswitchinterval(1e-5)
expected = torch.cat([torch.full((40, 64, 16), float(number)) for number in range(40)])
for name in ("tensors", "arrays", "get_arrays"):
    for _ in range(5):
        container = quadrat.EvalLoopContainer()
        for number in range(40):
            container.add(torch.full((40, 64, 16), float(number)))
            if name == "arrays":
                container.to_cpu_and_numpy()

        def look():
            value = getattr(container, name)
            return value() if callable(value) else value

        seen = together(*[look] * 4)
        assert len(seen) == 4
        assert all(value is seen[0] for value in seen)
        assert torch.equal(torch.as_tensor(seen[0]), expected)
"""


def test_threads_that_look():
    python("-c", LOOKED_AT)


ADDED = """
import sys
import torch
import quadrat
from support.threads import together

sys.setswitchinterval(1e-5)
THREADS, STEPS = 4, 60


def batch(thread, step, transposed):
    tensor = torch.full((64, 32, 48), float(1000 * thread + step))
    if transposed:
        tensor = tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        assert not tensor.is_contiguous()
    return tensor, {"labels": torch.full((64, 32), 1000 * thread + step)}


def whole(predictions, labels, threads=THREADS, steps=STEPS):
    predictions, labels = torch.as_tensor(predictions), torch.as_tensor(labels)
    assert predictions.shape[0] == labels.shape[0] == threads * steps * 64, (predictions.shape, labels.shape)
    blocks = labels.view(-1, 64, 32)
    assert (blocks == blocks[:, :1, :1]).all(), "batches are mixed"
    assert (predictions == labels[..., None]).all(), "predictions and labels do not go together"
    order = blocks[:, 0, 0].tolist()
    for thread in range(threads):
        own = [number % 1000 for number in order if number // 1000 == thread]
        assert own == list(range(steps)), "batches of a thread are in another order"


for transposed in (False, True):
    for between in ("", "to_cpu_and_numpy", "tensors", "get_arrays"):
        container = quadrat.EvalLoopContainer()

        def add(thread):
            for step in range(STEPS if not between else STEPS // 3):
                container.add(batch(thread, step, transposed))
                if between and step % 7 == thread:
                    value = getattr(container, between)
                    if callable(value):
                        value()

        together(*[lambda thread=thread: add(thread) for thread in range(THREADS)])
        predictions, labels = container.get_arrays()
        whole(predictions, labels["labels"], steps=STEPS if not between else STEPS // 3)

container = quadrat.EvalLoopContainer(ragged=True)


def add_and_look(thread):
    for step in range(20):
        container.add(batch(thread, step, True))
        if step % 5 == thread:
            kept = container.arrays
            before = kept[0].values.copy()
            container.add(batch(thread + 10, step, False))
            assert (kept[0].values == before).all(), "what was handed out has changed"


together(*[lambda thread=thread: add_and_look(thread) for thread in range(THREADS)])
predictions, labels = container.get_arrays()
assert len(predictions) == len(labels["labels"]) == THREADS * 24 * 64
assert (predictions.values == labels["labels"].values[:, None]).all()
assert (labels["labels"].values.reshape(-1, 64 * 32) == labels["labels"].values.reshape(-1, 64 * 32)[:, :1]).all()
"""


def test_threads_that_add():
    python("-c", ADDED)


STRETCHES = """
import sys
import numpy as np
import quadrat
from support.threads import together

sys.setswitchinterval(1e-5)
THREADS, STEPS, ROWS = 4, 40, 32
for odd in (False, True):
    gatherer = quadrat.evaluation.DistributedTensorGatherer(2, THREADS * STEPS * ROWS)

    def add(thread):
        for step in range(STEPS):
            number = 1000 * thread + step
            wide = np.full((24, ROWS), number, np.int64).T
            gatherer.add_arrays((wide.astype(float) if odd and step == 3 else wide, np.full(ROWS, number)))

    together(*[lambda thread=thread: add(thread) for thread in range(THREADS)])
    wide, narrow = gatherer.finalize()
    assert (wide == narrow[:, None]).all()
    blocks = narrow.reshape(2, -1, ROWS // 2)
    assert (blocks == blocks[:, :, :1]).all()
    assert (blocks[0] == blocks[1]).all()
    numbers = [1000 * thread + step for thread in range(THREADS) for step in range(STEPS)]
    assert sorted(blocks[0, :, 0].tolist()) == numbers
"""


def test_threads_that_add_to_a_gatherer():
    python("-c", STRETCHES)


SIGNALLED = """
import random, signal
import torch
import quadrat

random.seed(0)
container = quadrat.EvalLoopContainer()
handled = 0
inside = False


def handler(*_):
    global handled
    handled += 1
    if random.random() < 0.5 or not inside:
        container.add((torch.full((4, 7), -1.0), torch.full((4,), -1.0)))
    else:
        raise KeyboardInterrupt


signal.signal(signal.SIGALRM, handler)
added = interrupted = 0
while handled < 300:
    try:
        inside = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-4))
        for _ in range(5):
            container.add((torch.full((4, 3 + added % 5), float(added)), torch.full((4,), float(added))))
            added += 1
        container.to_cpu_and_numpy()
        inside = False
    except KeyboardInterrupt:
        inside = False
        interrupted += 1
        added += 1
signal.setitimer(signal.ITIMER_REAL, 0)
predictions, labels = container.get_arrays()
assert interrupted > 10
assert len(predictions) == len(labels)
assert (predictions[:, :3] == labels[:, None]).all()
blocks = labels.reshape(-1, 4)
assert (blocks == blocks[:, :1]).all()
numbers = blocks[:, 0][blocks[:, 0] >= 0].tolist()
assert numbers == sorted(set(numbers)), "a batch is there twice, or out of order"
assert added - interrupted <= len(numbers) <= added
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_signals():
    """Interrupts, and batches that a handler adds, at any moment."""
    python("-c", SIGNALLED)


def test_a_container_blocks_nobody_else():
    """The lock is one container's, and free after an error."""
    container = quadrat.EvalLoopContainer()
    container.add(torch.ones(2, 3))
    with pytest.raises(AssertionError):
        container.add([torch.ones(2, 3)])
    thread = threading.Thread(target=container.add, args=(torch.ones(2, 4),))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert container.get_arrays().shape == (4, 4)
