"""Checks that a function gives on a device what it gives on the CPU, and the emulation in a GPU's place.

`device` is a context: what moves rows there, and within which they are there.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch

import quadrat

DTYPES = [torch.bool, torch.uint8, torch.int16, torch.bfloat16, torch.int32, torch.float32, torch.int64, torch.float64]
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257, 700]), max_size=8)


@contextlib.contextmanager
def emulated_launches() -> Iterator[list[str]]:
    """The names of the kernels that are launched meanwhile: their emulation, on tensors of the CPU."""
    emulated = pytest.importorskip("quadrat._testing", reason="needs a build with QUADRAT_EMULATE=ON")
    names: list[str] = []

    class Kernels:
        def __getattr__(self, name: str) -> Any:
            names.append(name)
            return lambda *arguments: getattr(emulated, name)(*arguments[:-2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quadrat.support.gpu._kernels", Kernels)
        patch.setattr("quadrat.support.gpu.stream_of", lambda device: (0, 0))
        yield names


@st.composite
def ragged_rows(draw):
    """A `Ragged` of CPU tensors, maybe a slice of another."""
    lengths, trailing = draw(LENGTHS), draw(st.sampled_from([(), (), (1,), (3,), (2, 8), (0,)]))
    before = draw(st.integers(0, 5))
    offsets = before + np.cumsum([0, *lengths])
    size = (int(offsets[-1]) + draw(st.integers(0, 3)), *trailing)
    dtype = draw(st.sampled_from(DTYPES))
    values = torch.randint(0, 100, size, generator=torch.Generator().manual_seed(len(lengths))).to(dtype)
    return quadrat.Ragged(values, torch.from_numpy(offsets).to(draw(st.sampled_from([torch.int32, torch.int64]))))


def options(draw, rows):
    longest = rows.facts.longest[1]
    return {
        "padding_side": draw(st.sampled_from(["right", "left"])),
        "max_length": draw(st.none() | st.just(longest + 3)),
        "pad_to_multiple_of": draw(st.sampled_from([None, 1, 8])),
    }


def check_pad(rows, data, device):
    how = options(data.draw, rows)
    how["padding_value"] = data.draw(st.sampled_from([0, 1, True]))
    expected = quadrat.pad(rows, **how)
    with device as to_gpu:
        got = quadrat.pad(to_gpu(rows), **how)
    assert got.dtype == expected.dtype
    assert torch.equal(got.cpu(), expected)


def check_mask(rows, data, device):
    how = options(data.draw, rows)
    how["dtype"] = data.draw(st.sampled_from([None, torch.bool, torch.int32, torch.float32, torch.uint8]))
    lengths = data.draw(st.booleans())
    expected = quadrat.attention_mask(rows, **how)
    with device as to_gpu:
        moved = to_gpu(rows)
        got = quadrat.attention_mask(moved.lengths if lengths else moved, **how)
    assert got.dtype == expected.dtype
    assert torch.equal(got.cpu(), expected)


def check_flatten(rows, data, device):
    how = {
        "pad_to_multiple_of": data.draw(st.sampled_from([None, 1, 8, 100])) if sum(rows.lengths.tolist()) else None,
        "position_ids_start": data.draw(st.integers(-3, 3)),
        "padding_value": data.draw(st.sampled_from([0, 1])),
    }
    expected = quadrat.flatten(rows, **how)
    with device as to_gpu:
        got = quadrat.flatten(to_gpu(rows), **how)
    assert got.max_length == expected.max_length
    for mine, other in zip(got[:4], expected[:4], strict=True):
        assert mine.dtype == other.dtype
        assert torch.equal(mine.cpu(), other)


def check_gather(rows, data, device):
    count = len(rows)
    numbers = st.lists(st.integers(-count, count - 1), max_size=12) if count else st.just([])
    # Of what is copied: a slice without a step keeps the values, also those of no row.
    steps = st.builds(slice, *[st.none() | st.integers(-9, 9)] * 2, st.sampled_from([-3, -2, -1, 2, 3]))
    masks = st.lists(st.booleans(), min_size=count, max_size=count)
    index = data.draw(numbers | masks | steps)
    on_device = not isinstance(index, slice) and data.draw(st.booleans())
    dtype = torch.bool if index and isinstance(index, list) and type(index[0]) is bool else torch.int64
    expected = rows[index]
    with device as to_gpu:
        moved = to_gpu(rows)
        got = moved[torch.tensor(index, dtype=dtype, device=moved.values.device) if on_device else index]
        facts = got.facts
    assert torch.equal(got.values.cpu(), expected.values[slice(*expected.facts[:2])])
    assert torch.equal(got.offsets.cpu(), expected.offsets.long() - expected.facts.first)
    assert facts[:2] == (0, len(got.values))
    assert facts.longest[1] == expected.facts.longest[1]
    assert facts.longest[1] == 0 or got.lengths[facts.longest[0]] == facts.longest[1]


def check_unpad(rows, data, device):
    side, extra = data.draw(st.sampled_from(["right", "left"])), data.draw(st.integers(0, 5))
    how = data.draw(st.sampled_from(["lengths", "list", "mask"]))
    width = rows.facts.longest[1] + extra
    padded = quadrat.pad(rows, padding_side=side, max_length=width, padding_value=1)
    mask = quadrat.attention_mask(rows, padding_side=side, max_length=width)
    lengths = rows.lengths
    with device as to_gpu:
        moved = to_gpu(quadrat.Ragged(padded, torch.tensor([0]))).values
        if how == "mask":
            back = quadrat.unpad(moved, mask=mask.to(moved.device))
        else:
            counts = lengths.tolist() if how == "list" else lengths.to(moved.device)
            back = quadrat.unpad(moved, lengths=counts, padding_side=side)
        facts = back.facts
    first, last, longest = rows.facts
    assert torch.equal(back.values.cpu(), rows.values[first:last])
    assert torch.equal(back.offsets.cpu(), rows.offsets.long() - first)
    assert facts == (0, last - first, longest)
