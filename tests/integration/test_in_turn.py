"""How `make demo` compares trainings: in turn, each as if alone; what it says follows from the numbers."""

import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


def test_clocks_stand_still_while_others_work():
    from in_turn import in_turn

    def sleeping(turn):
        for _ in range(3):
            time.sleep(0.2)
            turn.pass_on()
        return turn.seconds()

    def working(turn):
        for _ in range(3):
            turn.pass_on()
        return turn.seconds()

    results = in_turn({"sleeping": sleeping, "working": working})
    assert results["sleeping"][0] >= 0.6 > results["sleeping"][1]
    assert results["working"][0] < 0.6


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


SECONDS = st.floats(0.01, 1e3)


@given(walls=st.tuples(SECONDS, SECONDS), processors=st.tuples(SECONDS, SECONDS), computed=st.integers(60, 900))
def test_what_is_said_of_the_gain_follows_from_the_numbers(walls, processors, computed):
    import outcomes

    def outcome(wall, processor, computed):
        collation = np.full((5, 2), 0.002)
        return outcomes.Outcome([1.0], [4], np.array([[wall, processor]]), 1.0, 0.5, collation, computed, 60, 1)

    reference, budget = outcome(walls[0], processors[0], 300), outcome(walls[1], processors[1], computed)
    by_wall, by_processor = walls[0] / walls[1], processors[0] / processors[1]
    disturbed = outcomes.were_disturbed(reference, budget)
    assert disturbed == (not 1 / 1.25 <= by_wall / by_processor <= 1.25)
    times, clock = (by_processor, outcomes.PROCESSOR) if disturbed else (by_wall, 0)
    said = outcomes.gain(reference.by(clock), budget.by(clock), "batches")
    assert (f"{times:.1f} times shorter" in said) == (times >= 1.05) == ("not shorter" not in said)
    assert ("of CPU time" in said) == disturbed
    assert ("fewer tokens" in said) == (computed <= 300) == ("more tokens" not in said)
    assert "80% of them were padding" in said
    assert said.endswith("collation takes 0.01 s instead of 0.01 s.")
