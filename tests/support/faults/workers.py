"""Workers of a DataLoader that are killed, and shared memory that is full."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import quadrat
from support import samples, works
from support.faults import row

_NAME = "DataCollatorForTokenClassification"
_ROWS = 400
_SECONDS = 120


class KillsLater:
    """Collates; the worker that meets the row of this label is killed, where killing is on."""

    def __init__(self, collator: Any) -> None:
        self.collator, self.at = collator, -1

    def __call__(self, features: Any) -> Any:
        batch = self.collator([{key: row[key] for key in row if key != "number"} for row in features])
        if self.at in [row["number"] for row in features]:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch


def _dataset(kind: str) -> Any:
    batch = samples.batch(_NAME)
    rows = [{**batch[number % len(batch)], "number": number} for number in range(_ROWS)]
    return quadrat.ArrowDataset(datasets.Dataset.from_list(rows)) if kind == "ArrowDataset" else rows


def _loader(kind: str, collate: Any, method: str) -> Any:
    options = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": method, "timeout": _SECONDS}
    return DataLoader(_dataset(kind), collate_fn=collate, **options)


def killed(quick: bool) -> Iterator[str]:
    """A worker is killed in mid-epoch; the next epoch is complete, with the same collator."""
    kinds = ["plain", "deferred", "ArrowDataset"]
    combinations = [(method, kind) for method in ("fork", "forkserver", "spawn") for kind in kinds]
    if quick:
        combinations = [("fork", "ArrowDataset")]
    for method, kind in combinations:
        yield _killed(method, kind, 1 if quick else 5 if method == "fork" else 2)


def _killed(method: str, kind: str, times: int) -> str:
    collate = KillsLater(samples.make(quadrat, _NAME, deferred=kind == "deferred"))
    reference = samples.make(transformers, _NAME)
    rows = _dataset("plain")
    strip = [{key: value for key, value in row.items() if key != "number"} for row in rows]
    expected = [works.picture(reference(strip[first : first + 4])) for first in range(0, _ROWS, 4)]
    left = set(os.listdir("/dev/shm"))
    slowest = 0.0
    for time_ in range(times):
        collate.at = 80 + 40 * time_
        began = time.monotonic()
        # torch reports a killed worker, or a connection that broke during a transfer.
        with pytest.raises((RuntimeError, ConnectionError, EOFError)):  # noqa: PT012
            for batch, right in zip(_loader(kind, collate, method), expected, strict=True):
                assert works.picture(batch) == right
        slowest = max(slowest, time.monotonic() - began)
        collate.at = -1
        whole = [works.picture(batch) for batch in _loader(kind, collate, method)]
        assert whole == expected, "the next epoch is another"
    grown = len(set(os.listdir("/dev/shm")) - left)
    text = f"torch's error after at most {slowest:.1f} s, next epoch right; {grown} segments left in /dev/shm"
    return row(f"a worker is killed, {method}: {kind}", times, text)


def full(quick: bool) -> Iterator[str]:
    """Shared memory is full, in a small /dev/shm of one's own."""
    what = "/dev/shm is full"
    if shutil.which("unshare") is None:
        yield row(what, 0, "skipped: there is no unshare(1)")
        return
    inside = (
        "mount -t tmpfs -o size=2m tmpfs /dev/shm || exit 77; exec "
        f"{sys.executable} -c 'from support.faults import workers; workers.inside({int(quick)})'"
    )
    command = ["unshare", "-r", "-m", "sh", "-c", inside]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=600, check=False
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        yield row(what, 0, f"skipped: no mount of one's own is allowed ({done.stderr.strip().splitlines()[-1][:60]})")
        return
    assert done.returncode == 0, done.stderr[-3000:]
    for line in done.stdout.splitlines():
        if line.startswith("row:"):
            count, _, text = line.removeprefix("row:").partition(" ")
            yield row(what, int(count), text)


def inside(quick: int) -> None:
    """What is done where /dev/shm has two mebibytes. Prints a row."""
    collator, reference = samples.make(quadrat, _NAME), samples.make(transformers, _NAME)
    small = samples.batch(_NAME)
    large = [{"input_ids": [7] * 40_000, "labels": [1] * 40_000} for _ in range(4)]
    messages = set()
    times = 3 if quick else 50
    expected = works.picture(reference(small))
    for _ in range(times):
        loader = iter(_bare_loader([small, large, small], collator))
        assert works.picture(next(loader)) == expected
        messages.add(_error(loader))
        assert works.picture(next(loader)) == expected, "a batch after the error is lost"
        assert works.picture(collator(small)) == expected
    del loader
    assert os.listdir("/dev/shm") == []
    (ours,) = {re.sub(r": [\d,]+ are left", ": ... are left", message) for message in messages}
    # The reference's worker loses the batch when it is to be sent, and the loader waits for it.
    theirs = _error(iter(_bare_loader([large], reference, timeout=5)))
    sys.stdout.write(f"row:{times} {ours}; with the reference: {theirs}; batches before and after are right\n")


def _bare_loader(items: Any, collate: Any, timeout: int = _SECONDS) -> Any:
    return DataLoader(items, batch_size=None, collate_fn=collate, num_workers=1, timeout=timeout)


def _error(loader: Any) -> str:
    """What the next batch raises: the type, and its last line."""
    try:
        batch = next(loader)
    except RuntimeError as error:
        last = [line for line in str(error).splitlines() if "Error:" in line or "killed" in line]
        return f"RuntimeError: {(last or [str(error)])[-1][:100]}"
    raise AssertionError(f"no error, but {torch.as_tensor(batch['input_ids']).shape}")
