"""The functions on tensors of a GPU, with the emulated kernels and CPU tensors in their place, against the CPU's.

`tests/cuda/test_functions.py` runs the same on a GPU.
"""

from __future__ import annotations

import importlib

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat import _memory
from support.on_device import (
    check_flatten,
    check_gather,
    check_mask,
    check_pad,
    check_unpad,
    emulated_launches,
    ragged_rows,
)

MODULES = [f"quadrat.{name}" for name in ("_offsets", "_take", "ragged", "ops._device", "ops.mask", "ops.unpad")]


@pytest.fixture(scope="module")
def gpu():
    """`to_gpu`, after which all CPU tensors count as those of a GPU, and `done`, after which they do not."""
    modules = [importlib.import_module(name) for name in MODULES]
    patch = pytest.MonkeyPatch()

    def start(rows):
        for module in modules:
            patch.setattr(module, "on_gpu", _memory.is_tensor)
        return rows

    with emulated_launches():
        yield start, patch.undo
    patch.undo()


@given(ragged_rows(), st.data())
def test_pad(gpu, rows, data):
    check_pad(rows, data, *gpu)


@given(ragged_rows(), st.data())
def test_attention_mask(gpu, rows, data):
    check_mask(rows, data, *gpu)


@given(ragged_rows(), st.data())
def test_flatten(gpu, rows, data):
    check_flatten(rows, data, *gpu)


@given(ragged_rows(), st.data())
def test_unpad(gpu, rows, data):
    check_unpad(rows, data, *gpu)


@given(ragged_rows(), st.data())
def test_gather(gpu, rows, data):
    check_gather(rows, data, *gpu)


@pytest.mark.parametrize(
    ("error", "index", "message"),
    [
        (IndexError, torch.tensor([0, 2, -3]), "row 2 of 2"),
        (IndexError, torch.tensor([0, -3, 1]), "row -3 of 2"),
        (IndexError, torch.tensor([True]), "1 booleans for 2 rows"),
        (IndexError, torch.tensor([[0]]), "one dimension, not of 2"),
        (TypeError, torch.tensor([0.0]), "not by torch.float32"),
        (IndexError, [0, 2], "row 2 of 2"),
    ],
)
def test_gather_refuses(gpu, error, index, message):
    start, done = gpu
    rows = start(quadrat.Ragged(torch.arange(5), torch.tensor([0, 2, 5])))
    try:
        with pytest.raises(error, match=message):
            rows[index]
        with pytest.raises(IndexError, match="row 1 of 0"):
            rows[:0][torch.tensor([1])]
    finally:
        done()


@pytest.mark.parametrize("index", [[1, 0], slice(None, None, -1), torch.tensor([1, -2]), torch.tensor([True, True])])
def test_gather_waits_once(gpu, index):
    """One list of numbers is asked for, and nothing whose size depends on what a tensor holds."""
    start, done = gpu
    rows = start(quadrat.Ragged(torch.arange(5), torch.tensor([0, 2, 5])))
    waits = []
    tolist = torch.Tensor.tolist

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function._schema.name.removeprefix("aten::")
            sized = name in ("nonzero", "masked_select", "_local_scalar_dense", "unique_consecutive", "equal")
            sized |= name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
            sized |= name == "index" and any(part is not None and part.dtype == torch.bool for part in args[1])
            waits.extend([name] * sized)
            return function(*args, **(kwargs or {}))

    with pytest.MonkeyPatch.context() as patch, Watch():
        patch.setattr(torch.Tensor, "tolist", lambda tensor: waits.append("tolist") or tolist(tensor))
        try:
            got = rows[index]
            assert waits == ["tolist"]
            assert got.facts == (0, 5, got.facts.longest)
            assert quadrat.Ragged(got.values, got.offsets[:])._facts is None
            assert waits == ["tolist"]
        finally:
            done()


