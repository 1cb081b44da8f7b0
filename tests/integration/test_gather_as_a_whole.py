"""Containers change as a whole: with errors, without memory, and with copies of them."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import trainer_pt_utils

import quadrat
from support.compare import picture
from support.isolated import python


def batch(number, width=None):
    """Predictions and labels that tell which batch they are of."""
    width = 3 + number % 3 if width is None else width
    return torch.full((2, width, 2), float(number)), {"labels": torch.full((2, width), number)}


def gatherer(steps):
    made = quadrat.evaluation.DistributedTensorGatherer(2, 12)
    for number in range(steps):
        made.add_arrays(arrays(number))
    return made


def arrays(number, width=None):
    predictions, labels = batch(number, width)
    return np.stack([predictions.numpy()[0], predictions.numpy()[1] + 0.5]), labels["labels"].numpy()


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
