"""The fuzzer: `make fuzz SECONDS=600`. Runs the property tests on bytes, from which hypothesis draws.

    python tests/fuzz/driver.py [--seconds 60] [--jobs 2] [--sanitized SITE] [--only NAME] [FILE ...]
    python tests/fuzz/driver.py --repeat FIND

Each process runs all targets in turns. With `--sanitized`, the folder of a build with AddressSanitizer and
UndefinedBehaviorSanitizer, every second process uses that build. A process that crashes, or hangs, is followed by
another; the input that did it is kept in `build/fuzz/finds` like those that raise. The exit status is 1 if there is a
find.

Bytes are changed without a look at what they cover: libFuzzer and atheris do that, but need clang and its runtime,
where the rest of the project needs any compiler.
"""

import argparse
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import inputs
from fuzz.worker import HEADER
from support.sanitize import environment

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
_HANGS = 300  # seconds for one input, or for the start
_REST = 20  # seconds that a new process is worth starting for


say = functools.partial(print, flush=True)


def _environment(sanitized: Path | None, reports: Path) -> dict[str, str]:
    variables = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DATASETS_DISABLE_PROGRESS_BARS"), "1")
    variables |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
    if sanitized is None:
        return {**os.environ, **variables}
    # What is reported of a signal comes from the sanitizer.
    return {**environment(sanitized.resolve(), reports), **variables}


@dataclass
class Process:
    """A worker, and those that follow it when it ends."""

    number: int
    sanitized: Path | None
    options: argparse.Namespace
    ends: float
    runs: int = 0
    noticed: float = 0.0  # when the count of inputs was seen to change
    seen: int = 0
    folder: Path = BUILD
    child: Any = None

    def start(self) -> None:
        self.runs += 1
        self.folder = self.options.folder / f"{'sanitized' if self.sanitized else 'plain'}-{self.number}.{self.runs}"
        self.folder.mkdir(parents=True)
        seed = f"{self.options.seed}/{self.number}/{self.runs}"
        left = self.ends - time.time() if self.runs > 1 else self.options.seconds
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(self.folder)]
        command += [*map(str, self.options.files), f"--seconds={left}", f"--seed={seed}", f"--only={self.options.only}"]
        environment = _environment(self.sanitized, self.folder / "report")
        with (self.folder / "log").open("wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            self.child = subprocess.Popen(command, cwd=ROOT, env=environment, **streams)
        self.noticed, self.seen = time.time(), 0

    def running(self) -> bool:
        """Look after the worker: whether it runs, or another in its place."""
        status: Any = self.child.poll()
        if status is None:
            count = self._state()[0]
            if count != self.seen:
                if not self.seen and self.runs == 1:
                    self.ends = time.time() + self.options.seconds
                self.noticed, self.seen = time.time(), count
            if time.time() - self.noticed < _HANGS:
                return True
            self.stop()
            status = f"hung for {_HANGS} seconds"
        if status != 0:
            self._crashed(f"ended with {status}")
        if time.time() + _REST > self.ends:
            return False
        self.start()
        return True

    def stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def _state(self) -> tuple[int, int, bytes]:
        """Inputs so far, and the target and the input that run."""
        state = self.folder / "state"
        data = state.read_bytes() if state.exists() else bytes(HEADER.size)
        count, target, size = HEADER.unpack_from(data)
        return count, target, data[HEADER.size : HEADER.size + size]

    def _crashed(self, what: str) -> None:
        count, target, data = self._state()
        log = (self.folder / "log").read_text(errors="replace")[-6000:]
        if not count:
            raise SystemExit(f"a process {what} before its first input:\n{log}")
        reports = "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("report.*")))[:6000]
        name = json.loads((self.folder / "counts.json").read_text())["targets"][target]
        inputs.write(self.folder / "finds", name, data, f"{what}\n{reports}\n{log}")


def repeat(path: Path) -> int:
    from fuzz import targets

    targets.prepare()
    wanted = inputs.read(path)
    known = targets.find([targets.TESTS / name.partition("::")[0] for name, _ in wanted])
    for name, data in wanted:
        known[name](data)
        say(f"passed: {name} {data.hex()}")
    return 0


def replay(options: argparse.Namespace) -> int:
    """Run the inputs that are kept and some fixed ones, in this process."""
    from fuzz import targets

    targets.prepare()
    kept, count = inputs.corpus(), 0
    for name, target in targets.find(options.files).items():
        draw = random.Random(name)
        some = kept.get(name, [])
        for data in [*some, *(inputs.new(draw, some) for _ in range(options.replay))]:
            count += target(data)
    say(f"{count} inputs passed")
    return 0


def fuzz(options: argparse.Namespace) -> int:
    """Run workers until the time is over; 1 if there is a find."""
    shutil.rmtree(options.folder, ignore_errors=True)
    sites = [None, options.sanitized] if options.sanitized else [None]
    ends = time.time() + options.seconds
    jobs = max(options.jobs, len(sites))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background of a shell
    processes = [Process(number, sites[number % len(sites)], options, ends) for number in range(jobs)]
    try:
        for process in processes:
            process.start()
        while [process for process in processes if process.running()]:
            time.sleep(0.5)
    except KeyboardInterrupt:
        say("stopped")
    finally:
        for process in processes:
            process.stop()
    finds = sorted(options.folder.glob("*/finds/*.txt"))
    kept = options.folder / "finds"
    kept.mkdir(parents=True)
    for find in finds:
        shutil.copy(find, kept / find.name)
    counts = [json.loads(path.read_text()) for path in options.folder.glob("*/counts.json")]
    for what in sorted({what for done in counts for what in done["left out"]}):
        say(f"left out: {what}")
    for find in finds:
        where = " (of the build with sanitizers)" if "sanitized" in find.parents[1].name else ""
        say(f"\n{find.read_text()[:3000]}\nrepeat it{where}: python tests/fuzz/driver.py --repeat {kept / find.name}")
    ran, nothing = (sum(done[which] for done in counts) for which in ("ran", "gave nothing"))
    say(f"\n{ran:,} inputs, {len(finds)} finds in {kept} ({nothing:,} further byte strings are no case of their test)")
    return bool(finds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the property tests on bytes.")
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    parser.add_argument("--sanitized", type=Path, help="folder of a build with sanitizers, for every second process")
    parser.add_argument("--only", default="", help="targets whose names contain this")
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the inputs (the time)")
    parser.add_argument("--folder", type=Path, default=BUILD, help="where it writes; what is there is removed")
    parser.add_argument("--repeat", type=Path, help="a file of inputs to run again")
    parser.add_argument("--replay", type=int, help="only the corpus, and so many fixed inputs for each target")
    parser.add_argument("files", type=Path, nargs="*", help="files of tests (all)")
    options = parser.parse_args()
    options.files = [file.resolve() for file in options.files]
    if options.replay is not None:
        return replay(options)
    return repeat(options.repeat) if options.repeat else fuzz(options)


if __name__ == "__main__":
    raise SystemExit(main())
