"""`quadrat run`: starts a script in which quadrat replaces what it can, without a change to the script.

The script runs in a Python of its own, in place of this process. What that Python imports at its start, a
`sitecustomize` module, waits for the libraries to be imported, and patches them then.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from quadrat.cli.command import CommandError

VARIABLE = "QUADRAT_RUN"
_BOOTSTRAP = Path(__file__).with_name("bootstrap")


@dataclass(frozen=True)
class Options:
    """What the processes of a run are told.

    Attributes:
        max_tokens: the budget of a Trainer's training batches; 0: that of a usual batch; None: batches do not change.
        group_by_length: whether a Trainer groups rows by length.
        shapes: the number of shapes that a Trainer's training batches are filled to; None: any shape.
        quiet: whether there is no report.
        report: a file for the report, as JSON.
        folder: where processes leave what they counted.
        process: the number of the process that the script runs in.
        ranks: how many such processes share the folder.
    """

    max_tokens: int | None = None
    group_by_length: bool = False
    shapes: int | None = None
    quiet: bool = False
    report: str | None = None
    folder: str = ""
    process: int = 0
    ranks: int = 1


def launch(command: list[str], options: Options) -> int:
    """Replace this process by a Python that runs `command`: what follows `python` on a command line.

    Raises CommandError.
    """
    if not command or command in (["-m"], ["-c"]):
        raise CommandError("name a script: quadrat run train.py, or quadrat run -m package.module")
    if sys.flags.ignore_environment:
        raise CommandError("Python was started with -E or -I, and ignores the variable by which quadrat is loaded")
    folder, ranks = _folder()
    told = Options(**{**asdict(options), "folder": folder, "ranks": ranks, "process": os.getpid()})
    paths = [str(_BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, VARIABLE: json.dumps(asdict(told)), "PYTHONPATH": os.pathsep.join(paths)}
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    arguments = [sys.executable, *flags, *command]
    if os.name == "nt":  # where another process would be started, and this one end at once
        return subprocess.call(arguments, env=environment)
    os.execve(sys.executable, arguments, environment)


def _folder() -> tuple[str, int]:
    """Where the processes of this run leave what they counted, and how many have a report to make together."""
    run, ranks = os.environ.get("TORCHELASTIC_RUN_ID"), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if run is None or ranks == 1:
        name, ranks = secrets.token_hex(8), 1
    else:
        parts = (run, os.environ.get("MASTER_PORT"), os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.getppid())
        name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return str(Path(tempfile.gettempdir(), f"quadrat-run-{name}")), ranks
