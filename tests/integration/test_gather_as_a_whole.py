"""Containers change as a whole: with Ctrl-C, signal handlers, errors and other threads in the middle of it."""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import trainer_pt_utils

import quadrat
from support.interrupts import Moments, some
from support.nested import picture

MOMENTS = 120


def batch(number, width=None):
    """Predictions and labels that tell which batch they are of."""
    width = 3 + number % 3 if width is None else width
    return torch.full((2, width, 2), float(number)), {"labels": torch.full((2, width), number)}


def contents(container):
    return picture(container.get_arrays())


class Container:
    """How a container comes to hold a few batches, whole or in pieces."""

    def __init__(self, name, steps, **options):
        self.name, self.steps, self.options = name, steps, options

    def make(self, *, reference=False):
        options = {name: value for name, value in self.options.items() if not reference or name != "ragged"}
        container = (trainer_pt_utils if reference else quadrat).EvalLoopContainer(**options)
        for number, step in enumerate(self.steps):
            container.add(batch(number))
            if step is not None:
                step(container)
        return container


def to_cpu(container):
    container.to_cpu_and_numpy()


def look(container):
    return container.tensors, container.arrays


CONTAINERS = [
    Container("empty", []),
    Container("first", [None]),
    Container("pieces", [None] * 4),
    Container("moved", [to_cpu, to_cpu, None, None]),
    Container("seen", [None, None, look, None]),
    Container("list", [None, to_cpu, None], do_nested_concat=False),
    Container("ragged", [None, None, None], ragged=True),
    Container("ragged and seen", [None, look, None], ragged=True),
]
OPERATIONS = {
    "add": lambda container: container.add(batch(7)),
    "another dtype": lambda container: container.add((batch(7, 3)[0].double(), batch(7, 3)[1])),
    "to_cpu_and_numpy": to_cpu,
    "get_arrays": lambda container: container.get_arrays(),
    "tensors": lambda container: container.tensors,
    "arrays": lambda container: container.arrays,
    "pickle": pickle.dumps,
}


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)
def test_an_interrupt_leaves_all_or_nothing(container, operation):
    """An exception before any instruction; afterwards the container goes on."""
    change = OPERATIONS[operation]
    without, whole = container.make(), container.make()
    change(whole)
    outcomes = []
    for one in (without, whole):
        one.add(batch(9))
        outcomes.append(contents(one))
    moments, whole = Moments(interrupt), container.make()
    for moment in some(moments.count(lambda: change(whole)), MOMENTS):
        interrupted = container.make()
        with pytest.raises(KeyboardInterrupt):
            moments.run(lambda: change(interrupted), moment)  # noqa: B023 - called at once
        interrupted.add(batch(9))
        assert contents(interrupted) in outcomes, moment


