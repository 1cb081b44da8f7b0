"""Functions on tensors of a GPU: emulated kernels and CPU tensors in their place; tests/cuda runs the same on one."""

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat.config import show_config
from quadrat.ops.tokens import layout_of, put, take
from quadrat.support import gpu as launcher
from quadrat.support import tensors
from support import samples
from support.kept_tokens import CHECKS
from support.on_device import (
    check_flatten,
    check_gather,
    check_mask,
    check_pad,
    check_unpad,
    emulated_launches,
    ragged_rows,
)

RAGGED, OPS = ("offsets", "take", "ragged"), ("_device", "tokens", "pad", "unpad")
MODULES = [
    *(importlib.import_module(f"quadrat.ragged.{name}") for name in RAGGED),
    *(importlib.import_module(f"quadrat.ops.{name}") for name in OPS),
    tensors,
]


@contextlib.contextmanager
def gpu():
    """Within, all CPU tensors count as those of a GPU."""
    with pytest.MonkeyPatch.context() as patch, emulated_launches():
        for module in MODULES:
            patch.setattr(module, "on_gpu", tensors.is_tensor)
        yield lambda rows: rows


WAITING = ["tolist", "item", "__bool__", "__int__", "nonzero", "cpu"]


@contextlib.contextmanager
def waits() -> Iterator[list[str]]:
    """The names of the calls in a block that would wait for a GPU."""
    seen: list[str] = []

    def counting(name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return original(self, *args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WAITING:
            patch.setattr(torch.Tensor, name, counting(name))
        yield seen


def two_rows():
    return quadrat.Ragged(torch.arange(5), torch.tensor([0, 2, 5]))


@pytest.mark.parametrize("check", [check_pad, check_mask, check_flatten, check_unpad, check_gather])
@given(rows=ragged_rows(), data=st.data())
def test_as_on_the_cpu(check, rows, data):
    check(rows, data, gpu())


@pytest.mark.parametrize(
    ("error", "index", "message"),
    [
        (IndexError, torch.tensor([0, 2, -3]), "row 2 of 2"),
        (IndexError, torch.tensor([0, -3, 1]), "row -3 of 2"),
        (IndexError, torch.tensor([True]), "1 booleans for 2 rows"),
        (IndexError, torch.tensor([[0]]), "1-D index, not one of 2"),
        (TypeError, torch.tensor([0.0]), "not by torch.float32"),
        (IndexError, [0, 2], "row 2 of 2"),
    ],
)
def test_gather_refuses(error, index, message):
    rows = two_rows()
    with gpu():
        with pytest.raises(error, match=message):
            rows[index]
        with pytest.raises(IndexError, match="row 1 of 0"):
            rows[:0][torch.tensor([1])]


@pytest.mark.parametrize("index", [[1, 0], slice(None, None, -1), torch.tensor([1, -2]), torch.tensor([True, True])])
def test_gather_waits_once(index):
    """One tensor is copied from the GPU, and nothing has a size that depends on what a tensor holds."""
    rows = two_rows()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function._schema.name.removeprefix("aten::")
            sized = name in ("nonzero", "masked_select", "_local_scalar_dense", "unique_consecutive", "equal")
            sized |= name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
            sized |= name == "index" and any(part is not None and part.dtype == torch.bool for part in args[1])
            seen.extend([name] * sized)
            return function(*args, **(kwargs or {}))

    with gpu(), waits() as seen, Watch():
        got = rows[index]
        assert seen == ["cpu"]
        assert got.facts == (0, 5, got.facts.longest)
        assert quadrat.Ragged(got.values, got.offsets[:])._facts is None
        assert seen == ["cpu"]


def test_lists_of_tensors():
    rows = [torch.arange(n) for n in (2, 0, 3)]
    with gpu():
        assert quadrat.pad(rows, padding_side="left").tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 2]]
        assert quadrat.attention_mask(rows).tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
        assert quadrat.attention_mask(torch.tensor([1, 0, 2], dtype=torch.int32)).tolist() == [[1, 0], [0, 0], [1, 1]]
        assert quadrat.flatten(rows).cu_seqlens.tolist() == [0, 2, 2, 5]
        with pytest.raises(TypeError, match="row 1 is not a tensor like row 0"):
            quadrat.pad([torch.arange(2), torch.zeros(2)])
        with pytest.raises(ValueError, match="length=2 is below the longest row: row 2 has 3 tokens"):
            quadrat.pad(rows, max_length=2)


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (TypeError, lambda rows: quadrat.pad(rows, dtype=torch.int8), "convert the values first"),
        (ValueError, lambda rows: quadrat.pad(rows, return_tensors="np"), "return_tensors must be 'pt'"),
        (ValueError, lambda rows: quadrat.attention_mask(rows, return_tensors="np"), "not NumPy arrays"),
        (OverflowError, lambda rows: quadrat.pad(rows, padding_value=0.5), "padding_value=0.5 does not fit"),
        (ValueError, lambda rows: quadrat.pad(rows, padding_side="top"), "padding_side must be"),
        (OverflowError, lambda rows: quadrat.flatten(rows, position_ids_start=2**63 - 2), "beyond int64"),
        (TypeError, lambda _: quadrat.attention_mask(torch.ones(2)), "lengths must be integers"),
        (ValueError, lambda _: quadrat.unpad(torch.ones(2, 3), lengths=[1, 4]), "row 1 is longer"),
        (TypeError, lambda _: quadrat.unpad(torch.ones(2, 3), lengths=torch.ones(2)), "lengths must be integers"),
    ],
)
def test_bad_arguments_are_named(error, call, message):
    rows = two_rows()
    with gpu(), pytest.raises(error, match=message):
        call(rows)


