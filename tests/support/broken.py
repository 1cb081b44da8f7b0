"""A call that the sanitizer of a build must report: `python tests/support/broken.py address|thread`.

`make sanitize` runs it first: a sanitizer that does not report this sees nothing.
"""

import sys
import threading

import numpy as np

from quadrat import _core

TOKENS = 200_000
mask = np.ones(TOKENS, dtype=np.bool_)
out = np.zeros(TOKENS, dtype=np.int64)
first, second = mask.ctypes.data, out.ctypes.data  # before the threads: one would wait for the other here
start = threading.Barrier(2)


def write(address: int, times: int) -> None:
    for _ in range(times):
        _core.mask_indices(first, 1, TOKENS, (address, TOKENS))


def write_with_another() -> None:
    """Write where another thread writes too."""
    start.wait()
    write(second, 50)


if sys.argv[1] == "thread":
    threads = [threading.Thread(target=write_with_another) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    write(out[TOKENS // 2 :].ctypes.data, 1)  # room for half of them
