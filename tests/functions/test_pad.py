"""quadrat.pad: what its docstring promises."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given

import oracles
import quadrat
from support.compare import picture
from support.ragged import KINDS, MOVED, NUMBERS, ROWS, TRAILING, TYPES, dtypes_for, moved, rows_of_a_form


@given(
    batch=rows_of_a_form(),
    side=st.sampled_from([None, "right", "left"]),
    extra=st.none() | st.integers(0, 20),
    multiple_of=st.none() | st.integers(1, 17),
    library=st.sampled_from([None, "np", "pt"]),
    data=st.data(),
)
def test_pads_as_the_oracle(*, batch, side, extra, multiple_of, library, data):
    rows, arrays, number, kind, own_library = batch
    dtype = data.draw(st.none() | st.sampled_from(dtypes_for(number, kind)))
    value = data.draw(NUMBERS[number])
    if kind == "int64" and not any(map(len, arrays)):
        value = int(value == 1)
        dtype = None
    longest = max(map(len, arrays), default=0)
    length = None if extra is None else longest + extra
    width = -(-(length or longest) // (multiple_of or 1)) * (multiple_of or 1)
    options = {
        "padding_value": value,
        "max_length": length,
        "pad_to_multiple_of": multiple_of,
        "return_tensors": library,
    }
    as_torch = dtype is not None and data.draw(st.booleans())
    options["dtype"] = getattr(torch, dtype) if as_torch else dtype
    if side is not None:
        options["padding_side"] = side
    out = quadrat.pad(rows, **options)
    expected = np.empty((len(arrays), width), dtype or kind)
    starts = [i * width + (width - len(row) if side == "left" else 0) for i, row in enumerate(arrays)]
    oracles.copy_rows(arrays, starts, expected.reshape(-1))
    oracles.fill_gaps([len(row) for row in arrays], side or "right", value, expected)
    assert type(out) is TYPES[library or own_library]
    out = np.asarray(out)
    assert out.dtype == expected.dtype
    assert out.shape == expected.shape
    assert out.tobytes() == expected.tobytes()


@given(first=st.floats(width=32), second=st.floats(width=32), ints=st.lists(st.integers(0, 99), max_size=5))
def test_rows_may_differ_in_form_and_width(first, second, ints):
    out = quadrat.pad([np.array([first], np.float32), [second], (second,), torch.tensor([first])])
    assert out.dtype == np.float64
    assert np.array_equal(out.reshape(-1), [first, second, second, first], equal_nan=True)
    rows = [np.array(ints, np.int8), ints, torch.tensor(ints, dtype=torch.int32), np.array(ints, np.uint16)]
    assert quadrat.pad(rows).tolist() == [ints] * 4


class Half(float):
    """A float that is not exactly one."""


LAZILY_NEGATED = quadrat.Ragged(torch.tensor([1 + 2j]).conj().imag, torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        *(([[1.0]], {"max_length": 2, "padding_value": value}, [[1.0, 0.5]]) for value in (np.float64(0.5), Half(0.5))),
        *(([[value]], {"dtype": "uint64"}, [[value]]) for value in (2**63, 2**64 - 1)),
        *(
            ([np.ones(1, np.uint64)], {"max_length": 2, "padding_value": value}, [[1, value]])
            for value in (2**63, 2**64 - 1)
        ),
        ([[1.5], [1, 2]], {"dtype": "float32"}, [[1.5, 0.0], [1.0, 2.0]]),
        (LAZILY_NEGATED, {}, [[-2.0]]),
    ],
)
def test_takes_numbers_of_any_make(rows, options, expected):
    assert quadrat.pad(rows, **options).tolist() == expected


@given(
    rows=ROWS,
    kind=st.sampled_from([*MOVED, "float8_e5m2", "float8_e4m3fn"]),
    trailing=TRAILING,
    library=st.sampled_from(["np", "pt"]),
    side=st.sampled_from(["right", "left"]),
    extra=st.integers(0, 5),
    multiple_of=st.none() | st.integers(1, 5),
    as_list=st.booleans(),
    strided=st.booleans(),
)
def test_numbers_of_any_dtype_and_shape(*, rows, kind, trailing, library, side, extra, multiple_of, as_list, strided):
    """They are padded, joined one after the other, and taken out of the padding again."""
    whole = moved(rows, kind, trailing, 2)
    values, lengths = whole.values[2:-1], [len(row) for row in rows]
    if strided and not (as_list and trailing):
        stored = whole.values[:, None].expand(-1, 2, *trailing).contiguous()[:, 0]
        whole, values = quadrat.Ragged(stored, whole.offsets), stored[2:-1]
    if library == "np" and kind in KINDS:
        whole, values = quadrat.Ragged(whole.values.numpy(), whole.offsets.numpy()), values.numpy()
    assume(not as_list or (any(rows) and 0 not in trailing))  # rows without numbers have no kind
    batch = list(whole) if as_list else whole
    width = max(lengths, default=0) + extra
    padded = quadrat.pad(batch, padding_side=side, max_length=width, padding_value=1)
    assert padded.shape == (len(rows), width, *trailing)
    assert not as_list or picture(quadrat.Ragged.from_rows(batch).values) == picture(values)
    mask = quadrat.attention_mask(batch, padding_side=side, max_length=width)
    for options in ({"lengths": lengths, "padding_side": side}, {"mask": mask}):
        back = quadrat.unpad(padded, **options)
        assert picture(back.values) == picture(values)
        assert back.offsets.tolist() == np.cumsum([0, *lengths]).tolist()
        assert back.to_lists() == whole.to_lists()
    flat = quadrat.flatten(batch, pad_to_multiple_of=multiple_of, padding_value=1).values
    assert picture(flat[: len(values)]) == picture(values)
    others, opposite = [width - length for length in lengths], "left" if side == "right" else "right"
    for gaps in (flat[len(values) :], quadrat.unpad(padded, lengths=others, padding_side=opposite).values):
        ones = torch.ones(gaps.shape).to(getattr(torch, kind))
        assert picture(gaps) == picture(ones if isinstance(gaps, torch.Tensor) else ones.numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16"])
@pytest.mark.parametrize("rows", [[[1.5], [2.0]], [np.array([1.5]), np.array([2.0])], [torch.ones(1), torch.ones(1)]])
def test_bfloat16_makes_tensors(rows, dtype):
    expected = torch.tensor([[row[0]] for row in rows], dtype=torch.bfloat16)
    for padded in (quadrat.pad(rows, dtype=dtype), quadrat.Ragged.from_rows(rows, dtype=dtype).to_padded()):
        assert torch.equal(padded, expected)
        assert padded.dtype == torch.bfloat16
    assert torch.equal(quadrat.attention_mask(rows, dtype=dtype), torch.ones_like(expected))


def test_bfloat16_of_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes, which has the dtype, is not installed")
    padded = quadrat.pad([np.array([1.5, 2], ml_dtypes.bfloat16), np.array([3], ml_dtypes.bfloat16)], padding_value=-1)
    assert padded.dtype == ml_dtypes.bfloat16
    assert padded.tolist() == [[1.5, 2.0], [3.0, -1.0]]


def test_files_mapped_into_memory(tmp_path):
    """As pretraining stores its tokens."""
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "tokens")
    tokens = np.memmap(tmp_path / "tokens", np.uint16, "r")
    rows = [tokens[5:8], tokens[90:91].astype(np.int64)]
    assert quadrat.pad(rows).tolist() == [[5, 6, 7], [90, 0, 0]]
    assert quadrat.Ragged.from_rows(rows).to_lists() == [[5, 6, 7], [90]]
    assert type(quadrat.Ragged.from_rows(rows).values) is np.ndarray
    features = [{"input_ids": row} for row in rows]
    (pack,) = quadrat.PackedDataset(features, 8, shuffle=False)
    assert pack["input_ids"].tolist() == [5, 6, 7, 90]
    assert quadrat.DataCollatorWithFlattening()(features)["input_ids"].tolist() == [[5, 6, 7, 90]]


@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, np.zeros((2, 2)), {}, "not ndarray"),
        (TypeError, [[1.5], [1, 2]], {}, "give dtype="),
        (TypeError, [[1], [[1], [2]]], {}, r"row 1 has tokens of the shape \(1,\), row 0 of \(\)"),
        (TypeError, [[[1, 2]], [[3, 4], [5]]], {}, "row 1, position 1 is not a list as long as the first one"),
        (TypeError, [[[1, 2]], [[3, 4], 5]], {}, "row 1, position 1 is not a list as long as the first one"),
        (TypeError, [[[1, 2]], [[3]]], {}, r"row 1 has tokens of the shape \(1,\), row 0 of \(2,\)"),
        (TypeError, [[[1, 2]], [[3, 4], [5, None]]], {}, "row 1, position 1 mixes types"),
        (TypeError, [[[]]], {}, r"row 0 is the list \[\[\]\]"),
        (TypeError, [range(3)], {}, r"row 0 is the range range\(0, 3\).*; give list\(row\)"),
        (TypeError, [np.ma.array([1])], {}, r"row 0 is the MaskedArray.*; give np.asarray\(row\)"),
        (TypeError, [[1], [1, 2, None]], {}, "row 1, position 2"),
        (TypeError, [[1], [2]], {"dtype": "bool"}, "row 0"),
        (TypeError, [[1]], {"dtype": torch.bfloat16, "return_tensors": "np"}, "NumPy has no dtype bfloat16"),
        (TypeError, [torch.ones(1), torch.nn.Parameter(torch.ones(1))], {}, r"row 1 is the Parameter.*row.detach\(\)"),
        (TypeError, [torch.ones(1).bfloat16().requires_grad_()], {}, r"row 0 is the Tensor of.*give row.detach\(\)"),
        (TypeError, [torch.ones(1).bfloat16()], {"dtype": torch.int32}, "row 0 holds numbers whose dtype"),
        (TypeError, [torch.ones(1, dtype=torch.complex64).conj()], {}, "row 0 is the Tensor of torch.complex64"),
        (OverflowError, [torch.ones(n).bfloat16() for n in (1, 2)], {"padding_value": 1e39}, "bfloat16"),
        (TypeError, [torch.ones(1).bfloat16()], {"return_tensors": "np"}, "NumPy has no dtype bfloat16"),
        (TypeError, [torch.ones(1, device="meta")], {}, "row 0 is the Tensor"),
        (OverflowError, [[1], [1, 2]], {"padding_value": 0.5}, None),
        (OverflowError, [[1], [1, 2]], {"padding_value": 256, "dtype": "uint8"}, None),
        (ValueError, [[1], [1, 2]], {"max_length": 1}, "length=1 .* row 1 has 2 tokens"),
        (ValueError, [[1]], {"max_length": -1}, "length=-1"),
        (ValueError, [[1]], {"pad_to_multiple_of": 0}, "multiple_of"),
        (ValueError, [[1]], {"padding_side": "middle"}, "'middle'"),
        (ValueError, [[1]], {"max_length": 2**62}, None),
        (ValueError, [[1]], {"max_length": 2**62, "return_tensors": "pt"}, None),
    ],
)
def test_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.pad(rows, **options)
