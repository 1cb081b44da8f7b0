"""Memory that cannot be had: the nth allocation of a call fails, of Python's allocator or of the compiled code."""

import ctypes
import functools
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from quadrat import _core

SOURCE = Path(__file__).with_suffix(".cpp")


class PythonsAllocator:
    """Python's own, of this interpreter's `_testcapi`.

    Attributes:
        patience: after so many calls in a row in which none seems to have failed, there are no more.
    """

    patience = 30

    def __init__(self) -> None:
        import _testcapi

        self._fail, self._stop = _testcapi.set_nomemory, _testcapi.remove_mem_hooks

    def fail(self, first: int, last: int) -> None:
        """From now on the allocations from `first` to `last` fail; the first one is 1."""
        self._fail(first - 1, last)

    def stop(self) -> bool:
        """No allocation fails from now on. Whether one has, or False where that is not known, as here."""
        self._stop()
        return False


class CompiledAllocator:
    """What the compiled module calls: malloc, mmap, operator new."""

    patience = 1

    def __init__(self) -> None:
        self._shim = _shim()
        self._first = 0

    def fail(self, first: int, last: int) -> None:
        """See `PythonsAllocator`."""
        self._first = first
        self._shim.fail(first, last)

    def stop(self) -> bool:
        """See `PythonsAllocator`."""
        seen = self._shim.seen()
        self._shim.fail(0, 0)
        return bool(seen >= self._first)


def why_not_python() -> str:
    """Why Python's allocations cannot be made to fail here; "" where they can."""
    try:
        import _testcapi  # noqa: F401
    except ImportError:
        return "this interpreter has no _testcapi"
    return "" if sys.implementation.name == "cpython" else "this is not CPython"


@functools.cache
def why_not_compiled() -> str:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "only the tables of Linux libraries of 64 bits are known"
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return "the sanitizers have the allocator"
    try:
        _shim()
    except OSError as error:
        return f"there is no C++ compiler: {error}"
    return ""


@functools.cache
def _shim() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "allocations.so")
        compiler = shlex.split(os.environ.get("CXX") or "c++")
        command = [*compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        shim = ctypes.PyDLL(str(library))
    shim.fail.argtypes, shim.fail.restype = (ctypes.c_long, ctypes.c_long), None
    shim.seen.restype = ctypes.c_long
    path = _core.__file__
    if not shim.watch(str(path).encode()):
        raise RuntimeError(f"{path} asks nobody for memory")
    return shim
