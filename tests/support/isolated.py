"""Calls in processes of their own, because a call that reads beyond its memory may end the process."""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS = 60


def told(call: Callable[[], Any]) -> str:
    """What became of a call: "gave ...", "raised Type: message", or "killed by ...", in a child of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_SECONDS)  # a child that waits for a thread which only its parent has is ended, and told as killed
        try:
            os.close(read)
            try:
                text = f"gave {call()}"
            except Exception as error:
                text = f"raised {type(error).__name__}: {error}"
            with os.fdopen(write, "w") as pipe:
                pipe.write(text)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return f"killed by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else text


def ended(*arguments: object, seconds: float | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """An interpreter of its own, which finds what the tests import."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def python(*arguments: object, seconds: float | None = None, **variables: str) -> str:
    """The output of a new interpreter, whose status must be 0."""
    done = ended(*arguments, seconds=seconds, **variables)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def in_two(script: str, *arguments: object, seconds: float | None = None) -> str:
    """The output of two processes of `torchrun` that run a script of `tests/support`."""
    torchrun = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2
    here = Path(__file__).parent
    return python(*torchrun, here / "one_of_two.py", here / script, *arguments, seconds=seconds)


def words(program: str) -> list[str]:
    """The words that a program prints. Warnings end it."""
    return python("-W", "error", "-c", program).split()


def run(script: str, *arguments: str) -> Any:
    """What a script of `tests/support` prints as JSON, run without pytest. What it imports is not loaded here."""
    return json.loads(python(Path(__file__).parent / script, *arguments).splitlines()[-1])
