"""align against plain PyTorch: every output, on both of its ways."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat.ops import aligned
from support.thd import (
    DTYPES,
    LENGTHS,
    MULTIPLES,
    a_column,
    boundaries,
    pad_sequences,
    padded_boundaries,
    same,
)

TRAILING = st.sampled_from([(), (3,), (2, 2)])


def expected_of(bounds, columns, fills, *, multiple, rest, start, continues):
    """An `Aligned`, token by token; `rest` more of padding at the end."""
    lengths, starts = bounds.diff().tolist(), padded_boundaries(bounds, multiple).tolist()
    starts[-1] += rest
    positions, sequences, gaps = [], [], []
    for row, length in enumerate(lengths):
        for place in range(starts[row + 1] - starts[row]):
            gap = place >= length
            positions.append(start if gap and not continues else start + place)
            sequences.append(-1 if gap else row)
            gaps.append(gap)
    values = []
    for column, fill in zip(columns, fills, strict=True):
        tail = torch.full((rest, *column.shape[1:]), fill, dtype=column.dtype)
        values.append(torch.cat([pad_sequences(column, bounds, multiple, fill), tail]))
    return aligned.Aligned(
        tuple(values),
        torch.tensor(positions, dtype=torch.int64),
        torch.tensor(sequences, dtype=torch.int32),
        torch.tensor([sum(lengths[:row]) for row in range(len(lengths) + 1)], dtype=torch.int32),
        max(lengths, default=0),
        torch.tensor(starts, dtype=torch.int32),
        max((end - begin for begin, end in pairwise(starts)), default=0),
        torch.tensor(gaps, dtype=torch.bool),
    )


def assert_alike(output, expected):
    for name, value, other in zip(output._fields, output, expected, strict=True):
        ones, others = (value, other) if name == "values" else ((value,), (other,))
        for left, right in zip(ones, others, strict=True):
            assert left == right if isinstance(right, int) else same(left, right), name


@given(
    lengths=LENGTHS,
    multiple=MULTIPLES,
    kinds=st.lists(st.tuples(DTYPES, TRAILING, st.sampled_from([0, 1])), max_size=3),
    extra=st.integers(0, 3),
    start=st.integers(-3, 9),
    continues=st.booleans(),
    fixed=st.booleans(),
)
def test_as_token_by_token(*, lengths, multiple, kinds, extra, start, continues, fixed):
    bounds = boundaries(lengths)
    columns = [a_column(int(bounds[-1]), dtype, trailing) for dtype, trailing, _ in kinds]
    fills = [fill for *_, fill in kinds]
    rest = extra * multiple if fixed and lengths else 0
    expected = expected_of(bounds, columns, fills, multiple=multiple, rest=rest, start=start, continues=continues)
    options = {
        "pad_to_multiple_of": multiple,
        "total_length": int(padded_boundaries(bounds, multiple)[-1]) + rest if fixed else None,
        "padding_value": fills,
        "position_ids_start": start,
        "continue_positions": continues,
    }
    output = quadrat.align(bounds, *columns, **options)
    assert_alike(output, expected)
    how = quadrat.Flattening(
        align_to=multiple,
        total_length=options["total_length"],
        position_ids_start=start,
        continue_positions=continues,
    )
    assert_alike(aligned.align_on_device(bounds, columns, how, fills), expected)
    plain = [column for column in columns if column.dtype != torch.bfloat16]
    if len(plain) == len(columns):
        arrays = quadrat.align(bounds.numpy(), *(column.numpy() for column in columns), **options)
        assert all(isinstance(part, (int, tuple, np.ndarray)) for part in arrays)
        again = [tuple(map(torch.from_numpy, arrays.values)), *arrays[1:]]
        assert_alike(
            aligned.Aligned(*(torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in again)),
            expected,
        )


def test_begins_where_the_first_sequence_does():
    output = quadrat.align(np.array([1, 3]), np.arange(9), pad_to_multiple_of=3)
    assert output.values[0].tolist() == [1, 2, 0]
    assert output.cu_seqlens.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("bounds", "options", "error", "words"),
    [
        ([0, 3], {"pad_to_multiple_of": 0}, ValueError, "pad_to_multiple_of must be positive, not 0"),
        ([0, 3], {"pad_to_multiple_of": 1.0}, TypeError, "pad_to_multiple_of must be an int"),
        ([0, 6], {"pad_to_multiple_of": 2}, ValueError, "offsets must be from 0 to 5"),
        ([0, 3, 2], {"pad_to_multiple_of": 2}, ValueError, r"offsets\[1\] is 3 and offsets\[2\] is 2"),
        ([0, 3], {"pad_to_multiple_of": 2, "total_length": 5}, ValueError, "total_length=5 is not a multiple of 2"),
        ([0, 3], {"pad_to_multiple_of": 2, "total_length": 2}, ValueError, "total_length=2 is below the 4 tokens"),
        ([0], {"pad_to_multiple_of": 2, "total_length": 2}, ValueError, "but there is no row"),
        ([0, 3], {"pad_to_multiple_of": 2, "padding_value": (1, 2)}, ValueError, "1 columns and 2 padding values"),
        ([0, 3], {"pad_to_multiple_of": 2, "padding_value": 2**63}, OverflowError, "does not fit the dtype int64"),
        ([0, 3], {"pad_to_multiple_of": 2, "position_ids_start": 2**63 - 2}, OverflowError, "positions beyond int64"),
        ([0, 3], {"pad_to_multiple_of": 2**31}, OverflowError, "more than int32 cu_seqlens can hold"),
        *((bounds, {"pad_to_multiple_of": 2}, TypeError, "offsets must be a NumPy array or torch tensor, not")
          for bounds in ((0, 3), range(0, 4, 3), None, memoryview(b"abc"))),
    ],
)  # fmt: skip
def test_align_refuses(bounds, options, error, words):
    with pytest.raises(error, match=words):
        quadrat.align(np.array(bounds) if isinstance(bounds, list) else bounds, np.arange(5), **options)
    with pytest.raises(TypeError, match="column 1 must be a NumPy array or torch tensor, not list"):
        quadrat.align(np.array([0, 1]), np.arange(1), [1], pad_to_multiple_of=2)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        (torch.float32, 1e300, OverflowError),
        (torch.float16, 70000.0, OverflowError),
        (torch.float32, 2**200, OverflowError),
        (torch.bfloat16, "a", TypeError),
        (torch.float64, None, TypeError),
    ],
)
def test_align_refuses_padding(dtype, value, error, gradient):
    column = torch.ones(3, dtype=dtype, requires_grad=gradient)
    with pytest.raises(error, match="padding_value"):
        quadrat.align(torch.tensor([0, 3]), column, pad_to_multiple_of=2, padding_value=value)
