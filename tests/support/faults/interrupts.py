"""KeyboardInterrupt at any moment, as by a user who presses Ctrl-C."""

import collections
import copy
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from support import works
from support.compare import frozen
from support.faults import row
from support.faults.checked import Checked
from support.works import States, picture

_AGAIN = 1.0  # seconds


class Interrupts:
    """Raises KeyboardInterrupt at a moment, from a timer."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, *_: Any) -> None:
        if self._armed:
            raise KeyboardInterrupt

    def while_calling(self, call: Callable[[], Any], seconds: float, done: list[int]) -> None:
        """Calls again and again until the interrupt comes; `done` counts."""
        try:
            self._armed = True
            # Python ignores one that comes in a finalizer: then there is another one.
            signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
            while True:
                call()
                done[0] += 1
        except KeyboardInterrupt:
            pass
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)


def interrupted(quick: bool) -> Iterator[str]:
    """Each collator, interrupted many times; half of the times in its first batches."""
    if not hasattr(signal, "setitimer"):
        yield row("interrupts", 0, "skipped: there are no timers")
        return
    interrupts = Interrupts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = [*works.collators(), *works.collators_with_options()]
        for work in chosen[:: 3 if quick else 1]:
            yield _interrupted(work, interrupts, 15 if quick else 300)


def _interrupted(work: works.Work, interrupts: Interrupts, times: int) -> str:
    checked = Checked(work)
    if work.reference is not None:
        assert _by_the_reference(checked) == checked.expected, f"{work.name}: not the reference's"
    outcomes: collections.Counter[str] = collections.Counter()
    batches = 0
    before = frozen(work.features)
    moments = random.Random(0)
    for time in range(times):
        checked.again()
        if time % 2:
            work.forget()
        done = [0]
        interrupts.while_calling(work.call, moments.uniform(1e-5, 3e-3), done)
        outcomes[_where(checked, done[0])] += 1
        batches += done[0] + 2
        checked.check_next()
    assert frozen(work.features) == before, f"{work.name}: features have changed"
    checked.check_references()
    text = ", ".join(f"generators {name} {count}" for name, count in sorted(outcomes.items()))
    return row(f"KeyboardInterrupt: {work.name}", times, f"{batches:,} batches right; {text}")


def _by_the_reference(checked: Checked) -> Any:
    """The reference's batch from the same states of the generators."""
    reference, features = checked.work.reference, copy.deepcopy(checked.work.features)
    reference(copy.deepcopy(features))  # it has a generator of its own from now on
    States(reference).restore(checked.before)
    return picture(reference(features))


def _where(checked: Checked, done: int) -> str:
    """Whether the generators are as after `done` batches, or as after one more."""
    now = checked.states.take()
    checked.again()
    for _ in range(done):
        checked.work.call()
    first = checked.states.take()
    checked.work.call()
    last = checked.states.take()
    as_first, as_last = States.same(now, first), States.same(now, last)
    alike = [a or b for a, b in zip(as_first, as_last, strict=True)]
    assert all(alike), f"{checked.name}: of torch, NumPy, Python and its own, those in between are False: {alike}"
    moved = {not a for a, b, same in zip(as_first, as_last, States.same(first, last), strict=True) if not same}
    return "apart" if len(moved) > 1 else "as after the batch" if moved == {True} else "untouched"
