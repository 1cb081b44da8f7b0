"""Memory that cannot be had, at each place of a batch where memory is asked for."""

import collections
import gc
from collections.abc import Iterable, Iterator
from typing import Any

from support import allocations, works
from support.faults import row
from support.faults.checked import Checked

# What libraries say in place of MemoryError: torch, Rust's bindings of Python, NumPy, pybind11.
_OTHER_WORDS = (
    "Failed to allocate a Tensor object",
    "PyObject pointer is null",
    "error return without exception set",
    "returned a result with an exception set",
    "Unable to convert function return value",
)
RIGHT = "right all the same"


def compiled(quick: bool) -> Iterator[str]:
    """Each call of the compiled module for memory fails, one at a time: of a known batch, and of the first one."""
    if why := allocations.why_not_compiled():
        yield row("compiled memory", 0, f"skipped: {why}")
        return
    allocator = allocations.CompiledAllocator()
    for checked in _checked(works.everything()[:: 4 if quick else 1]):
        yield _counted(f"memory for _core: {checked.name}", _injected(allocator, checked, fresh=False))
        if checked.work.collator is not None and not (quick and "np" in checked.name):
            yield _counted(f"memory for _core: {checked.name}, first batch", _injected(allocator, checked, fresh=True))


def pythons(quick: bool) -> Iterator[str]:
    """Each allocation of Python's fails, one at a time: of a known batch.

    Elsewhere Python, torch and pybind11 may end the process themselves where they have no memory for an object.
    References are not counted: where Python 3.11 has no memory for a frame, it keeps one to an argument of the call.
    """
    if why := allocations.why_not_python():
        yield row("Python memory", 0, f"skipped: {why}")
        return
    allocator = allocations.PythonsAllocator()
    chosen = [*works.collators(), *works.collators_with_options()]
    for checked in _checked(chosen[:: 4 if quick else 1]):
        yield _counted(f"memory for Python: {checked.name}", _injected(allocator, checked, fresh=False, exact=False))


def _checked(chosen: Iterable[works.Work]) -> list[Checked]:
    checked = [Checked(work) for work in chosen]
    gc.collect()
    gc.freeze()
    return checked


def _counted(what: str, outcomes: collections.Counter[str]) -> str:
    injected = sum(outcomes.values())
    return row(what, injected, ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())))


def _injected(allocator: Any, checked: Checked, *, fresh: bool, exact: bool = True) -> collections.Counter[str]:
    """Fails the first allocation, the second, and so on, until there are no more."""
    outcomes: collections.Counter[str] = collections.Counter()
    number, missed = 1, 0
    while missed < allocator.patience:
        checked.again()
        if fresh:
            checked.work.forget()
        outcome, failed = _outcome(allocator, checked, number)
        outcomes[outcome] += 1
        missed = 0 if failed else missed + 1
        checked.check_states()
        checked.check_next()
        number += 1
    outcomes[RIGHT] -= missed
    if exact:
        checked.check_references()
    return +outcomes


def _outcome(allocator: Any, checked: Checked, number: int) -> tuple[str, bool]:
    """What came of it, and whether there was such an allocation, as far as that is known."""
    batch = error = None
    allocator.fail(number, number)
    try:
        batch = checked.work.call()
    except BaseException as raised:
        error = raised
    failed = allocator.stop()
    if error is None:
        assert works.picture(batch) == checked.expected, f"{checked.name}: wrong when allocation {number} fails"
        return RIGHT, bool(failed)
    if isinstance(error, MemoryError):
        return "MemoryError", True
    assert any(words in str(error) for words in _OTHER_WORDS), f"{checked.name}: allocation {number}: {error!r}"
    return f"{type(error).__name__} of a library", True
