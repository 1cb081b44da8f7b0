"""Tests against a sanitized build: `make sanitize`, and `make sanitize SANITIZER=thread`.

    python tests/support/sanitize.py SITE [-j PROCESSES] [PATH ...]

SITE is the folder the build is installed in; its parent is named after the sanitizer, `address` (which has
UndefinedBehaviorSanitizer with it) or `thread`. Reports are files in SITE/../reports, because pytest would keep what is
written to standard error from a process that ends. The exit status is 1 if a test failed or there is a report.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

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
# Not the warnings of memory that could not be had, which tests ask for.
REPORT = re.compile(
    r".*(?:ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|Sanitizer:DEADLYSIGNAL|Sanitizer:? CHECK failed|runtime error:)"
    r".*"
)


def left_out(sanitizer: str) -> dict[str, str]:
    return LEFT_OUT | (NOT_IN_THREADS if sanitizer == "thread" else {})


def selected(paths: Sequence[Path], sanitizer: str) -> list[str]:
    """What pytest is given for a sanitizer: paths, and options that leave tests out."""
    tests = left_out(sanitizer)
    chosen = [str(path.resolve().relative_to(ROOT)) for path in paths]
    if sanitizer == "thread":  # pytest takes files that are named, though it is told to ignore their folder
        files = {file.resolve().relative_to(ROOT) for path in paths for file in [path, *path.rglob("test_*.py")]}
        threaded = sorted(file for file in files if file.suffix and THREADED.search((ROOT / file).read_text()))
        chosen = [str(file) for file in threaded if not any(str(path) in tests for path in (file, *file.parents))]
    return chosen + [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in tests]


def preloaded(*names: str) -> dict[str, str]:
    """The variable that loads libraries of the compiler before an interpreter that knows nothing of them."""
    compiler = os.environ.get("CXX", "c++")
    commands = ([compiler, f"-print-file-name={name}"] for name in names)
    paths = [subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip() for line in commands]
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


def reported(reports: Path) -> list[str]:
    """The first line of each report."""
    texts = {path: path.read_text(errors="replace").splitlines() for path in sorted(reports.glob("report.*"))}
    return [f"{path}: {line.strip()}" for path, lines in texts.items() for line in lines if REPORT.match(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description="All tests against a sanitized build.")
    parser.add_argument("site", type=Path, help="folder that the build is installed in")
    parser.add_argument("paths", type=Path, nargs="*", default=[ROOT / "tests"], help="files or folders of tests")
    parser.add_argument("-j", dest="processes", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    options = parser.parse_intermixed_args()
    site = options.site.resolve()
    sanitizer, reports = site.parent.name, site.parent / "reports"
    not_here = left_out(sanitizer)
    if gone := [name for name in not_here if not (ROOT / name.partition("::")[0]).exists()]:
        parser.error(f"left out, and not there: {', '.join(gone)}")
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    call = functools.partial(subprocess.run, cwd=ROOT, env=environment(site, reports / "report"), check=False)
    call([sys.executable, Path(__file__).with_name("broken.py"), sanitizer], stderr=subprocess.DEVNULL)
    if not reported(reports):
        parser.error("the sanitizer does not report tests/support/broken.py")
    for path in reports.iterdir():
        path.unlink()
    # Without pytest's handler of signals, which would come before the sanitizers'. A process that ends is followed by
    # another, and pytest says in which test it ended.
    plugins = ("no:faulthandler", "no:cacheprovider", "support.fork_asleep")
    pytest = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", str(options.processes), "--dist", "loadfile"]
    done = call([*pytest, *(f"-p{name}" for name in plugins), *selected(options.paths, sanitizer)])
    print(f"\nNot run here: {', '.join(f'{what} ({why})' for what, why in not_here.items())}.")
    lines = reported(reports)
    print(*lines, f"{len(lines)} reports in {reports}", sep="\n")
    return bool(done.returncode or lines)


if __name__ == "__main__":
    raise SystemExit(main())
