"""The numbers that Python and C++ share: they are defined in C++, and the module has them."""

import numpy as np
import pytest

from quadrat import _core
from quadrat.support import memory

NAMES = sorted(name for name in vars(_core) if name.isupper())
ENUMS = sorted({name.partition("_")[0] for name in NAMES} - {"MOST", "ALIGNMENT"})
CODES = [value for name, value in vars(_core).items() if name.startswith("CODE_")]


def test_all_are_ints() -> None:
    assert {type(getattr(_core, name)) for name in NAMES} == {int}
    assert {"CODE", "FACT", "FLAT", "FORM", "PIECE", "SOURCE", "WAY", "WORD", "WORDS"} <= set(ENUMS)


@pytest.mark.parametrize("enum", ENUMS)
def test_no_two_of_an_enum_are_the_same(enum: str) -> None:
    values = [getattr(_core, name) for name in NAMES if name.startswith(f"{enum}_")]
    assert len(set(values)) == len(values) > 1


@pytest.mark.parametrize("enum", ["FORM", "PIECE"])
def test_what_can_be_joined_has_a_bit_each(enum: str) -> None:
    values = [getattr(_core, name) for name in NAMES if name.startswith(f"{enum}_")]
    assert sorted(values) == [1 << bit for bit in range(len(values))]


def test_each_code_is_explained() -> None:
    assert sorted(CODES) == list(range(1, len(CODES) + 1))
    said = [_core.explain((code, 3, 7)) for code in CODES]
    assert len(set(said)) == len(CODES)
    assert all(text.startswith("row 3, position 7 ") for text in said)
    for code in CODES:
        what = _core.explain((code, 3, 7)).removeprefix("row 3, position 7")
        assert _core.explain((code, -1, -1)) == f"the column{what}"
        assert _core.explain((code, 0, -1)) == f"row 0{what}"


def test_what_is_no_code_is_not_explained() -> None:
    with pytest.raises(ValueError, match=f"code {len(CODES) + 1}"):
        _core.explain((len(CODES) + 1, 0, 0))


@pytest.mark.parametrize(("kind", "name"), list(enumerate(_core.kinds)))
def test_a_kind_is_the_dtype_of_its_name(kind: int, name: str) -> None:
    out, address = _core.allocate(memory.interop(), False, (3,), kind)
    assert (out.dtype, address) == (np.dtype(name), out.ctypes.data)
    assert memory.kind_of(name) == memory.kind_of(out.dtype) == kind
    columns = _core.Columns()
    columns.add_values([np.array([1, 0], out.dtype), np.array([1], out.dtype)], memory.interop())
    assert columns.describe(0)[2] == 1 << kind
    assert columns.flatten(0, address, kind, 3) is None
    assert out.tolist() == [1, 0, 1]
