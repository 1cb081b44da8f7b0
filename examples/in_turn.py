"""Threads that take turns, so that what else the machine does in the meantime falls on all of them.

One thread works at a time. Its random generators are its own, and its clocks stand still while others work.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")

__all__ = ["Turn", "in_turn"]


def generators() -> tuple[Any, ...]:
    """The states of Python's, NumPy's and PyTorch's random generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.cuda.get_rng_state_all()


def set_generators(states: tuple[Any, ...]) -> None:
    setters = (random.setstate, np.random.set_state, torch.set_rng_state, torch.cuda.set_rng_state_all)
    for set_state, state in zip(setters, states, strict=True):
        set_state(state)


def clocks() -> tuple[float, float]:
    """Seconds of the wall clock, and seconds of this process on all cores."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


class Turn:
    """The generators and clocks of one of several threads. It works while it is the first of `ring`."""

    def __init__(self, ring: deque[Turn]) -> None:
        self.ring, self.gate, self.is_cancelled = ring, threading.Semaphore(0), False
        self.states = generators()
        self.spent = self.began = (0.0, 0.0)

    def seconds(self) -> tuple[float, float]:
        """Seconds of the wall clock and of the process in the turns of this thread."""
        (wall, processor), now = self.began, clocks()
        return self.spent[0] + now[0] - wall, self.spent[1] + now[1] - processor

    def begin(self) -> None:
        self.gate.acquire()
        if self.is_cancelled:
            raise CancelledError
        set_generators(self.states)
        self.began = clocks()

    def pass_on(self) -> None:
        """Let the others work, and return when they have passed the turn on."""
        self.spent, self.states = self.seconds(), generators()
        self.ring.rotate(-1)
        self.ring[0].gate.release()
        self.begin()

    def work(self, job: Callable[[Turn], T]) -> T:
        try:
            self.begin()
            return job(self)
        finally:
            self.ring.remove(self)
            if self.ring:
                self.ring[0].gate.release()


def in_turn(jobs: Mapping[str, Callable[[Turn], T]]) -> dict[str, T]:
    """Run each job in a thread of its own, and return their results by name.

    A job calls `pass_on` of the `Turn` that it gets, for example after some steps. Each starts with the random
    generators as they are now. If one raises, or the user interrupts, the others end at their next turn.
    """
    ring: deque[Turn] = deque()
    turns = {name: Turn(ring) for name in jobs}
    ring.extend(turns.values())
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = {name: pool.submit(turn.work, jobs[name]) for name, turn in turns.items()}
        ring[0].gate.release()
        try:
            wait(results.values(), return_when=FIRST_EXCEPTION)
        finally:
            for turn in turns.values():
                turn.is_cancelled = True
    errors = [result.exception() for result in results.values()]
    for error in sorted(filter(None, errors), key=lambda error: isinstance(error, CancelledError)):
        raise error
    return {name: result.result() for name, result in results.items()}