def test_offsets_are_not_looked_at():
    """Rows that leave the values, or are longer than asked for, are cut: to look would mean to wait."""
    with gpu():
        rows = quadrat.Ragged(torch.arange(1, 6), torch.tensor([0, 2, 9, 4]))
        assert quadrat.pad(rows, max_length=2).tolist() == [[1, 2], [3, 4], [0, 0]]
        assert rows._facts is None
        back = quadrat.unpad(torch.ones(2, 3), lengths=torch.tensor([2, 5]), total=7)
        assert back.values.tolist() == [1, 1, 1, 1, 1, 0, 0]
        assert rows.to_lists() == [[1, 2], [3, 4, 5], []]
        chosen = rows[[1, 0, 2]]
        assert chosen.values.tolist() == [3, 4, 5, 1, 2]
        assert chosen.offsets.tolist() == [0, 3, 5, 5]


def test_conversions_copy_what_the_rows_span():
    """Those of a GPU are copied to the CPU: the offsets, and the values in one go."""
    whole = quadrat.Ragged(torch.arange(9), torch.tensor([0, 2, 2, 5, 9]))
    copied = []
    cpu = torch.Tensor.cpu
    with gpu(), pytest.MonkeyPatch.context() as patch:
        rows = whole[1:3]
        patch.setattr(torch.Tensor, "cpu", lambda tensor: copied.append(len(tensor)) or cpu(tensor))
        for convert in (rows.to_lists, lambda: rows.to_arrow().to_pylist()):
            assert convert() == [[], [2, 3, 4]]
            assert copied == [3, 3]
            copied.clear()
        assert [row.tolist() for row in rows.to_nested().unbind()] == [[], [2, 3, 4]]
        with pytest.raises(ValueError, match="must not decrease, but do at row 1"):
            quadrat.Ragged(torch.arange(5), torch.tensor([0, 4, 2])).to_arrow()


def test_to_a_device_keeps_what_is_known():
    rows = quadrat.Ragged(np.arange(5), np.array([0, 2, 5])).to("cpu")
    assert type(rows.values) is torch.Tensor
    assert rows._facts == (0, 5, (1, 3))
    again = rows.to("cpu")
    assert again.values is rows.values
    assert quadrat.Ragged.of_lengths(torch.arange(5), [2, 3]).to_lists() == [[0, 1], [2, 3, 4]]


RIGHT = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
HOLES = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


