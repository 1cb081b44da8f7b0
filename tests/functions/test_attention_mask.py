"""quadrat.attention_mask: what its docstring promises."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
import quadrat
from quadrat import _core

KINDS = _core.kinds
LENGTHS = st.lists(st.integers(0, 20), max_size=8)


def as_ragged(lengths, convert):
    return quadrat.Ragged(convert(np.zeros((sum(lengths), 2), np.int8)), convert(np.cumsum([0, *lengths], dtype=int)))


INTS = [kind for kind in KINDS if "int" in kind]
# By family: what makes rows or lengths, and the library of their mask.
FORMS = {
    "rows": [
        (lambda lengths: [[1] * length for length in lengths], "np"),
        (lambda lengths: tuple((1.5,) * length for length in lengths), "np"),
        (lambda lengths: [np.ones(length, np.int8) for length in lengths], "np"),
        (lambda lengths: [torch.ones(length) for length in lengths], "first row"),
    ],
    "Ragged": [
        (lambda lengths: as_ragged(lengths, np.asarray), "np"),
        (lambda lengths: as_ragged(lengths, torch.from_numpy), "pt"),
        (lambda lengths: as_ragged([3, *lengths, 4], np.asarray)[1:-1], "np"),
    ],
    "ints": [(list, "np"), (tuple, "np")],
    "arrays": [(lambda lengths, kind=kind: np.array(lengths, kind), "np") for kind in INTS],
    "tensors": [(lambda lengths, kind=kind: torch.from_numpy(np.array(lengths, kind)), "pt") for kind in INTS],
}


@pytest.mark.parametrize("family", FORMS)
@given(
    lengths=LENGTHS,
    side=st.sampled_from(["right", "left"]),
    extra=st.none() | st.integers(0, 20),
    multiple_of=st.none() | st.integers(1, 17),
    dtype=st.none() | st.sampled_from(KINDS) | st.sampled_from([torch.bool, torch.int32, float]),
    library=st.sampled_from([None, "np", "pt"]),
    data=st.data(),
)
def test_masks_as_the_oracle(family, *, lengths, side, extra, multiple_of, dtype, library, data):
    make, own = data.draw(st.sampled_from(FORMS[family]))
    options = {"padding_side": side, "pad_to_multiple_of": multiple_of, "return_tensors": library}
    options["max_length"] = None if extra is None else max(lengths, default=0) + extra
    out = quadrat.attention_mask(make(lengths), dtype=dtype, **options)
    if own == "first row":
        own = "pt" if lengths else "np"
    assert type(out) is (torch.Tensor if (library or own) == "pt" else np.ndarray)
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype or np.int64).name
    padded = quadrat.pad([[True] * length for length in lengths], padding_value=False, dtype="bool", **options)
    expected = np.empty(tuple(padded.shape), name)
    oracles.attention_mask(lengths, side, expected)
    assert np.asarray(out).dtype == name
    assert np.array_equal(np.asarray(out), expected)
    assert np.array_equal(np.asarray(padded), expected.astype(bool)), "pad with the same options has the same shape"


@pytest.mark.parametrize("rows", [[], (), np.zeros(0, int), [[]], [[], []], [0], np.array([0, 0])])
def test_empty_batches_and_rows(rows):
    assert quadrat.attention_mask(rows).shape == (len(rows), 0)
    assert quadrat.attention_mask(rows, max_length=3).tolist() == [[0, 0, 0]] * len(rows)
    assert quadrat.attention_mask(rows, pad_to_multiple_of=4).shape == (len(rows), 0)


@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, "rows", {}, "not str"),
        (TypeError, 3, {}, "int"),
        (TypeError, np.array([1.0]), {}, "one per row, not float64 of shape"),
        (TypeError, torch.tensor([True]), {}, "one per row, not bool of shape"),
        (TypeError, np.array([[1]]), {}, "one per row, not int64 of shape"),
        (TypeError, [[1], "row"], {}, "row 1 is the str 'row'"),
        (TypeError, [1, [1]], {}, "row 0 is the int 1"),
        (ValueError, [3, -1], {}, "row 1 has the negative length -1"),
        (ValueError, np.array([3, 1, -7]), {}, "row 2 has the negative length -7"),
        (ValueError, torch.tensor([-1]), {}, "row 0 has the negative length -1"),
        (ValueError, [1, 3], {"max_length": 2}, "length=2 .* 3 tokens"),
        (ValueError, [1, 3], {"max_length": 2}, "row 1"),
        (ValueError, [[1], [1, 2, 3]], {"max_length": 2}, "length=2 .* 3 tokens"),
        (ValueError, [1], {"padding_side": "middle"}, "'middle'"),
        (ValueError, [1], {"pad_to_multiple_of": 0}, "multiple_of"),
        (ValueError, [1], {"return_tensors": "tf"}, "'tf'"),
        (TypeError, [1], {"dtype": "float16"}, "float16"),
        ((ValueError, MemoryError), [2**62], {}, None),
        ((ValueError, MemoryError), [2**62] * 3, {"return_tensors": "pt"}, None),
        ((ValueError, MemoryError), np.array([2**63 - 1, 2**63 - 1]), {}, None),
        ((ValueError, MemoryError), np.array([2**63], np.uint64), {}, None),
    ],
)
def test_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.attention_mask(rows, **options)
