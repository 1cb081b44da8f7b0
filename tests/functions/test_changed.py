"""Arrays and masks that others change, before a call or meanwhile: nothing outside is read, nothing is remembered."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from quadrat.ops.tokens import layout_of, put, take
from support import isolated, kept_tokens


@pytest.mark.slow
def test_does_what_one_made_anew_does():
    isolated.python("-m", "support.changed")


@pytest.mark.parametrize("name", ["values", "offsets"])
def test_arrays_cannot_be_replaced(name):
    rows = quadrat.Ragged(np.arange(3), np.array([0, 2, 3]))
    with pytest.raises(AttributeError):
        setattr(rows, name, np.array([0, 99]))
    assert rows.to_lists() == [[0, 1], [2]]


@pytest.mark.parametrize("torch_values", [False, True])
def test_copies_are_checked(torch_values):
    values, offsets = np.arange(3), np.array([0, 2, 3])
    if torch_values:
        values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
    rows = quadrat.Ragged(values, offsets)
    copies = copy.copy(rows), copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))
    for other in copies:
        assert type(other) is quadrat.Ragged
        assert other.to_lists() == [[0, 1], [2]]
    assert all(other.values is not rows.values for other in copies[1:])
    offsets[2] = 99
    payload = pickle.dumps(rows)
    for make in (lambda: copy.deepcopy(rows), lambda: pickle.loads(payload)):
        with pytest.raises(ValueError, match=r"offsets\[1\] is 2 and offsets\[2\] is 99"):
            make()
    assert "offsets must be from 0 to 3" in repr(rows)


NEW = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]])


def a_mask() -> Any:
    return torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def test_a_mask_that_was_written_to() -> None:
    """By NumPy: neither a version counter nor an address tells."""
    mask = a_mask()
    for _ in range(2):
        kept_tokens.assert_same(layout_of(mask), kept_tokens.layout(mask))
        mask.numpy()[:] = NEW


def test_indices_that_were_written_to() -> None:
    hidden, mask = torch.arange(12.0).reshape(3, 4), a_mask()
    indices = layout_of(mask).indices
    tokens = take(hidden, indices, 2)
    indices.numpy()[:] = [0, 5, 6, 7]
    expected = torch.zeros(12)
    expected[[0, 5, 6, 7]] = tokens
    assert torch.equal(put(tokens, indices, (3, 4)).flatten(), expected)


CODE = """
import contextlib, sys, threading, time
import torch
import quadrat
from quadrat.ops.tokens import put, take

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
            put(values[token], indices, (size,))
        elif name == "put in rows":
            put(values[token], indices, (rows, width))
        elif name == "take":
            take(tokens[token], indices)
        elif name == "unpad":
            quadrat.unpad(tokens[token].reshape(rows, width, token), mask=mask)
        elif name == "lengths":
            quadrat.unpad(tokens[token].reshape(rows, width, token), lengths=lengths[:rows])
        elif name == "pack":
            quadrat.batching.plan_packs(lengths, 100)
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
WRITERS = ["put", "put in rows"]
READERS = ["take", "unpad", "lengths", "pack", "budget"]


def test_nothing_outside_is_touched() -> None:
    assert isolated.python("-c", CODE, *WRITERS, *READERS, "2") == "done\n"
