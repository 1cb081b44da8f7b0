"""The CUDA kernels on a GPU: the tests of their emulation, with the same bodies, and what only a GPU shows."""

import inspect
from typing import Any

import numpy as np
import pytest

from fuzz import targets
from quadrat import _core
from quadrat.ops._device import column_of
from quadrat.support.gpu import pad_columns
from support.gpu import DEVICE, NEEDS_GPU, OnDevice, _cuda, torch, where

pytestmark = NEEDS_GPU

EMULATED = [targets.load(file) for file in sorted((targets.TESTS / "kernels").glob("test_cuda_emulated_*.py"))]
BODIES = [
    pytest.param(module, test, case, id=f"{name}-{number}")
    for module in EMULATED
    for name, test in vars(module).items()
    if getattr(test, "is_hypothesis_test", False) and "guarded" in inspect.signature(test).parameters
    for number, case in enumerate(targets.cases_of(test))
]


@pytest.mark.parametrize(("module", "test", "case"), BODIES)
def test_as_their_emulation(module: Any, test: Any, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    there = OnDevice()
    monkeypatch.setattr(module, "emulated", there)
    monkeypatch.setattr(module, "address", there.address)
    test(guarded=there.guarded, **case)


def test_more_rows_than_blocks() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 1_000_003)
    offsets = torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int64)).to(DEVICE)
    out = torch.full((len(lengths), 4), 7, dtype=torch.int32, device=DEVICE)
    column = (0, 0, offsets.data_ptr(), 4, False, 4, 1, 1, 0, out.data_ptr())
    _cuda.pad_columns([column], len(lengths), *where())
    expected = np.arange(4) < lengths[:, None]
    assert np.array_equal(out.cpu().numpy(), expected)


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_more_columns_than_a_launch_takes(count: int) -> None:
    dtypes = [torch.int64, torch.bool, torch.bfloat16, torch.int32]
    lengths = torch.tensor([3, 0, 5, 2])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(DEVICE)
    columns, outs = [], []
    for i in range(count):
        dtype = dtypes[i % 4]
        values = None if i % 5 == 4 else torch.full((10, 1 + i % 3), 1, device=DEVICE).to(dtype)
        out = torch.full((4, 5 + i, *(() if values is None else values.shape[1:])), 9, device=DEVICE).to(dtype)
        columns.append(column_of(out, values, offsets, left=i % 2 == 1))
        outs.append((out, values))  # a column has addresses only
    pad_columns(columns, 4, offsets.device)
    for i, (out, _) in enumerate(outs):
        places = torch.arange(5 + i)
        kept = places >= 5 + i - lengths[:, None] if i % 2 else places < lengths[:, None]
        shown = out.cpu().reshape(4, 5 + i, -1)
        assert torch.equal(shown, kept[:, :, None].expand_as(shown).to(shown.dtype)), i


def test_more_than_2_to_the_32_elements() -> None:
    rows, width = 3, 2**31 - 5
    if torch.cuda.mem_get_info()[0] < rows * width + 2**28:
        pytest.skip("needs 7 GB of free GPU memory")
    offsets = torch.tensor([0, width, 2 * width, 3 * width - 3], device=DEVICE)
    out = torch.full((rows, width), 7, dtype=torch.uint8, device=DEVICE)
    column = (0, 0, offsets.data_ptr(), width, False, 1, 1, 1, 9, out.data_ptr())
    _cuda.pad_columns([column], rows, *where())
    assert (out[:, [0, 1, width - 4]] == 1).all()
    assert out[:, width - 3 :].tolist() == [[1, 1, 1], [1, 1, 1], [9, 9, 9]]
    assert out[2, width - 5 :].tolist() == [1, 1, 9, 9, 9]
    # From beyond 2**32 to beyond 2**32.
    flat = out.reshape(-1)
    picked = torch.tensor([3 * width - 5, 3 * width], device=DEVICE)
    column = (_core.FLAT_CONTENTS.VALUES, flat.data_ptr(), flat.numel(), 1, 1, 0, 0, flat[-12:].data_ptr())
    _cuda.flatten_columns([column], picked.data_ptr(), 1, 5, *where())
    assert flat[-13:].tolist() == [1, 1, 1, 9, 9, 9, 1, 1, 1, 1, 9, 9, 9]


def test_errors_name_their_cause() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        _cuda.causal_labels(0, 0, 0, 0, device=10_000, stream=0)
    with pytest.raises(ValueError, match="not a multiple"):
        _cuda.causal_labels(4, 1, 0, 8, device=0, stream=0)
