"""What the longer commands of the Makefile run: `make matrix` runs the session `matrix`, and so on.

Arguments come after `--` (`make leaks ARGS="--batches 2000"`), other options from the environment
(`make fuzz SECONDS=60`).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.options.default_venv_backend = "uv"
nox.options.envdir = "build/nox"
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
BIN = ROOT / ".venv" / "bin"
JOBS = os.environ.get("JOBS") or str(os.cpu_count())


def runs(python: str) -> bool:
    """True if there is such a Python: the stand-in of one that pyenv has not switched on fails."""
    path = shutil.which(python)
    return path is not None and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


# Of transformers: 4 is 4.57, and `newest` what .venv has. The others are dependency groups, of all packages together.
VERSIONS = ("4", "5.0", "5.6", "5.12", "5.14", "5.18", "5.22", "5.23", "newest")
EXTREMES = ("oldest", "latest")
# What `latest` runs on, for NumPy's newest releases are for new Pythons alone.
NEWEST_PYTHON = next((name for minor in (14, 13, 12) if runs(name := f"python3.{minor}")), None)
WHEEL_PYTHON = os.environ.get("WHEEL_PYTHON")
# One thread of torch for each process; the address of the compiler, for what tests compile.
TESTS = {"OMP_NUM_THREADS": "1", "CXX": os.environ.get("CXX", "c++")}
PYTEST = ("-m", "pytest", "--numprocesses", JOBS, "--dist", "worksteal")


def here(session: nox.Session, *command: str, **variables: str) -> None:
    """Run a program of .venv."""
    session.run(str(BIN / command[0]), *command[1:], env=TESTS | variables, external=True)


def built(session: nox.Session) -> str:
    """The wheel of the sources as they are, which the Makefile builds."""
    session.run("make", "--no-print-directory", "--silent", "build/dev/.built", external=True)
    (wheel,) = (ROOT / "build" / "dev").glob("*.whl")
    return str(wheel)


@nox.session(venv_backend="none")
def matrix(session: nox.Session) -> None:
    """tests/identity in one environment after the other, however those before went; then a table of all."""
    shutil.rmtree(ROOT / "build" / "matrix", ignore_errors=True)
    for version in (*VERSIONS, *EXTREMES):
        session.notify(f"versions({version})")
    session.notify("table", session.posargs)


@nox.session
@nox.parametrize(
    "python,version",
    [nox.param(NEWEST_PYTHON if name == "latest" else None, name, id=name) for name in (*VERSIONS, *EXTREMES)],
)
def versions(session: nox.Session, version: str) -> None:
    """tests/identity with one version of transformers."""
    if version in EXTREMES:
        session.install("--group", version)
    else:
        number = "5.24" if version == "newest" else "4.57" if version == "4" else version
        session.install("--group", "base", f"transformers=={number}.*")
    package = "." if session.python else built(session)
    session.install("--no-deps", "--reinstall-package", "quadrat", package, env={"QUADRAT_CUDA": "OFF"})
    report = f"--junitxml=build/matrix/{version}.xml"
    # Code that is not known yet is compiled: so it becomes known.
    profile = os.environ.get("HYPOTHESIS_PROFILE", "thorough")
    variables = TESTS | {"QUADRAT_UNTESTED": "1", "HYPOTHESIS_PROFILE": profile}
    session.run("python", *PYTEST, "tests/identity", report, env=variables)


@nox.session
def trl(session: nox.Session) -> None:
    """The collators of TRL with one version after the other; with --record, their code is known from then on."""
    session.install("--group", "base", "transformers==5.24.*", "accelerate", "datasets")
    session.install("--no-deps", "--reinstall-package", "quadrat", built(session), env={"QUADRAT_CUDA": "OFF"})
    names = [f"trl-1.{minor}" for minor in range(17)]
    for name in names:
        session.install("--no-deps", name.replace("-", "==") + ".*")
        tests, report = "tests/integration/test_trl_collators.py", f"--junitxml=build/matrix/{name}.xml"
        session.run("python", *PYTEST, tests, report, env=TESTS | {"QUADRAT_UNTESTED": "1"})
    here(session, "python", "tests/support/matrix.py", "build/matrix", *names, *session.posargs)


@nox.session(venv_backend="none")
def table(session: nox.Session) -> None:
    """The end of `make matrix`; with --record, docs/compatibility.md too."""
    here(session, "python", "tests/support/matrix.py", "build/matrix", *VERSIONS, *EXTREMES, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """All benchmarks, some with transformers 4.57 too; then the tables of README and docs. With arguments, those alone.

    If one fails, because a replacement is slower or its results differ, those of the others are written all the same.
    """
    columns = "--benchmark-columns=median,iqr,rounds"
    pytest = ("-m", "pytest", "--benchmark-only", "--benchmark-disable-gc", columns)
    if session.posargs:
        here(session, "python", *pytest, "benchmarks", *session.posargs)
        return
    file, failed = ROOT / "build" / "benchmarks.json", None
    file.unlink(missing_ok=True)
    store = ("--benchmark-quiet", f"--benchmark-json={file}")
    try:
        here(session, "python", *pytest, *store, "benchmarks")
    except CommandFailed as error:
        failed = error
    here(session, "python", "-m", "benchmarks.results", str(file))
    session.install("--group", "base", "--group", "bench", "transformers==4.57.*")
    session.install("--no-deps", "--reinstall-package", "quadrat", built(session))
    both_majors = [f"benchmarks/test_{job}.py" for job in ("language", "peers", "remove_padding")]
    session.run("python", *pytest, *store, *both_majors, env=TESTS)
    here(session, "python", "-m", "benchmarks.results", str(file))
    here(session, "python", "-m", "benchmarks.pictures")
    pages = [str(page) for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")) if "[[[cog" in page.read_text()]
    here(session, "python", "-m", "cogapp", "-P", "-r", "-I", "benchmarks", *pages)
    if failed is not None:
        raise failed


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, in build/docs/site. Warnings are errors, and so are broken links."""
    session.install("--group", "docs")
    session.run("python", "-m", "mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


def sanitized(session: nox.Session, sanitizer: str) -> str:
    """The folder of a build with a sanitizer."""
    folder = ROOT / "build" / "sanitize" / sanitizer
    options = {
        "build-dir": folder / "cmake",
        "cmake.build-type": "RelWithDebInfo",
        "install.strip": "false",
        "cmake.define.QUADRAT_SANITIZE": {"address": "address,undefined"}.get(sanitizer, sanitizer),
        "cmake.define.QUADRAT_CUDA": "OFF",
        "cmake.define.QUADRAT_EMULATE": "ON",
    }
    settings = [word for name, value in options.items() for word in ("--config-settings", f"{name}={value}")]
    target = ("--python", str(BIN / "python"), "--target", str(folder / "site"))
    flags = ("--no-build-isolation", "--no-deps", "--reinstall-package", "quadrat", "--quiet")
    here(session, "uv", "pip", "install", *flags, *target, *settings, ".")
    return str(folder / "site")


@nox.session(venv_backend="none")
def sanitize(session: nox.Session) -> None:
    """The tests under AddressSanitizer and UBSan; with SANITIZER=thread, those that start threads."""
    site = sanitized(session, os.environ.get("SANITIZER", "address"))
    here(session, "python", "tests/support/sanitize.py", site, *session.posargs)


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """The property tests on bytes, SECONDS long; half of the processes use the build with sanitizers."""
    options = (
        "--seconds",
        os.environ.get("SECONDS", "600"),
        "--jobs",
        JOBS,
        "--sanitized",
        sanitized(session, "address"),
    )
    here(session, "python", "tests/fuzz/driver.py", *options, *session.posargs)


@nox.session(venv_backend="none")
def faults(session: nox.Session) -> None:
    """Faults injected while batches are made."""
    here(session, "python", "-m", "support.faults", *session.posargs, PYTHONPATH="tests")


@nox.session(venv_backend="none")
def leaks(session: nox.Session) -> None:
    """What 200,000 batches of each kind leave behind."""
    here(session, "python", "-m", "support.leaks", "--processes", JOBS, *session.posargs, PYTHONPATH="tests")


def epoch() -> dict[str, str]:
    """The time of every file in an archive, so that a second build gives the same bytes."""
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False, cwd=ROOT)
    return {"SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH") or commit.stdout.strip() or "1577836800"}


