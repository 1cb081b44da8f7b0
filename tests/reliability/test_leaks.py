"""What batches leave behind: `make leaks` makes hundreds of thousands of each kind."""

import gc
import sys
import types
import warnings
import weakref
from typing import Any

import pytest

from support import failures, works
from support.faults.checked import rows_of
from support.isolated import python
from support.owners import owners


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_nothing_grows():
    """The exit status is not 0 where something does."""
    printed = python("-m", "support.leaks", "--batches", 400, "--failures", 200)
    assert "0 of" in printed.splitlines()[-1]


@pytest.fixture(scope="module")
def calls():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        successes = {work.name: work.call for work in works.everything()}
        failing = {f"{name}, {number}": call for name, of in failures.everything() for number, call in enumerate(of)}
    return successes | failing


@pytest.mark.parametrize("name", owners())
def test_owners_go(name):
    """Datasets, tables and collators that were read, with all that they own."""
    watched = [weakref.ref(owner) for owner in owners()[name]()]
    gc.collect()
    assert not [reference() for reference in watched if reference() is not None]


def of_quadrat(value: Any) -> bool:
    """Whether an object is quadrat's, or a frame of its functions."""
    if isinstance(value, types.FrameType):
        return "quadrat/" in value.f_code.co_filename
    return str(getattr(type(value), "__module__", "")).partition(".")[0] == "quadrat"


def test_no_cycles(calls):
    """Batches, and errors, go when nobody holds them, without the garbage collector."""
    cycles = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in calls.values():
            for _ in range(2):
                failures.raised(call)
        gc.collect()
        gc.freeze()  # what is looked at is new
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for name, call in calls.items():
                failures.raised(call)
                gc.collect()
                if left := [value for value in gc.garbage if of_quadrat(value)]:
                    cycles[name] = left[:3]
                gc.garbage.clear()
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
    assert not cycles


def test_references_are_exact():
    """To features, rows, numbers, the tokenizer and the collator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jobs = [*works.collators(), *works.collators_with_options()]
        gc.collect()
        gc.freeze()  # what is looked at is new
        try:
            for work in jobs:
                watched = [*rows_of(work.features), work.collator, getattr(work.collator, "tokenizer", None)]
                for _ in range(3):
                    work.call()
                gc.collect()
                before = [sys.getrefcount(value) for value in watched]
                for _ in range(20):
                    work.call()
                gc.collect()
                assert [sys.getrefcount(value) for value in watched] == before, work.name
        finally:
            gc.unfreeze()
