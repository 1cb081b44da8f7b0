"""How collators are compared and timed: what differs is found, and both are called in turn."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
import torch

from quadrat.bench import measure


def batch(**changed):
    return {"input_ids": torch.tensor([[1, 2], [3, 0]]), "position_ids": torch.arange(4), "max_length": 2, **changed}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (batch(input_ids=torch.tensor([[1, 2], [4, 0]])), r"input_ids differ, first at \(1, 0\): 3 expected, 4 found"),
        (batch(input_ids=torch.tensor([[1, 2, 3, 0]])), "shape of input_ids"),
        (batch(input_ids=torch.tensor([[1, 2], [3, 0]], dtype=torch.int32)), "dtype of input_ids: torch.int64"),
        (batch(input_ids=np.array([[1, 2], [3, 0]])), "type of input_ids"),
        (batch(max_length=3), "max_length: 2 expected, 3 found"),
        (batch(labels=torch.zeros(2)), "keys: "),
        (dict(reversed(batch().items())), "keys: "),
    ],
)  # fmt: skip
def test_batches_that_differ(other, message):
    measure.check_same(batch(), batch())
    with pytest.raises(measure.DifferenceError, match=message):
        measure.check_same(batch(), other)


def test_floats_are_compared_by_their_bits():
    nothing = {"x": np.array([np.nan, 0.0])}
    measure.check_same(nothing, {"x": np.array([np.nan, 0.0])})
    with pytest.raises(measure.DifferenceError, match="values of x differ"):
        measure.check_same({"x": np.array([0.0])}, {"x": np.array([-0.0])})


@pytest.mark.parametrize(
    ("library", "draw"), [("torch", lambda: torch.rand(1)), ("NumPy", np.random.rand), ("Python", random.random)]
)
def test_random_states_that_differ(library, draw):
    measure.check_collators(lambda features: draw() and batch(), lambda features: draw() and batch(), [])
    with pytest.raises(measure.DifferenceError, match=f"{library}'s random generator"):
        measure.check_collators(lambda features: batch(), lambda features: draw() and batch(), [])


def test_both_are_called_in_turn_and_alone_and_quietly():
    calls, quiet = [], set()

    def collate(name):
        def call(features):
            calls.append(name)
            quiet.add((torch.get_num_threads(), gc.isenabled()))
            return batch()

        return call

    threads = torch.get_num_threads()
    found = measure.compare(collate("r"), collate("q"), [], seconds=0.001)
    assert (torch.get_num_threads(), gc.isenabled()) == (threads, True)
    assert quiet - {(threads, True)} == {(1, False)}
    runs = "".join(calls)
    sample, other = "r" * found.calls_per_sample, "q" * found.calls_per_sample
    assert runs.startswith("rq" + "r" * 5 + sample + other)
    assert (sample + other) * found.pairs in runs
    alone = runs[runs.index((sample + other) * found.pairs) + len((sample + other) * found.pairs) :]
    assert alone.lstrip("r").strip("q") == ""
    assert found.pairs >= 20
