"""What user code does while features are read: rows that shrink and move, function modes, keys that raise."""

import asyncio

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.overrides import TorchFunctionMode

from quadrat import _core
from quadrat.input import columns as ingest
from quadrat.input.columns import BatchLayout
from quadrat.planning.plan_cache import CALL
from quadrat.support import memory
from support.ingest import INT64, KINDS, columns_of, flat, move


@given(count=st.integers(1, 200), moment=st.integers(0, 199), left=st.integers(0, 199))
def test_features_may_shrink_while_they_are_read(guarded, count, moment, left):
    class Hostile:
        """A key that is compared with "ids", and is another one."""

        def __hash__(self):
            return hash("ids")

        def __eq__(self, other):
            del features[left:]
            return False

    features = []  # for now: making a dict compares keys, too
    rows = [{"ids": [i] * 3, "at": i} for i in range(count)]
    if moment < count:
        rows[moment] = {Hostile(): 0, **rows[moment]}
    features += rows
    collected = _core.collect(features, ("ids",), memory.interop())
    if collected is None:
        assert moment < count
        assert left < count
    else:
        assert flat(collected[1], 0, guarded) == [i for i in range(count) for _ in range(3)]


def test_what_is_asked_of_a_tensor_may_change_the_others(guarded):
    """Where it takes Python code to see a tensor, as in an older torch."""

    def describe(tensor):
        for row in (tensors[0], array):
            move(row)
        rows.clear()
        return memory.describe_tensor(tensor)

    interop = _core.Interop(np.ndarray, None, torch.Tensor, None, describe, None)
    tensors, array = [torch.arange(8 * i, 8 * i + 8)[:: i % 3 + 1] for i in range(5)], np.arange(7, 9)
    rows = [[5], array, *tensors]
    expected = [5, 7, 8, *(number for tensor in tensors for number in tensor.tolist())]
    columns, out = columns_of(rows, interop), guarded("int64", len(expected))
    assert rows == []
    for row in (tensors[-1], array):
        move(row)
    assert columns.flatten(0, out.address, INT64, len(expected)) is None
    assert out.array.tolist() == expected


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("form", [torch.tensor, np.array])
def test_sees_what_has_moved_since_it_was_collected(interops, guarded, form, number):
    kind = KINDS.index("float64")
    rows = [form(0.5 if number else [0.5, 1.5], dtype=(torch if form is torch.tensor else np).float64)] * 3
    if number and form is np.array:
        rows = [np.float64(0.5)] * 3  # which has its number within, for good
    columns, out = columns_of(rows, memory.interop()), guarded("float64", 6)
    steps = (("x", 0, ingest.NUMBERS if number else ingest.STACK, kind),)

    def run():
        return columns.run(steps, {}, memory.interop(), False, BatchLayout(2))

    expected = np.array([row.tolist() for row in rows])
    assert run()["x"].tobytes() == expected.tobytes()
    if isinstance(rows[0], np.float64):
        return
    move(rows[0])
    assert run()["x"].tobytes() == expected.tobytes()
    if number:
        return
    move(rows[0])
    assert columns.flatten(0, out.address, kind, 6) is None
    assert out.array.tolist() == expected.reshape(-1).tolist()
    if form is torch.tensor:
        rows[0].resize_(1)
    else:
        rows[0].resize(1, refcheck=False)
    again = guarded("float64", 6)
    assert columns.flatten(0, again.address, kind, 6) == (ingest.CHANGED, 0, -1)
    assert run() == (0, ingest.CHANGED, 0, -1)
    assert again.untouched()


def test_function_modes_are_not_asked(interops):
    """A mode is the user's code; torch calls it even for an attribute."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was asked for")

    rows = [torch.ones(2), torch.ones(2, requires_grad=True), torch.tensor([1 + 2j]).conj().imag]
    for row in rows:
        row.is_neg = Mode().__torch_function__  # nor is an attribute that a tensor has of its own
    with Mode():
        columns = columns_of(rows, memory.interop())
    assert columns.describe(0)[0] == ingest.TENSOR | ingest.OTHER
    assert torch._C._len_torch_function_stack() == 0


ASKED = [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, asyncio.CancelledError]
FALLS_BACK = [ValueError, KeyError, AttributeError, StopIteration, RecursionError, Warning, OSError]


class Raising:
    def __init__(self, error):
        self._error, self.armed = error, False  # making a dict compares keys, too

    def __call__(self, *_):
        if self.armed:
            raise self._error
        return False

    def __hash__(self):
        return hash("ids")

    __eq__ = __call__


@pytest.mark.parametrize("error", [*ASKED, *FALLS_BACK])
def test_clears_only_errors_that_the_reference_raises_again(error):
    raising = Raising(error)
    features = [{"ids": [1]}, {raising: 0, "ids": [2]}]
    guard = _core.Guard(((CALL, raising, None, 0),))
    columns = _core.Columns()
    raising.armed = True
    calls = [
        lambda: _core.collect(features, ("ids",), memory.interop()),
        lambda: columns.add_optional(features, "ids", memory.interop()) == -1 or None,
        lambda: guard.holds(None) or None,
    ]
    for call in calls:
        if error in FALLS_BACK:
            assert call() is None
        else:
            with pytest.raises(error):
                call()


def test_a_damaged_column_is_one_error_in_a_known_batch_and_in_a_new_one():
    values, offsets = np.arange(6), np.array([0, 3, 6])
    column = _core.memory_column(values.ctypes.data, INT64, 6, offsets.ctypes.data, 2, (values, offsets))
    rows, interop = _core.TableRows(_core.Table(("ids",), [column])), memory.interop()
    _, columns = _core.collect(rows, None, interop)
    recipe = _core.Recipe((), interop, False, BatchLayout())
    steps = (("ids", 0, ingest.STACK, INT64),)
    run = recipe.extended(("ids",), columns.signature(0, 1), steps, {}).runner()
    assert run(None, rows)["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    offsets[1] = 99
    for call in (lambda: _core.collect(rows, None, interop), lambda: run(None, rows)):
        with pytest.raises(ValueError, match="damaged"):
            call()
