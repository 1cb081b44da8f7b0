"""Injects faults and prints what came of each.

    python -m support.faults [--quick] [--only GROUP ...]

Each group runs in a process of its own, which a fault might end. The exit status is 1 if one fails.
"""

import argparse
import functools
import importlib
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

from support.faults import HEADING

# Name -> module and function, which is called with whether to be quick.
GROUPS = {
    "killed workers": ("workers", "killed"),
    "shared memory": ("workers", "full"),
    "interrupts": ("interrupts", "interrupted"),
    "threads": ("threads", "shared"),
    "features that change": ("threads", "changing"),
    "patches": ("threads", "patched"),
    "compiled memory": ("memory", "compiled"),
    "Python memory": ("memory", "pythons"),
}
SECONDS = 3600
say = functools.partial(print, flush=True)


def run(group: str, quick: bool) -> int:
    module, name = GROUPS[group]
    inject: Callable[[bool], Iterator[str]] = getattr(importlib.import_module(f"support.faults.{module}"), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in inject(quick):
            say(row)
    return 0


def run_apart(group: str, quick: bool) -> bool:
    """Runs a group in a process of its own; whether it ended well."""
    command = [sys.executable, "-m", "support.faults", "--run", group, *(["--quick"] if quick else [])]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        say(f"{group:64}{'':>9}  FAILED with {done.returncode}\n{done.stderr[-3000:]}")
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Faults, and what becomes of batches.")
    parser.add_argument("--quick", action="store_true", help="each fault a few times")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP", help="; ".join(GROUPS)
    )
    parser.add_argument("--here", action="store_true", help="all groups in this process")
    parser.add_argument("--run", choices=GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run is not None:
        return run(options.run, options.quick)
    say(HEADING)
    began = time.monotonic()
    if options.here:
        failed = [group for group in options.only if run(group, options.quick)]
    else:
        failed = [group for group in options.only if not run_apart(group, options.quick)]
    say(f"\n{time.monotonic() - began:.0f} s; {len(failed)} of {len(options.only)} groups failed")
    return bool(failed)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Without the destructors of libraries: libXau, which Pillow brings, sometimes crashes in its own.
    os._exit(status)
