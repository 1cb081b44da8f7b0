"""`quadrat run`: starts a script in a Python of its own, in place of this process.

A `sitecustomize` module, which that Python imports at its start, calls hooks when libraries have been imported.
"""

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from quadrat.cli.command import CommandError

_OPTIONS = "--remove-padding", "--max-tokens", "--report", "--quiet"
_BOOTSTRAP = Path(__file__).with_name("bootstrap")


def run(options: Namespace) -> int:
    """Replace this process by a Python that runs a script, a module or code. Raises CommandError."""
    command = options.script
    if options.module is not None or options.code is not None:
        command = ["-m", *options.module] if options.module is not None else ["-c", *options.code]
    if not command or command in (["-m"], ["-c"]):
        raise CommandError("name a script: quadrat run train.py, or quadrat run -m package.module")
    if sys.flags.ignore_environment:
        raise CommandError("Python was started with -E or -I, and ignores the variable by which quadrat is loaded")
    if options.report is not None:
        _require_place_for(Path(options.report))
    settings = {
        "max_tokens": options.max_tokens,
        "remove_padding": options.remove_padding,
        "report": options.report,
        "quiet": options.quiet,
        "reports": bool(options.max_tokens or options.remove_padding or options.report),  # whatever the script does
        "misplaced": [word for word in command[1:] if word.partition("=")[0] in _OPTIONS],
        **_place(),
        "process": os.getpid(),  # that the script runs in
        "started": time.time(),
    }
    paths = [str(_BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "QUADRAT_RUN": json.dumps(settings), "PYTHONPATH": os.pathsep.join(paths)}
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    arguments = [sys.executable, *flags, *command]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or nobody reads it
            stream.flush()  # `os.execve` drops what is still in Python's buffers
    if os.name == "nt":  # where another process would be started, and this one end at once
        return subprocess.call(arguments, env=environment)
    os.execve(sys.executable, arguments, environment)


def _require_place_for(report: Path) -> None:
    """Raises CommandError if a file cannot be written there, before the script has run."""
    if report.is_dir():
        raise CommandError(f"--report {report}: that is a folder, name a file in it")
    if not report.parent.is_dir():
        raise CommandError(f"--report {report}: there is no folder {report.parent}, make it first")
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise CommandError(f"--report {report}: it may not be written")


def _place() -> dict[str, Any]:
    """The folder where the processes of this run write their events, and how many of them end with one report."""
    run_id, ranks = os.environ.get("TORCHELASTIC_RUN_ID"), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if run_id is None or ranks == 1:
        name, ranks = secrets.token_hex(8), 1
    else:
        parts = (run_id, os.environ.get("MASTER_PORT"), os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.getppid())
        name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return {"folder": str(Path(tempfile.gettempdir(), f"quadrat-run-{name}")), "ranks": ranks}
