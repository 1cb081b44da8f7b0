"""How `make demo` compares trainings: in turn, each as if alone."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True, scope="module")
def examples():
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


def drawing(count, seen):
    def job(turn):
        drawn = []
        for number in range(count):
            seen.append(job)
            drawn.append((random.random(), np.random.random(), torch.rand(()).item()))
            if number % 2:
                turn.pass_on()
        return drawn

    return job


def test_each_thread_has_generators_of_its_own():
    from in_turn import in_turn

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    seen = []
    jobs = {name: drawing(count, seen) for name, count in (("one", 7), ("two", 4), ("three", 5))}
    results = in_turn(jobs)
    assert results["one"][:4] == results["two"]
    assert results["one"][:5] == results["three"]
    assert seen[:6] == [jobs[name] for name in ("one", "one", "two", "two", "three", "three")]


def test_an_error_ends_the_others():
    from in_turn import in_turn

    passed = []

    def failing(turn):
        turn.pass_on()
        raise ZeroDivisionError("of the second part")

    def going_on(turn):
        while len(passed) < 1000:
            passed.append(1)
            turn.pass_on()

    with pytest.raises(ZeroDivisionError, match="of the second part"):
        in_turn({"long": going_on, "failing": failing})
