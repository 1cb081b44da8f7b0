"""Tests against a sanitized build: `make sanitize`, and `make sanitize SANITIZER=thread`.

    python tests/support/sanitize.py SITE [-j PROCESSES] [PATH ...]

SITE is the folder the build is installed in; its parent is named after the sanitizer, `address` (which has
UndefinedBehaviorSanitizer with it) or `thread`. Each test file runs in a process of its own, because a report ends the
process, and writes to files of its own in SITE/../reports, because a report to a captured standard error is lost with
it. The exit status is 1 if a file failed or there is a report.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
say = functools.partial(print, flush=True)

# Tests that do not run here, and why: folders, files and tests.
LEFT_OUT = {
    "tests/cli": "the commands run collators that other tests run, in processes that each take long to start here",
    "tests/cuda": "no sanitizer sees what a GPU does; tests/kernels runs the same code on the CPU",
    "tests/packaging": "looks at wheels and sources, and runs no kernel",
    "tests/reliability/test_leaks.py::test_nothing_grows": "AddressSanitizer keeps what is freed, and so memory grows",
    "tests/functions/test_stats.py::test_info_prints_the_configuration": "starts a Python, which may take minutes here",
    "tests/integration/test_examples.py": "trains models for minutes, on batches like those of other tests",
}

_COPIES = "ThreadSanitizer ends copies of a process, such as workers of a DataLoader, that start threads"
# More that ThreadSanitizer does not run.
NOT_IN_THREADS = {
    "tests/identity/test_patch_iterable.py::test_a_data_loader_makes_the_same_batches": _COPIES,
    "tests/functions/test_stats.py::test_a_copied_process_begins_at_zero": _COPIES,
}

# Tests that start threads: ThreadSanitizer runs these.
THREADED = re.compile(r"import threading|support\.threads|support import .*threads")
# A file that takes longer hangs.
SECONDS = 2400
# Not the warnings of memory that could not be had, which tests ask for.
REPORT = re.compile(
    r".*(?:ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|Sanitizer:DEADLYSIGNAL|Sanitizer:? CHECK failed|runtime error:)"
    r".*"
)


@dataclass(frozen=True)
class Result:
    file: str
    said: str  # pytest's last line
    report: str  # the first line of the first report
    passed: bool
    seconds: float

    def __str__(self) -> str:
        line = f"{'passed' if self.passed else 'FAILED'}  {self.seconds:5.0f} s  {self.file}: {self.said}"
        return f"{line}\n        {self.report}" if self.report else line


def left_out(sanitizer: str) -> dict[str, str]:
    return LEFT_OUT | (NOT_IN_THREADS if sanitizer == "thread" else {})


def discover(paths: Sequence[Path], sanitizer: str) -> list[str]:
    """The test files below `paths` for a sanitizer, the largest first, so that none of the long ones begins last."""
    found = {file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
    files = sorted(found, key=lambda file: (-file.stat().st_size, file))
    if sanitizer == "thread":
        files = [file for file in files if THREADED.search(file.read_text())]
    names = [str(file.resolve().relative_to(ROOT)) for file in files]
    return [name for name in names if not any(str(path) in LEFT_OUT for path in (Path(name), *Path(name).parents))]


def preloaded(*names: str) -> dict[str, str]:
    """The variable that loads libraries of the compiler before an interpreter that knows nothing of them."""
    compiler = os.environ.get("CXX", "c++")
    commands = ([compiler, f"-print-file-name={name}"] for name in names)
    paths = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in commands]
    return {"LD_PRELOAD": " ".join(paths)}


def environment(site: Path, reports: Path) -> dict[str, str]:
    """What a process needs for the sanitizer of the build in `site`."""
    suppressions = os.environ.get("SUPPRESSIONS", Path(__file__).with_name(f"{site.parent.name}_suppressions.txt"))
    common = f"log_path={reports}:print_stacktrace=1"
    path = os.pathsep.join([str(site), str(ROOT / "tests")])
    shared = {**os.environ, "PYTHONPATH": path, "HYPOTHESIS_PROFILE": "sanitize"}
    options = f"suppressions={suppressions}:allocator_may_return_null=1:{common}"
    if site.parent.name == "thread":
        return {
            **shared,
            **preloaded("libtsan.so", "libstdc++.so"),
            "TSAN_OPTIONS": f"{options}:ignore_noninstrumented_modules=1",
        }
    # Python's own allocator would hide what is freed too early. The leaks are the interpreter's. Stacks are kept of all
    # memory the interpreter takes: short ones halve the time.
    return {
        **shared,
        **preloaded("libasan.so", "libstdc++.so"),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:verify_asan_link_order=0:malloc_context_size=8",
        "UBSAN_OPTIONS": common,
    }


def run(file: str, site: Path) -> Result:
    reports = site.parent / "reports"
    name = file.removeprefix("tests/").removesuffix(".py").replace("/", ".")
    output = reports / f"{name}.log"
    # Without pytest's capture, and without its handler of signals, which would come before the sanitizers'. The last
    # line says which test a process ended in.
    options = ["-v", "-s", "--color=no", "-p", "no:faulthandler", "-p", "no:cacheprovider", "-p", "support.fork_asleep"]
    command = [sys.executable, "-m", "pytest", file, *options]
    for test in left_out(site.parent.name):
        if test.startswith(f"{file}::"):
            command += ["--deselect", test]
    began = time.monotonic()
    with output.open("w") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        variables = environment(site, reports / f"{name}.report")
        child = subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True, **streams)
        try:
            status: int | str = child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = f"took more than {SECONDS} seconds"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # workers of a process that has died
        child.wait()
    lines = output.read_text(errors="replace").splitlines()
    found = [path.read_text(errors="replace").splitlines() for path in sorted(reports.glob(f"{name}.report.*"))]
    report = next((line.strip() for said in (*found, lines) for line in said if REPORT.match(line)), "")
    said = lines[-1].strip("= ") if lines and status in (0, 1) else f"ended with {status}"
    return Result(file, said, report, status == 0 and not report, time.monotonic() - began)


def sees_nothing(site: Path) -> bool:
    """Whether a call that is wrong on purpose goes unreported."""
    reports = site.parent / "reports" / "broken"
    script = Path(__file__).with_name("broken.py")
    command = [sys.executable, script, site.parent.name]
    subprocess.run(command, check=False, env=environment(site, reports), stderr=subprocess.DEVNULL)
    found = [REPORT.search(path.read_text(errors="replace")) for path in reports.parent.glob("broken.*")]
    return not any(found)


def main() -> int:
    parser = argparse.ArgumentParser(description="All tests against a sanitized build.")
    parser.add_argument("site", type=Path, help="folder that the build is installed in")
    parser.add_argument("paths", type=Path, nargs="*", default=[ROOT / "tests"], help="files or folders of tests")
    parser.add_argument("-j", dest="processes", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    options = parser.parse_intermixed_args()
    site = options.site.resolve()
    files = discover(options.paths, site.parent.name)
    if not files:
        parser.error("there are no tests")
    not_here = left_out(site.parent.name)
    if gone := [name for name in not_here if not (ROOT / name.partition("::")[0]).exists()]:
        parser.error(f"left out, and not there: {', '.join(gone)}")
    reports = site.parent / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    if sees_nothing(site):
        parser.error("the sanitizer does not report tests/support/broken.py")
    began = time.monotonic()
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, file, site) for file in files]):
            results.append(done.result())
            say(results[-1])
    failed = [result for result in results if not result.passed]
    say(f"\nNot run here: {', '.join(f'{what} ({why})' for what, why in not_here.items())}.")
    for result in failed:
        say(result)
    minutes = (time.monotonic() - began) / 60
    say(f"{len(files) - len(failed)} of {len(files)} files passed in {minutes:.0f} minutes; what they wrote: {reports}")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
