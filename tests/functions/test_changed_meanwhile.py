"""Tensors that another thread changes while kernels read them: any result, but nothing outside is read or written.

In a process of its own, which a write outside its memory would end.
"""

import subprocess
import sys

import pytest

CODE = """
import contextlib, sys, threading, time
import torch
import quadrat
from quadrat.bert_padding import index_first_axis, index_put_first_axis, pad_input

names, seconds = sys.argv[1:-1], float(sys.argv[-1])
rows, width = 64, 512
size = rows * width
indices, far = torch.arange(0, size, 2), torch.arange(0, size, 2) + 2**34
calm, mask = indices.clone(), torch.ones(rows, width, dtype=torch.int64)
lengths, longest = torch.full((size,), 3), torch.full((size,), 2**40)
values = {token: torch.zeros(len(indices), token) for token in (1, 2, 5)}
tokens = {token: torch.zeros(size, token) for token in (1, 2, 5)}
running = True


def change():
    while running:
        indices[7:9000:3].copy_(far[7:9000:3])
        mask.bitwise_xor_(1)
        lengths.copy_(longest)
        indices.copy_(calm)
        lengths.fill_(3)


def call(name):
    for token in (1, 2, 5):
        if name == "put":
            index_put_first_axis(values[token], indices, size)
        elif name == "pad_input":
            pad_input(values[token], indices, rows, width)
        elif name == "take":
            index_first_axis(tokens[token], indices)
        elif name == "pad_many":
            quadrat.varlen.pad_many(mask[:, ::2], values[token])
        elif name == "unpad_many":
            quadrat.varlen.unpad_many(mask, tokens[token].reshape(rows, width, token))
        elif name == "unpad":
            quadrat.unpad(tokens[token].reshape(rows, width, token), mask=mask)
        elif name == "lengths":
            quadrat.unpad(tokens[token].reshape(rows, width, token), lengths=lengths[:rows])
        elif name == "pack":
            quadrat.plan_packs(lengths, 100)
        elif name == "budget":
            list(quadrat.TokenBudgetBatchSampler(lengths, 1000))


thread = threading.Thread(target=change)
thread.start()
end = time.monotonic() + seconds
while time.monotonic() < end:
    for name in names:
        with contextlib.suppress(IndexError, ValueError):
            call(name)
running = False
thread.join()
print("done")
"""
WRITERS = ["put", "pad_input", "pad_many"]
READERS = ["take", "unpad_many", "unpad", "lengths", "pack", "budget"]


@pytest.mark.parametrize("names", [WRITERS, READERS], ids=["writers", "readers"])
def test_nothing_outside_is_touched(names: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names, "2"], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
