"""Faults, each a few times: `make faults` injects them thousands of times, and says more about each."""

import sys

import pytest

from support import allocations
from support.isolated import python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="shared memory and allocations are Linux's here"),
]


def inject(*groups: str) -> list[str]:
    """The rows of the table."""
    printed = python("-m", "support.faults", "--quick", "--here", "--only", *groups)
    return [line for line in printed.splitlines()[1:] if line and "groups failed" not in line]


def test_workers_and_shared_memory():
    assert len(inject("killed workers", "shared memory")) == 2


def test_interrupts_threads_and_memory():
    rows = inject("interrupts", "threads", "features that change", "patches", "compiled memory")
    assert sum("KeyboardInterrupt" in row for row in rows) > 10
    if not allocations.why_not_compiled():
        assert sum("memory for _core" in row and "MemoryError" in row for row in rows) > 15


@pytest.mark.skipif(
    bool(allocations.why_not_compiled()), reason=allocations.why_not_compiled() or "can be made to fail"
)
def test_no_memory_to_remember_an_instance():
    """pybind11 would free it twice, or end the process."""
    python("-c", NO_MEMORY)


NO_MEMORY = """
from quadrat import _core
from quadrat.support.memory import interop
from support.allocations import CompiledAllocator

allocator, rows, kept = CompiledAllocator(), [{"input_ids": [1, 2]}, {"input_ids": [3]}], interop()
calls = {
    "a new object": _core.Columns,
    "one that is returned": lambda: _core.collect(rows, None, kept)[1].signature(0, 1),
    "one that keeps another": lambda: _core.Columns().add_values([[1], [2]], kept),
    "one with a base class": lambda: _core.CausalLabels(0),
}
for name, call in calls.items():
    call()
    number, failed = 1, True
    while failed:
        allocator.fail(number, number)
        try:
            call()
        except MemoryError:
            pass
        failed = allocator.stop()
        number += 1
    call()
    print(name, number - 2)
"""