@pytest.mark.parametrize("within", ["add", "to_cpu_and_numpy", "get_arrays", "tensors", "arrays"])
@pytest.mark.parametrize("operation", ["add", "get_arrays", "tensors"])
@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)
def test_a_signal_handler_may_use_the_container(container, operation, within):
    """The result is that of one after the other."""
    change = OPERATIONS[operation]
    handler = (lambda one: one.add(batch(8))) if within == "add" else OPERATIONS[within]
    outcomes = []
    for order in ((change, handler), (handler, change)):
        one = container.make()
        for each in order:
            each(one)
        one.add(batch(9))
        outcomes.append(contents(one))
    shared = []
    moments = Moments(lambda: handler(shared[-1]), handlers=True)
    shared.append(container.make())
    count = moments.count(lambda: change(shared[-1]))
    assert count > 3
    for moment in some(count, MOMENTS // 4):
        shared.append(container.make())
        assert moments.run(lambda: change(shared[-1]), moment)
        shared[-1].add(batch(9))
        assert contents(shared[-1]) in outcomes, moment


def gatherer(steps):
    made = quadrat.DistributedTensorGatherer(2, 12)
    for number in range(steps):
        made.add_arrays(arrays(number))
    return made


def arrays(number, width=None):
    predictions, labels = batch(number, width)
    return np.stack([predictions.numpy()[0], predictions.numpy()[1] + 0.5]), labels["labels"].numpy()


STEPS = {
    "goes with the others": lambda: arrays(4),
    "does not": lambda: (arrays(4)[0].astype(">f4"), arrays(4)[1]),
    "wider": lambda: arrays(4, width=9),
}


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_leaves_all_or_nothing_of_a_step(step, odd, before):
    def make():
        one = gatherer(before)
        if odd:  # from now on arrays of all rows are written to
            one.add_arrays((arrays(3)[0].astype(">f4"), arrays(3)[1]))
        return one

    outcomes = []
    for steps in ([], [STEPS[step]()]):
        one = make()
        for each in steps:
            one.add_arrays(each)
        one.add_arrays(arrays(5))
        outcomes.append(picture(one.finalize()))
    finished = [picture(make().finalize()), picture(after(make(), step).finalize())]
    moments, one = Moments(interrupt), make()
    for moment in some(moments.count(lambda: after(one, step)), MOMENTS):
        interrupted = make()
        with pytest.raises(KeyboardInterrupt):
            moments.run(lambda: after(interrupted, step), moment)  # noqa: B023 - called at once
        assert picture(interrupted.finalize()) in finished, moment
        interrupted.add_arrays(arrays(5))
        assert picture(interrupted.finalize()) in outcomes, moment


def after(one, step):
    one.add_arrays(STEPS[step]())
    return one


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_copies_of_gatherers(how, steps):
    one = gatherer(steps)
    other = how(one)
    for each, number in ((one, 5), (other, 6)):
        each.add_arrays(arrays(number))
    for each, number in ((one, 5), (other, 6)):
        expected = gatherer(steps)
        expected.add_arrays(arrays(number))
        assert picture(each.finalize()) == picture(expected.finalize())


def test_a_step_that_fails_writes_nothing():
    """The reference writes what comes before the error, some of it over the rows of the next process."""
    one = gatherer(0)
    one.add_arrays((arrays(1)[0].astype(">f4"), arrays(1)[1]))
    one.add_arrays(arrays(2))
    before = picture(one.finalize())
    wrong = (np.zeros((2, 3, 2)), np.zeros((2, 3, 7)))
    many = tuple(np.repeat(array, 6, axis=0) for array in arrays(3))
    for arrays_refused in (wrong, many, (arrays(3)[0], np.array(["a", "b"]))):
        with pytest.raises(ValueError, match=r"broadcast|invalid literal"):
            one.add_arrays(arrays_refused)
        assert picture(one.finalize()) == before


HUGE = torch.zeros(1, 1).expand(10**7, 10**7)


@pytest.mark.parametrize("library", ["pt", "np"])
@pytest.mark.parametrize("before", [1, 3])
def test_what_there_is_no_memory_for_is_not_added(library, before):
    """The first array of the batch has room, the second has not."""
    convert = (lambda value: value.numpy()) if library == "np" else lambda value: value
    container, reference = quadrat.EvalLoopContainer(), trainer_pt_utils.EvalLoopContainer()
    for number in range(before):
        for each in (container, reference):
            each.add(tuple(map(convert, (torch.full((6, 3), float(number)),) * 2)))
    for refused in (HUGE, torch.zeros(1, 1).expand(10**7, 3 * 10**6)):
        with pytest.raises((MemoryError, RuntimeError)):
            container.add((convert(torch.zeros(300_000, 3)), convert(refused)))
    for each in (container, reference):
        each.add(tuple(map(convert, (torch.ones(6, 4), torch.ones(6, 4)))))
    assert picture(container.tensors) == picture(reference.tensors)


def run(script):
    """In a process of its own, for what may end it. What it prints."""
    here = Path(__file__).parents[1]
    start = f"import sys; sys.path.insert(0, {str(here)!r})\n"
    command = [sys.executable, "-c", start + script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


LIMITED = """
import resource
import torch
import quadrat

small, large = torch.ones(6, 3), torch.ones(64 << 20)
container = quadrat.EvalLoopContainer()
for _ in range(2):
    container.add((small, small))
container.add((torch.ones(2, 3), torch.ones(2, 3)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    container.add((small, large.view(-1, 1)))
except MemoryError:
    pass
else:
    raise AssertionError("there was room")
container.add((small, small))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
first, second = container.get_arrays()
assert first.shape == second.shape == (20, 3), (first.shape, second.shape)
assert (first == 1).all() and (second == 1).all()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory is mapped")
def test_memory_that_cannot_grow():
    run(LIMITED)


LOOKED_AT = """
import sys, threading
import torch
import quadrat

sys.setswitchinterval(1e-5)
expected = torch.cat([torch.full((40, 64, 16), float(number)) for number in range(40)])
for name in ("tensors", "arrays", "get_arrays"):
    for _ in range(5):
        container = quadrat.EvalLoopContainer()
        for number in range(40):
            container.add(torch.full((40, 64, 16), float(number)))
            if name == "arrays":
                container.to_cpu_and_numpy()
        barrier, seen = threading.Barrier(4), []

        def look():
            barrier.wait()
            value = getattr(container, name)
            seen.append(value() if callable(value) else value)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert all(value is seen[0] for value in seen)
        assert torch.equal(torch.as_tensor(seen[0]), expected)
"""


def test_threads_that_look():
    run(LOOKED_AT)


ADDED = """
import sys, threading
import torch
import quadrat

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


def together(*functions):
    barrier, failed = threading.Barrier(len(functions)), []

    def call(function):
        barrier.wait()
        try:
            function()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


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
    run(ADDED)


STRETCHES = """
import sys, threading
import numpy as np
import quadrat

sys.setswitchinterval(1e-5)
THREADS, STEPS, ROWS = 4, 40, 32
for odd in (False, True):
    gatherer = quadrat.DistributedTensorGatherer(2, THREADS * STEPS * ROWS)
    barrier = threading.Barrier(THREADS)

    def add(thread):
        barrier.wait()
        for step in range(STEPS):
            number = 1000 * thread + step
            wide = np.full((24, ROWS), number, np.int64).T
            gatherer.add_arrays((wide.astype(float) if odd and step == 3 else wide, np.full(ROWS, number)))

    threads = [threading.Thread(target=add, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wide, narrow = gatherer.finalize()
    assert (wide == narrow[:, None]).all()
    blocks = narrow.reshape(2, -1, ROWS // 2)
    assert (blocks == blocks[:, :, :1]).all()
    assert (blocks[0] == blocks[1]).all()
    numbers = [1000 * thread + step for thread in range(THREADS) for step in range(STEPS)]
    assert sorted(blocks[0, :, 0].tolist()) == numbers
"""


def test_threads_that_add_to_a_gatherer():
    run(STRETCHES)


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
    run(SIGNALLED)


def test_a_view_stays_where_it_is():
    """What is added goes elsewhere while somebody holds an array of what is there."""
    container = quadrat.EvalLoopContainer(ragged=True)
    held = []
    for number in range(12):
        container.add(torch.full((64, 1000 + number), float(number)))
        if number % 3:
            array = container.arrays
            held.append((array, array.values.ctypes.data, array.values.copy()))
    for array, address, before in held:
        assert array.values.ctypes.data == address
        assert np.array_equal(array.values, before)
    assert container.get_arrays().to_lists() == [
        [float(number)] * (1000 + number) for number in range(12) for _ in range(64)
    ]


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
