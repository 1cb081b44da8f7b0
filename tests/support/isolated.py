"""Calls in processes of their own, because a call that reads beyond its memory may end the process."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS = 60
TESTS = Path(__file__).parents[1]


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


def ended(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """An interpreter of its own, which finds what the tests import."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def python(*arguments: object, **variables: str) -> str:
    """The output of a new interpreter, whose status must be 0."""
    return checked(ended(*arguments, **variables))


def checked(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a process, whose status must be 0."""
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def launch(call: Callable[..., Any], *arguments: object, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Processes of `torchrun` that call a function of a module, with a folder for their results, and texts."""
    torchrun = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes
    home = Path(call.__code__.co_filename).relative_to(TESTS).with_suffix("")
    return ended(*torchrun, TESTS / "support/one_of_two.py", ".".join(home.parts), call.__name__, *arguments)


def in_two(call: Callable[..., Any], folder: Path, *arguments: object) -> list[Any]:
    """What a function returns in each of two processes of `torchrun`."""
    import torch

    checked(launch(call, folder, *arguments))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def words(program: str) -> list[str]:
    """The words that a program prints. Warnings end it."""
    return python("-W", "error", "-c", program).split()
