"""quadrat.attention_mask and quadrat.unpad: what their docstrings promise, in either library."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
import quadrat
from support.ragged import INTS, KINDS, TRAILING, array, ragged

LIBRARIES = st.sampled_from(["np", "pt"])


@given(st.integers(0, 6), st.integers(0, 8), TRAILING, LIBRARIES, st.sampled_from("CF"), st.data())
def test_a_mask_picks_tokens_anywhere(rows, width, trailing, library, order, data):  # noqa: PLR0917
    padded = np.arange(rows * width * int(np.prod(trailing))).reshape(rows, width, *trailing).copy(order)
    mask = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=rows * width, max_size=rows * width)), np.int8)
    mask = mask.reshape(rows, width)
    back = quadrat.unpad(array(padded, None, library), mask=array(mask, None, library))
    assert back.to_lists() == [row[keep != 0].tolist() for row, keep in zip(padded, mask, strict=True)]


def test_lengths_in_any_library():
    padded = np.arange(6).reshape(3, 2).T
    for lengths in ([1, 2], (1, 2), np.array([1, 2], np.uint8), torch.tensor([1, 2], dtype=torch.int32)):
        assert quadrat.unpad(padded, lengths=lengths).to_lists() == [[0], [1, 3]]
        assert quadrat.unpad(torch.from_numpy(padded), lengths=lengths, total=3).to_lists() == [[0], [1, 3]]
    assert quadrat.unpad(np.zeros((0, 3)), lengths=[]).to_lists() == []
    quadrat.unpad(padded, lengths=[3, 3]).values[:] = 9
    assert padded.max() == 5, "a copy"


@pytest.mark.parametrize("options", [{"lengths": [1, 2]}, {"mask": torch.tensor([[1, 0, 0], [1, 1, 0]])}])
def test_views_that_negate_or_conjugate(options):
    padded = torch.tensor([[1 + 2j, 0, 0], [3 - 1j, 4j, 0]])
    assert quadrat.unpad(padded.conj(), **options).to_lists() == [[1 - 2j], [3 + 1j, -4j]]
    assert quadrat.unpad(torch._neg_view(padded.real), **options).to_lists() == [[-1], [-3, 0]]
    assert quadrat.unpad(padded.real, **options).to_lists() == [[1], [3, 0]]


PADDED = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (ValueError, {"padded": PADDED}, "either lengths or a mask"),
        (ValueError, {"padded": PADDED, "lengths": [1, 1], "mask": PADDED}, "either lengths or a mask"),
        (ValueError, {"padded": PADDED, "lengths": [1]}, "2 rows and 1 lengths"),
        (ValueError, {"padded": PADDED, "lengths": [1, 4]}, "row 1 is longer than the padded length: it has 4 tokens"),
        (ValueError, {"padded": PADDED, "lengths": [1, -1]}, "row 1 has the negative length -1"),
        (TypeError, {"padded": PADDED, "lengths": [1.5, 1.0]}, "lengths must be integers"),
        (TypeError, {"padded": PADDED, "lengths": [1, 1], "total": 2.0}, "total must be an int"),
        (TypeError, {"padded": PADDED, "lengths": np.ma.array([1, 1], mask=[0, 1])}, "lengths would lose the mask"),
        (TypeError, {"padded": np.ma.array(PADDED, mask=PADDED == 0), "lengths": [1, 1]}, "padded would lose the mask"),
        (ValueError, {"padded": PADDED, "lengths": [1, 1], "padding_side": "top"}, "padding_side must be"),
        (ValueError, {"padded": PADDED, "mask": PADDED[:1]}, "the mask must be"),
        (TypeError, {"padded": PADDED, "mask": [[1, 1, 1]] * 2}, "the mask must be"),
        (TypeError, {"padded": PADDED, "mask": torch.ones(2, 3)}, "the mask must be"),
        (TypeError, {"padded": [[1, 2]], "lengths": [1]}, "padded must be"),
        (ValueError, {"padded": np.zeros(3), "lengths": [1]}, "must have rows and tokens"),
        (TypeError, {"padded": PADDED.astype(complex), "lengths": [1, 1]}, "complex128"),
        (TypeError, {"padded": PADDED.astype(complex), "mask": PADDED}, "complex128"),
        (ValueError, {"padded": torch.zeros(2, 3, device="meta"), "lengths": [1, 1]}, "on the CPU or a GPU"),
    ],
)
def test_bad_arguments_are_named(error, arguments, message):
    with pytest.raises(error, match=message):
        quadrat.unpad(arguments.pop("padded"), **arguments)


LENGTHS = st.lists(st.integers(0, 20), max_size=8)


def as_ragged(lengths, library):
    return ragged([[0] * length for length in lengths], library, "int8", (2,))[0]


# By family: what makes rows or lengths, and the library of their mask.
FORMS = {
    "rows": [
        (lambda lengths: [[1] * length for length in lengths], "np"),
        (lambda lengths: tuple((1.5,) * length for length in lengths), "np"),
        (lambda lengths: [np.ones(length, np.int8) for length in lengths], "np"),
        (lambda lengths: [torch.ones(length) for length in lengths], "first row"),
    ],
    "Ragged": [
        (lambda lengths: as_ragged(lengths, "np"), "np"),
        (lambda lengths: as_ragged(lengths, "pt"), "pt"),
        (lambda lengths: as_ragged([3, *lengths, 4], "np")[1:-1], "np"),
    ],
    "ints": [(list, "np"), (tuple, "np")],
    "arrays": [(lambda lengths, kind=kind: array(lengths, kind, "np"), "np") for kind in INTS],
    "tensors": [(lambda lengths, kind=kind: array(lengths, kind, "pt"), "pt") for kind in INTS],
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
    make, own_library = data.draw(st.sampled_from(FORMS[family]))
    options = {"padding_side": side, "pad_to_multiple_of": multiple_of, "return_tensors": library}
    options["max_length"] = None if extra is None else max(lengths, default=0) + extra
    out = quadrat.attention_mask(make(lengths), dtype=dtype, **options)
    if own_library == "first row":
        own_library = "pt" if lengths else "np"
    assert type(out) is (torch.Tensor if (library or own_library) == "pt" else np.ndarray)
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype or np.int64).name
    padded = quadrat.pad([[True] * length for length in lengths], padding_value=False, dtype="bool", **options)
    expected = np.empty(tuple(padded.shape), name)
    oracles.attention_mask(lengths, side, expected)
    assert np.asarray(out).dtype == name
    assert np.array_equal(np.asarray(out), expected)
    assert np.array_equal(np.asarray(padded), expected.astype(bool)), "pad with the same options has the same shape"


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
        (ValueError, [1, 3], {"max_length": 2}, "length=2 .* row 1 has 3 tokens"),
        (ValueError, [[1], [1, 2, 3]], {"max_length": 2}, "length=2 .* 3 tokens"),
        (ValueError, [1], {"padding_side": "middle"}, "'middle'"),
        (ValueError, [1], {"pad_to_multiple_of": 0}, "multiple_of"),
        (ValueError, [1], {"return_tensors": "tf"}, "'tf'"),
        (TypeError, [1], {"dtype": "complex64"}, "complex64"),
        ((ValueError, MemoryError), [2**62], {}, None),
        ((ValueError, MemoryError), [2**62] * 3, {"return_tensors": "pt"}, None),
        ((ValueError, MemoryError), np.array([2**63 - 1, 2**63 - 1]), {}, None),
        ((ValueError, MemoryError), np.array([2**63], np.uint64), {}, None),
    ],
)
def test_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.attention_mask(rows, **options)
