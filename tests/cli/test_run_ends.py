"""How a script ends under `quadrat run`: with the status and the traceback of without, and a report."""

import signal

import pytest

from support.command import ran_alike

# Makes batches of which the report has to say everything that it can say.
BATCHES = """
import logging
from transformers import DefaultDataCollator

logging.getLogger("quadrat").setLevel(logging.ERROR)
collate = DefaultDataCollator()
for length in range(1, 9):
    collate([{"input_ids": [1] * 40, "attention_mask": [1] * 5 * length + [0] * (40 - 5 * length)}] * 16)
    collate([{"a": [1, 0.5]}])
"""
ENDS = {
    "all is done": ("", 0),
    "a status": ("sys.exit(7)", 7),
    "a message": ("sys.exit('gone')", 1),
    "an error": ("def f():\n    raise ValueError('boom')\nf()", 1),
    "an interrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
    "termination": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -signal.SIGTERM),
    "at once": ("os._exit(5)", 5),
    "a handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
        3,
    ),
    "a handler of interrupts": (
        "def stop(*_):\n    raise KeyboardInterrupt('mine')\nsignal.signal(signal.SIGINT, stop)\n"
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
        -signal.SIGINT,
    ),
    "an error at exit": ("atexit.register(int, 'x')\nsys.exit(4)", 4),
    "an error at exit after an interrupt": ("atexit.register(int, 'x')\nraise KeyboardInterrupt", -signal.SIGINT),
}
SCRIPTS = {
    **ENDS,
    "arguments": ("print(sys.argv, sys.path[0], __file__, __name__, __spec__, sys.stdin.read())", 0),
    "syntax": ("a b", 1),
    "customized": ("print([name for name in sys.path if 'quadrat' in name and 'bootstrap' in name])", 0),
}
MODULES = "import atexit, os, signal, subprocess, sys, time\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_as_under_python(tmp_path, name):
    code, status = SCRIPTS[name]
    (tmp_path / "script.py").write_text(f"{MODULES}{code}")
    done = ran_alike(tmp_path, "script.py", "--max-tokens", "-m", "x", input="typed")
    assert done.returncode == status
    assert not list(tmp_path.glob("quadrat-run-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "where"),
    [*((end, "here") for end in ENDS), *((end, "in a process") for end in ("a status", "an interrupt"))],
)
def test_ends_as_under_python(tmp_path, end, where):
    code, status = ENDS[end]
    batches = "import batches" if where == "here" else "subprocess.run([sys.executable, 'batches.py'], check=True)"
    (tmp_path / "script.py").write_text(f"{MODULES}{batches}\n{code}\n")
    (tmp_path / "batches.py").write_text(BATCHES)
    done = ran_alike(tmp_path, "script.py", reports=True)
    assert done.returncode == status
    if status == -signal.SIGTERM or end == "at once":
        return
    report = "\n".join(line for line in done.stderr.splitlines() if line.startswith("quadrat run:"))
    for part in (
        "16 batches: 8 compiled, 8 fell back",
        "8 times DefaultDataCollator",
        "of the 5,120 tokens in batches",
    ):
        assert part in report