def test_lists_of_tensors(gpu):
    start, done = gpu
    rows = start([torch.arange(n) for n in (2, 0, 3)])
    try:
        assert quadrat.pad(rows, side="left").tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 2]]
        assert quadrat.attention_mask(rows).tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
        assert quadrat.attention_mask(torch.tensor([1, 0, 2], dtype=torch.int32)).tolist() == [[1, 0], [0, 0], [1, 1]]
        assert quadrat.flatten(rows).cu_seqlens.tolist() == [0, 2, 2, 5]
        with pytest.raises(TypeError, match="row 1 is not a tensor like row 0"):
            quadrat.pad([torch.arange(2), torch.zeros(2)])
        with pytest.raises(ValueError, match="length=2 is below the longest row: row 2 has 3 tokens"):
            quadrat.pad(rows, length=2)
    finally:
        done()


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (TypeError, lambda rows: quadrat.pad(rows, dtype=torch.int8), "convert the values first"),
        (ValueError, lambda rows: quadrat.pad(rows, return_tensors="np"), "stay in their library"),
        (ValueError, lambda rows: quadrat.attention_mask(rows, return_tensors="np"), "not NumPy arrays"),
        (OverflowError, lambda rows: quadrat.pad(rows, padding_value=0.5), "padding_value=0.5 does not fit"),
        (ValueError, lambda rows: quadrat.pad(rows, side="top"), "side must be"),
        (OverflowError, lambda rows: quadrat.flatten(rows, position_ids_start=2**63 - 2), "beyond int64"),
        (TypeError, lambda _: quadrat.attention_mask(torch.ones(2)), "lengths must be integers"),
        (ValueError, lambda _: quadrat.unpad(torch.ones(2, 3), lengths=[1, 4]), "row 1 is longer"),
        (ValueError, lambda _: quadrat.unpad(torch.ones(2, 3), lengths=torch.ones(2)), "lengths must be integers"),
    ],
)
def test_bad_arguments_are_named(gpu, error, call, message):
    start, done = gpu
    rows = start(quadrat.Ragged(torch.arange(5), torch.tensor([0, 2, 5])))
    try:
        with pytest.raises(error, match=message):
            call(rows)
    finally:
        done()


def test_offsets_are_not_looked_at(gpu):
    """Rows that leave the values, or are longer than asked for, are cut: to look would mean to wait."""
    start, done = gpu
    try:
        start(None)
        rows = quadrat.Ragged(torch.arange(1, 6), torch.tensor([0, 2, 9, 4]))
        assert quadrat.pad(rows, length=2).tolist() == [[1, 2], [3, 4], [0, 0]]
        assert rows._facts is None
        back = quadrat.unpad(torch.ones(2, 3), lengths=torch.tensor([2, 5]), total=7)
        assert back.values.tolist() == [1, 1, 1, 1, 1, 0, 0]
        assert rows.to_lists() == [[1, 2], [3, 4, 5], []]
        chosen = rows[[1, 0, 2]]
        assert chosen.values.tolist() == [3, 4, 5, 1, 2]
        assert chosen.offsets.tolist() == [0, 3, 5, 5]
    finally:
        done()


def test_conversions_copy_what_the_rows_span(gpu):
    """Those of a GPU are copied to the CPU: the offsets, and the values in one go."""
    start, done = gpu
    rows = start(quadrat.Ragged(torch.arange(9), torch.tensor([0, 2, 2, 5, 9])))[1:3]
    copied = []
    cpu = torch.Tensor.cpu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cpu", lambda tensor: copied.append(len(tensor)) or cpu(tensor))
        try:
            for convert in (rows.to_lists, lambda: rows.to_arrow().to_pylist()):
                assert convert() == [[], [2, 3, 4]]
                assert copied == [3, 3]
                copied.clear()
            assert [row.tolist() for row in rows.to_nested().unbind()] == [[], [2, 3, 4]]
            with pytest.raises(ValueError, match="decrease at row 1"):
                quadrat.Ragged(torch.arange(5), torch.tensor([0, 4, 2])).to_arrow()
        finally:
            done()


def test_to_a_device_keeps_what_is_known():
    rows = quadrat.Ragged(np.arange(5), np.array([0, 2, 5])).to("cpu")
    assert type(rows.values) is torch.Tensor
    assert rows._facts == (0, 5, (1, 3))
    again = rows.to("cpu")
    assert again.values is rows.values
    assert quadrat.Ragged.of_lengths(torch.arange(5), [2, 3]).to_lists() == [[0, 1], [2, 3, 4]]
