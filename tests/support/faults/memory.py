"""Memory that cannot be had, at each place of a batch where memory is asked for."""

import collections
import gc
from collections.abc import Iterable, Iterator
from typing import Any

from support import allocations, works
from support.faults import Row
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


def compiled(quick: bool) -> Iterator[Row]:
    """Each call of the compiled module for memory fails, one at a time: of a known batch, and of the first one."""
    if why := allocations.why_not_compiled():
        yield Row("compiled memory", 0, f"skipped: {why}")
        return
    allocator = allocations.CompiledAllocator()
    for one in _checked(works.everything()[:: 4 if quick else 1]):
        yield _row(f"memory for _core: {one.name}", _injected(allocator, one, fresh=False))
        if one.work.collator is not None and not (quick and "np" in one.name):
            yield _row(f"memory for _core: {one.name}, first batch", _injected(allocator, one, fresh=True))


def pythons(quick: bool) -> Iterator[Row]:
    """Each allocation of Python's fails, one at a time: of a known batch.

    Elsewhere Python, torch and pybind11 may end the process themselves where they have no memory for an object.
    References are not counted: where Python 3.11 has no memory for a frame, it keeps one to an argument of the call.
    """
    if why := allocations.why_not_python():
        yield Row("Python memory", 0, f"skipped: {why}")
        return
    allocator = allocations.PythonsAllocator()
    chosen = [*works.collators(), *works.collators_with_options()]
    for one in _checked(chosen[:: 4 if quick else 1]):
        yield _row(f"memory for Python: {one.name}", _injected(allocator, one, fresh=False, exact=False))


def _checked(chosen: Iterable[works.Work]) -> list[Checked]:
    made = [Checked(work) for work in chosen]
    gc.collect()
    gc.freeze()
    return made


def _row(what: str, outcomes: collections.Counter[str]) -> Row:
    injected = sum(outcomes.values())
    return Row(what, injected, ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())))


def _injected(allocator: Any, one: Checked, *, fresh: bool, exact: bool = True) -> collections.Counter[str]:
    """Fails the first allocation, the second, and so on, until there are no more."""
    outcomes: collections.Counter[str] = collections.Counter()
    number, missed = 1, 0
    while missed < allocator.patience:
        one.again()
        if fresh:
            one.work.forget()
        outcome, failed = _outcome(allocator, one, number)
        outcomes[outcome] += 1
        missed = 0 if failed else missed + 1
        one.check_states()
        one.check_next()
        number += 1
    outcomes[RIGHT] -= missed
    if exact:
        one.check_references()
    return +outcomes


def _outcome(allocator: Any, one: Checked, number: int) -> tuple[str, bool]:
    """What came of it, and whether there was such an allocation, as far as that is known."""
    batch = error = None
    allocator.fail(number, number)
    try:
        batch = one.work.call()
    except BaseException as raised:
        error = raised
    failed = allocator.stop()
    if error is None:
        assert works.picture(batch) == one.expected, f"{one.name}: wrong when allocation {number} fails"
        return RIGHT, bool(failed)
    if isinstance(error, MemoryError):
        return "MemoryError", True
    assert any(words in str(error) for words in _OTHER_WORDS), f"{one.name}: allocation {number}: {error!r}"
    return f"{type(error).__name__} of a library", True
