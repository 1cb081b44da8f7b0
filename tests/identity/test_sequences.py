"""Batches in sequences of every kind: those that the reference takes, and no others, in its own way."""

from collections import UserList, deque
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from support import samples
from support.compare import assert_same_outcome, seeded

pytestmark = pytest.mark.filterwarnings("ignore:DataCollatorForWholeWordMask is only suitable")


class List(list):
    pass


class Tuple(tuple):
    pass


class Reversed(list):
    """What iteration gives is not what `[]` gives."""

    def __iter__(self):
        return reversed(self)


class Plain(Sequence):
    def __init__(self, rows):
        self._rows = list(rows)

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, at):
        return self._rows[at]


def objects(rows):
    made = np.empty(len(rows), object)
    made[:] = rows
    return made


CONTAINERS = [list, tuple, List, Tuple, Reversed, deque, UserList, Plain, iter, objects, enumerate]
ROWS = [[7, 8, 9, 10], [11, 12, 13, 14], [15, 16, 17, 18]]
RAGGED = [[7, 8, 9, 10], [11, 12], [13, 14, 15, 16]]
BARE = [
    "DataCollatorForLanguageModeling",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForWholeWordMask",
]


def assert_alike(name, framework, made):
    """From new collators, and from those that know batches of the same features in a list."""
    reference, collator = samples.pair(name, return_tensors=framework)
    for _ in range(2):
        expected, expected_states = seeded(reference, made())
        got, states = seeded(collator, made())
        assert_same_outcome(expected, got)
        assert states == expected_states
        for one in (reference, collator):
            one(samples.batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("container", CONTAINERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("row", [list, tuple, np.array, torch.tensor], ids=lambda one: one.__name__)
@pytest.mark.parametrize("rows", [ROWS, RAGGED], ids=["equal", "ragged"])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", BARE)
def test_bare_rows(name, framework, rows, row, container):
    assert_alike(name, framework, lambda: container([row(one) for one in rows]))


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("name", "framework"), samples.BATCHES)
def test_features(name, framework, container):
    assert_alike(name, framework, lambda: container(samples.batch(name)))


@pytest.mark.parametrize("name", BARE)
def test_rows_in_one_array(name):
    for framework in ("pt", "np"):
        for form in (np.array, torch.tensor):
            assert_alike(name, framework, lambda form=form: form(ROWS))