@pytest.mark.parametrize("check", CHECKS)
@given(data=st.data())
def test_as_the_oracles(check: Any, data: Any) -> None:
    with gpu():
        check(data, "cpu")


@pytest.mark.parametrize("mask", [RIGHT, RIGHT.flip(1), HOLES], ids=["right", "left", "holes"])
def test_waits_once_for_a_mask(mask: Any) -> None:
    hidden = torch.randn(3, 4, 2)
    with gpu(), emulated_launches() as names, waits() as seen:
        indices = layout_of(mask).indices
        tokens = take(hidden, indices, 2)
        back = put(tokens, indices, (3, 4))
    assert seen == ["tolist"]
    assert names == ["mask_layout", "take_tokens", "take_tokens"]
    assert torch.equal(back, torch.where(mask[..., None] != 0, hidden, 0))
    with gpu(), emulated_launches() as names, waits() as seen:
        rows = quadrat.unpad(hidden, mask=mask)
    assert seen == ["tolist"]
    assert names == ["mask_layout", "take_tokens"]
    assert torch.equal(rows.values, tokens)


def test_indices_that_are_no_tokens() -> None:
    with gpu():
        taken = take(torch.arange(1.0, 4.0), torch.tensor([2, -1, 3, 0]))
    assert taken.tolist() == [3, 0, 0, 1]


class Kernels(types.ModuleType):
    """A stand-in for `quadrat._cuda` as it is built with CUDA, on a machine without a device."""

    def device_count(self):
        """How many devices there are."""
        return 0


class Unloadable:
    """Finds a `quadrat._cuda` that was built and does not load."""

    def find_spec(self, name, path=None, target=None):
        """As a finder of `sys.meta_path`."""
        if name == "quadrat._cuda":
            raise ImportError("libcuda.so.1: cannot open shared object file")


@pytest.fixture(params=["not built", "not loadable", "no device"])
def situation(request, monkeypatch):
    monkeypatch.delitem(sys.modules, "quadrat._cuda", raising=False)
    monkeypatch.delattr(quadrat, "_cuda", raising=False)
    if request.param == "not built":
        monkeypatch.setitem(sys.modules, "quadrat._cuda", None)
    elif request.param == "not loadable":
        monkeypatch.setattr(sys, "meta_path", [Unloadable(), *sys.meta_path])
    else:
        monkeypatch.setitem(sys.modules, "quadrat._cuda", Kernels("quadrat._cuda"))
    for cached in (launcher._kernels, launcher.available):
        cached.cache_clear()
    yield request.param
    for cached in (launcher._kernels, launcher.available):
        cached.cache_clear()


SAID = {
    "not built": "quadrat was built without CUDA kernels",
    "not loadable": "quadrat's CUDA kernels do not load (libcuda.so.1: cannot open shared object file)",
    "no device": "quadrat's CUDA kernels find no CUDA device",
}


def test_deferred_batches_say_why_they_are_padded_on_the_cpu(situation, caplog):
    deferred = samples.make(quadrat, "DataCollatorWithPadding", deferred=True)(samples.batch("DataCollatorWithPadding"))
    with caplog.at_level("WARNING", logger="quadrat"):
        for _ in range(2):  # torch says in its own words that there is no device; or there is one, and copies
            with contextlib.suppress(AssertionError, RuntimeError):
                deferred.to("cuda")
    assert caplog.messages == [f"{SAID[situation]}: deferred batches are padded on the CPU and then copied"]


def test_kernels_say_why_there_are_none(situation):
    if situation == "no device":
        assert launcher._kernels().device_count() == 0
        return
    with pytest.raises(RuntimeError) as caught:
        launcher._kernels()
    assert str(caught.value) == f"{SAID[situation]}: move the tensors to the CPU"


def test_the_configuration_says_so(situation, monkeypatch):
    if situation == "no device":
        monkeypatch.setattr(sys.modules["quadrat._cuda"], "description", lambda: "no device", raising=False)
    shown = show_config()["CUDA"]
    assert shown.startswith({"not loadable": "does not load: libcuda.so.1"}.get(situation, situation))
