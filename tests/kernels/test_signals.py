"""Kernels that may take seconds end where a signal handler raises, as that of Ctrl-C does, and free their memory."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from quadrat import _core
from quadrat.support.memory import interop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer that sends signals"),
]
ROWS = 10**7
AFTER = 0.03  # seconds, of which each of these calls takes far more
# Bytes that may be kept: less than the scratch of any of these calls, and what AddressSanitizer keeps of freed memory.
MOST = (320 if "asan" in os.environ.get("LD_PRELOAD", "") else 64) << 20


class EndedError(Exception):
    pass


def lengths_below(end):
    return np.random.default_rng(0).integers(1, end, ROWS)


def pack(fit):
    rows, offsets = np.full(ROWS, -1), np.full(ROWS + 1, -1)
    call = partial(_core.pack_rows, lengths_below(1 << 27), 1 << 27, fit, rows, offsets)
    return call, lambda: offsets[-1] == offsets[1] == -1


def plan_batches(window):
    batches, budget = np.full((ROWS, 3), -1), (1 << 40, ROWS, 1, True)
    call = partial(_core.plan_batches, lengths_below(1 << 40), budget, window, np.arange(ROWS), batches)
    return call, lambda: batches[ROWS // 2, 0] == -1


def balance_batches():
    """Half as many batches of two rows as one step needs of one row."""
    begins, batches, out = np.arange(0, ROWS, 2), np.full((ROWS, 3), 0), np.full((1, ROWS, 3), -1)
    batches[: ROWS // 2] = np.stack([begins, begins + 2, np.random.default_rng(0).permutation(ROWS // 2)], 1)
    arguments = np.ones(ROWS, np.int64), (9, 9, 1, True), np.arange(ROWS), batches, ROWS // 2, ROWS, None, out
    return partial(_core.balance_batches, *arguments), lambda: out[0, -1, 0] == -1


def philox_order():
    out, whole = np.full((2, 2 * ROWS), -1)
    _core.philox_order(1, 2, 3, whole)
    return partial(_core.philox_order, 1, 2, 3, out), lambda: not np.array_equal(out, whole)


class Key(str):
    """A name of a column, which notes that it was compared."""

    seen = False
    __hash__ = str.__hash__

    def __eq__(self, other):
        Key.seen = True
        return str.__eq__(self, other)


def measure_rows():
    rows, lengths = [{"input_ids": [1]}] * ROWS, np.full(ROWS, -1)
    call = partial(_core.measure_rows, rows, "input_ids", False, list, 0, lengths, interop())
    return call, lambda: lengths[-1] == -1


def held():
    """The memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


CASES = {
    "pack_rows, best fit": lambda: pack(_core.FITS.BEST),
    "pack_rows, first fit": lambda: pack(_core.FITS.FIRST),
    "plan_batches": lambda: plan_batches(2048),
    "plan_batches, one window": lambda: plan_batches(ROWS),
    **{case.__name__: case for case in (balance_batches, philox_order, measure_rows)},
}


@pytest.mark.parametrize("case", CASES)
def test_ends_where_a_handler_raises(case):
    call, is_unfinished = CASES[case]()

    def end(*_):
        raise EndedError

    before, handler = held() if sys.platform == "linux" else 0, signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, AFTER)
        with pytest.raises(EndedError):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert is_unfinished()
    assert sys.platform != "linux" or held() < before + MOST


MINUTES = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs the tests may ignore
import numpy as np
from quadrat.batching import plan_packs
lengths = np.random.default_rng(0).integers(1, 2**27, 10**7)
print("begins", flush=True)
while True:
    plan_packs(lengths, 2**27)
"""


def test_ends_at_ctrl_c():
    with subprocess.Popen([sys.executable, "-c", MINUTES], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
