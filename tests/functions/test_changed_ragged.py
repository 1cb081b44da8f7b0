"""A `Ragged` whose arrays others change: nothing outside the values is read, and it keeps its own two arrays."""

import copy
import pickle

import numpy as np
import pytest
import torch

import quadrat
from support import isolated


@pytest.mark.slow
def test_does_what_one_made_anew_does():
    assert isolated.run("changed.py") is True


@pytest.mark.parametrize("name", ["values", "offsets"])
def test_arrays_cannot_be_replaced(name):
    rows = quadrat.Ragged(np.arange(3), np.array([0, 2, 3]))
    with pytest.raises(AttributeError):
        setattr(rows, name, np.array([0, 99]))
    assert rows.to_lists() == [[0, 1], [2]]


@pytest.mark.parametrize("torch_values", [False, True])
def test_copies_are_checked(torch_values):
    values, offsets = np.arange(3), np.array([0, 2, 3])
    if torch_values:
        values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
    rows = quadrat.Ragged(values, offsets)
    for other in (copy.copy(rows), copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert type(other) is quadrat.Ragged
        assert other.to_lists() == [[0, 1], [2]]
    offsets[2] = 99
    made = pickle.dumps(rows)
    for make in (lambda: copy.deepcopy(rows), lambda: pickle.loads(made)):
        with pytest.raises(ValueError, match=r"offsets\[1\] is 2 and offsets\[2\] is 99"):
            make()
    assert "offsets must be from 0 to 3" in repr(rows)
