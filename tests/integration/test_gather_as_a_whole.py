"""Containers change as a whole: with Ctrl-C, signal handlers, errors and other threads in the middle of it."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import trainer_pt_utils

import quadrat
from support.compare import picture
from support.interrupts import Moments, some
from support.isolated import python

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
        container = (trainer_pt_utils if reference else quadrat.evaluation).EvalLoopContainer(**options)
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


@pytest.mark.slow
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
    assert count > 0 or (container.name, operation) == ("empty", "add")  # which calls nothing: no handler runs
    for moment in some(count, MOMENTS // 4):
        shared.append(container.make())
        assert moments.run(lambda: change(shared[-1]), moment)
        shared[-1].add(batch(9))
        assert contents(shared[-1]) in outcomes, moment


def gatherer(steps):
    made = quadrat.evaluation.DistributedTensorGatherer(2, 12)
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
    container, reference = quadrat.evaluation.EvalLoopContainer(), trainer_pt_utils.EvalLoopContainer()
    for number in range(before):
        for each in (container, reference):
            each.add(tuple(map(convert, (torch.full((6, 3), float(number)),) * 2)))
    for refused in (HUGE, torch.zeros(1, 1).expand(10**7, 3 * 10**6)):
        with pytest.raises((MemoryError, RuntimeError)):
            container.add((convert(torch.zeros(300_000, 3)), convert(refused)))
    for each in (container, reference):
        each.add(tuple(map(convert, (torch.ones(6, 4), torch.ones(6, 4)))))
    assert picture(container.tensors) == picture(reference.tensors)


LIMITED = """
import resource
import torch
import quadrat

small, large = torch.ones(6, 3), torch.ones(64 << 20)
container = quadrat.evaluation.EvalLoopContainer()
for _ in range(2):
    container.add((small, small))
container.add((torch.ones(2, 3), torch.ones(2, 3)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    container.add((small, large.view(-1, 1)))
except (MemoryError, RuntimeError):
    pass
else:
    raise AssertionError("there was room")
container.add((small, small))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
first, second = container.get_arrays()
assert first.shape == second.shape == (20, 3), (first.shape, second.shape)
assert (first == 1).all() and (second == 1).all()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory is mapped")
def test_memory_that_cannot_grow():
    python("-c", LIMITED)


def test_a_view_stays_where_it_is():
    """What is added goes elsewhere while somebody holds an array of what is there."""
    container = quadrat.evaluation.EvalLoopContainer(ragged=True)
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
