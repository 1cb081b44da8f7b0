"""Rows of classes derived from arrays and tensors: read as those of the base, where they change nothing about them."""

import numpy as np
import pytest
import torch

from quadrat import _core
from quadrat.support import columns as ingest
from quadrat.support import memory
from support.ingest import KINDS, columns_of


class Own(np.ndarray):
    """Adds something."""

    _known = 1

    def __new__(cls, numbers):
        return np.array(numbers).view(cls)

    def describe(self):
        return "numbers"


def deriving(base, **names):
    def make(numbers):
        cls = type("Derived", (base,), names)
        return np.array(numbers).view(cls) if issubclass(cls, np.ndarray) else torch.tensor(numbers).as_subclass(cls)

    return make


def again(base, owner, name):
    """Derived, with a name of the base put there once more."""
    return deriving(base, **{name: getattr(owner, name)})


DERIVED = [
    *(Own, lambda numbers: np.array(numbers).view(np.memmap), deriving(np.memmap), deriving(torch.Tensor)),
    *(deriving(torch.Tensor, total=lambda self: 3), deriving(np.ndarray, __repr__=lambda self: "")),
    lambda numbers: torch.nn.Parameter(torch.tensor(numbers), requires_grad=False),
]
CHANGED = [
    *(again(np.ndarray, np.ndarray, name) for name in ("tolist", "__getitem__", "shape", "dtype")),
    *(again(np.memmap, np.ndarray, name) for name in ("__array__", "__getattribute__", "__iter__")),
    *(again(torch.Tensor, torch.Tensor, name) for name in ("tolist", "__len__", "data_ptr")),
    deriving(np.ndarray, __array_finalize__=lambda self, source: None),
    deriving(np.ndarray, __getattr__=lambda self, name: None),
    deriving(torch.Tensor, __torch_function__=classmethod(lambda *_: None)),
    deriving(torch.Tensor, __torch_dispatch__=classmethod(lambda *_: None)),
    lambda numbers: np.array(numbers).view(type("Mixed", (type("Mixin", (), {"tolist": list}), np.ndarray), {})),
    *(np.ma.array, lambda numbers: np.array([numbers]).view(np.matrix)),
]


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("numbers", [[5, 6, 7], [[1.5, 2.0], [3.0, 4.0]], []])
def test_classes_that_change_nothing_of_their_base(way, numbers):
    interop = memory.interop() if way == "exchange" else _core.Interop(memory.Libraries(
        np.ndarray, None, torch.Tensor, None, memory.describe_tensor, None, plain=(np.memmap, torch.nn.Parameter)
    ))  # fmt: skip
    for make in DERIVED:
        row = make(numbers)
        columns = columns_of([row, row], interop)
        base = ingest.ARRAY if isinstance(row, np.ndarray) else ingest.TENSOR
        deep = ingest.DEEP if numbers and type(numbers[0]) is list else 0
        assert columns.describe(0)[0] == base | ingest.DERIVED | deep
        assert ingest.column_shapes(columns.signature(0, 1))[0].forms == base | ingest.DERIVED | deep
        out = np.empty((2 * len(numbers), *np.shape(numbers)[1:]))
        assert columns.flatten(0, out.ctypes.data, KINDS.index("float64"), 2 * len(numbers)) is None
        assert out.tolist() == numbers * 2


def test_classes_that_change_something():
    for make in CHANGED:
        columns = columns_of([make([5, 6])], memory.interop())
        assert columns.describe(0)[0] == ingest.OTHER


def test_a_class_that_changes_later():
    cls = type("Later", (np.ndarray,), {})
    rows = [np.arange(3).view(cls)]
    columns = columns_of(rows, memory.interop())
    assert columns.describe(0)[0] == ingest.ARRAY | ingest.DERIVED
    cls.tolist = lambda self: [0]
    out = np.empty(3)
    assert columns.flatten(0, out.ctypes.data, KINDS.index("float64"), 3) == (_core.CODES.CHANGED, 0, -1)
    assert columns_of(rows, memory.interop()).describe(0)[0] == ingest.OTHER


def test_no_code_of_torch_runs_for_a_tensor_whose_class_changes(monkeypatch):
    """Not for the second look either, which no class between announces."""
    row = torch.arange(3)
    columns = columns_of([row], memory.interop())
    assert columns.describe(0)[0] == ingest.TENSOR
    row.__class__ = type("Derived", (torch.Tensor,), {})
    monkeypatch.setattr(torch.Tensor, "__torch_function__", classmethod(lambda *_: pytest.fail("was called")))
    out = np.empty(3)
    assert columns.flatten(0, out.ctypes.data, KINDS.index("float64"), 3) is None
    assert columns_of([row], memory.interop()).describe(0)[0] == ingest.TENSOR | ingest.DERIVED