@nox.session(python=[WHEEL_PYTHON] if WHEEL_PYTHON else None)  # a list: each Python has an environment of its own
def wheel(session: nox.Session) -> None:
    """The wheel to distribute, in dist/: linked with zig against glibc 2.17 (manylinux2014), and checked.

    WHEEL_PYTHON=python3.14t builds for another interpreter. QUADRAT_CUDA=OFF leaves the CUDA kernels out.
    PROCESSOR=aarch64 builds for that processor, without them, and runs the tests of the kernels with qemu-user, on
    Debian or Ubuntu.
    """
    session.install("--group", "wheel")
    host = platform.machine()
    processor = os.environ.get("PROCESSOR", host)
    folder = ROOT / "build" / "wheel"
    script = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"
    zig = session.run("python", "-c", script, silent=True) or ""
    variables = {
        **epoch(),
        "ZIG": zig.strip(),
        "ZIG_TARGET": f"{processor}-linux-gnu.2.17",
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "cmake" / "zig.cmake"),
    }
    if cross := processor != host:  # the wheel's tag, and the names of its modules
        variables["QUADRAT_CUDA"] = "OFF"
        variables["_PYTHON_HOST_PLATFORM"] = f"linux-{processor}"
        variables["SETUPTOOLS_EXT_SUFFIX"] = sysconfig.get_config_var("EXT_SUFFIX").replace(host, processor)
    shutil.rmtree(folder / "linux", ignore_errors=True)
    build = ("--wheel", "--no-isolation", "--outdir", str(folder / "linux"))
    session.run("python", "-m", "build", *build, "-C", f"build-dir={folder}/{{wheel_tag}}", ".", env=variables)
    (built,) = (folder / "linux").glob("*.whl")
    session.run("auditwheel", "repair", "--wheel-dir", "dist", str(built), env=epoch())
    tags = built.name.removesuffix(f"linux_{processor}.whl")
    wheels = [str(path) for path in (ROOT / "dist").glob(f"{tags}manylinux*_{processor}.whl")]
    check = ("--only-contents",) if cross else ("--python", f"{session.bin}/python")
    session.notify("check_wheel", (*check, *wheels, *session.posargs))
    if cross:
        variables = {"UV": str(BIN / "uv")}
        session.run("tests/support/under_qemu.sh", *wheels, str(folder / "qemu"), env=variables, external=True)


@nox.session(venv_backend="none")
def check_wheel(session: nox.Session) -> None:
    """The end of `make wheel`, in .venv: its packages have no wheels for some other Pythons."""
    here(session, "python", "tests/support/check_wheel.py", *session.posargs)


@nox.session
def sdist(session: nox.Session) -> None:
    """The source distribution in dist/: complete, and two wheels that are built of it offline are the same bytes."""
    session.install("--group", "wheel", "--group", "check")
    session.run("python", "tests/support/check_sdist.py", "dist", env=epoch())
    archives = [str(path) for path in (ROOT / "dist").glob("*.tar.gz")]
    session.run("python", "-m", "twine", "check", "--strict", *archives)


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """A new dist/: `make sdist`, and `make wheel` for each Python of this machine; all of it is installed and used."""
    here(session, "python", "tests/support/release.py", *session.posargs, **epoch())
