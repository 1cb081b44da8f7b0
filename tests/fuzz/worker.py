"""One process of the fuzzer: runs targets in turns, each for some time, and notes each input before it runs."""

import argparse
import contextlib
import faulthandler
import gc
import json
import mmap
import os
import random
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import inputs, targets

HEADER = struct.Struct("<QII")  # inputs so far, number of the target, length of the input that follows
ROOM = 1 << 16
_SHORTEST, _LONGEST = 0.02, 1.0  # seconds of a turn
_OF_KERNELS = 0.3  # of a turn: they take much more inputs in the same time than collators do
_SAVES = 10  # seconds from one time that counts are written to the next
_MOST_KEPT = 3  # finds that are written of each kind of error
_MOST_MEMORY = 6 << 20  # KiB; a process that has more is followed by another


class Worker:
    """What a process knows.

    Args:
        folder: where it writes: `state` has the input that runs, `counts.json` what ran so far, `finds` what failed.
        seed: of its inputs.
        files: of tests; all if there are none.
        only: what the name of a target must contain.
    """

    def __init__(self, folder: Path, seed: str, files: list[Path], only: str) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.left_out: list[str] = []
        known = targets.find(files, self.left_out.append)
        self.targets = {name: target for name, target in known.items() if only in name}
        self.places = {name: place for place, name in enumerate(self.targets)}
        self.kept = inputs.corpus()
        self.ran = self.gave_nothing = 0
        self.errors: dict[Any, int] = {}
        with (folder / "state").open("w+b") as file:
            file.truncate(ROOM)
            self.state = mmap.mmap(file.fileno(), ROOM)
        self.number = 0

    def run(self, deadline: float) -> None:
        """All targets in turns until then."""
        order = list(self.targets)
        self.save()
        saved = time.monotonic()
        while time.time() < deadline:
            self.random.shuffle(order)
            turn = min(max((deadline - time.time()) / 4 / len(order), _SHORTEST), _LONGEST)
            for name in order:
                self.turn(name, turn * (_OF_KERNELS if name.startswith("kernels/") else 1), deadline)
                if time.time() >= deadline or _memory() > _MOST_MEMORY:
                    return self.save()
                if time.monotonic() - saved > _SAVES:
                    self.save()
                    saved = time.monotonic()
        return self.save()

    def turn(self, name: str, seconds: float, deadline: float) -> None:
        """One target for some time, with one input at least."""
        kept, began = self.kept.get(name, []), time.monotonic()
        while True:
            self.run_input(name, inputs.new(self.random, kept))
            if time.monotonic() - began > seconds or time.time() >= deadline:
                break

    def run_input(self, name: str, data: bytes) -> None:
        """One target with one input, which is noted first."""
        self.number += 1
        self.state[: HEADER.size + len(data)] = HEADER.pack(self.number, self.places[name], len(data)) + data
        try:
            ran = self.targets[name](data)
        except Exception as error:
            self.keep(name, data, error)
            ran = True
        self.ran += ran
        self.gave_nothing += not ran

    def keep(self, name: str, data: bytes, error: Exception) -> None:
        """Write down what was found, unless much of this kind was found before."""
        frames = traceback.extract_tb(error.__traceback__)
        kind = name, type(error), frames[-1].filename, frames[-1].lineno
        self.errors[kind] = self.errors.get(kind, 0) + 1
        if self.errors[kind] <= _MOST_KEPT:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            inputs.write(self.folder / "finds", name, data, trace)

    def save(self) -> None:
        """Write the counts: inputs that ran, inputs that gave nothing."""
        done = {"targets": list(self.targets), "ran": self.ran, "gave nothing": self.gave_nothing}
        done["left out"] = self.left_out
        path = self.folder / "counts.json"
        path.with_suffix(".new").write_text(json.dumps(done))
        path.with_suffix(".new").replace(path)


def _memory() -> int:
    """Resident memory, KiB."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True, help="from the first input on")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("files", type=Path, nargs="*")
    options = parser.parse_args()
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        faulthandler.enable()
    targets.prepare()
    worker = Worker(options.folder, options.seed, [file.resolve() for file in options.files], options.only)
    gc.collect()
    gc.freeze()
    worker.run(time.time() + options.seconds)


if __name__ == "__main__":
    main()
