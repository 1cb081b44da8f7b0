"""quadrat.Ragged: what its docstrings promise."""

import copy
import pickle
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat import _core
from support.strategies import make_tokenizer

KINDS = _core.kinds
ROWS = st.lists(st.lists(st.integers(0, 100), max_size=9), max_size=8)
TRAILING = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])
PLACES = st.none() | st.integers(-10, 10)
INTS = [kind for kind in KINDS if "int" in kind]
LIBRARIES = {"np": np, "pt": torch}
TYPES = {"np": np.ndarray, "pt": torch.Tensor}


def array(values, dtype, library):
    made = np.array(values, dtype)
    return torch.from_numpy(made) if library == "pt" else made


def ragged(rows, library="np", kind="int64", trailing=()):
    """A Ragged made by hand, and its values."""
    total = sum(map(len, rows))
    flat = np.array([number for row in rows for number in row], np.int64).reshape(total, *[1] * len(trailing))
    values = np.broadcast_to(flat, (total, *trailing)).astype(kind)
    offsets = np.cumsum([0, *map(len, rows)])
    return quadrat.Ragged(array(values, kind, library), array(offsets, np.int64, library)), values


@pytest.mark.parametrize("library", ["np", "pt"])
@given(rows=ROWS, kind=st.sampled_from(KINDS), trailing=TRAILING)
def test_rows_are_views_of_the_values(library, rows, kind, trailing):
    made, values = ragged(rows, library, kind, trailing)
    assert len(made) == len(rows)
    assert type(made.lengths) is TYPES[library]
    assert made.lengths.tolist() == [len(row) for row in rows]
    assert repr(made) == f"Ragged({len(rows)} rows, {len(values)} tokens, {made.values.dtype})"
    bounds = list(pairwise(np.cumsum([0, *map(len, rows)]).tolist()))
    for i, (row, (first, last)) in enumerate(zip(made, bounds, strict=True)):
        for seen in (row, made[i], made[i - len(rows)], made[np.int64(i)]):
            assert type(seen) is TYPES[library]
            assert np.array_equal(np.asarray(seen), values[first:last])
        if row.shape[0] and 0 not in trailing:
            row[0] = 1
            assert bool((made.values[first] == 1).all()), "a row is a view"
    assert made.to_lists() == [np.asarray(made.values)[first:last].tolist() for first, last in bounds]


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), start=PLACES, stop=PLACES)
def test_slices_are_ragged_over_the_same_values(rows, library, start, stop):
    made, _ = ragged(rows, library)
    part = made[start:stop]
    assert type(part) is quadrat.Ragged
    assert part.values is made.values
    assert part.to_lists() == rows[start:stop]
    assert part.lengths.tolist() == [len(row) for row in rows[start:stop]]
    assert len(part) == len(rows[start:stop])
    assert part[:].to_lists() == rows[start:stop]


MOVED = [*KINDS, "float16", "bfloat16", "complex64"]


def moved(rows, kind, trailing, before):
    """A Ragged of tensors of any dtype, `before` values into them, with one more at the end."""
    made, _ = ragged([[7] * before, *rows, [7]], "pt", "int64", trailing)
    return quadrat.Ragged(made.values.to(getattr(torch, kind)), made.offsets[1:-1].clone())


@st.composite
def chosen(draw, count):
    """What chooses copies of rows of `count`, and the numbers of these."""
    how = draw(st.sampled_from(["numbers", "mask", "range", "slice"]))
    if how == "slice":
        index = slice(draw(PLACES), draw(PLACES), draw(st.sampled_from([-3, -2, -1, 2, 3])))
        return index, list(range(count))[index]
    if how == "range":
        index = range(count - 1, draw(st.integers(-1, count)), -2)
        return index, list(index)
    if how == "mask":
        mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        make = draw(st.sampled_from([list, lambda mask: np.array(mask, bool), lambda mask: torch.tensor(mask).bool()]))
        return make(mask), [row for row, keep in enumerate(mask) if keep]
    numbers = draw(st.lists(st.integers(-count, count - 1), max_size=20)) if count else []
    kinds = [kind for kind in INTS if not kind.startswith("u") or min(numbers, default=0) >= 0]
    library, kind = draw(st.sampled_from([None, "np", "pt"])), draw(st.sampled_from(kinds))
    make = list if library is None else lambda numbers: array(numbers, kind, library)
    return make(numbers), [range(count)[number] for number in numbers]


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), trailing=TRAILING, data=st.data())
def test_chooses_copies_of_rows(rows, library, trailing, data):
    kind = data.draw(st.sampled_from(MOVED).filter(lambda kind: library == "pt" or kind != "bfloat16"))
    made = moved(rows, kind, trailing, data.draw(st.integers(0, 3)))
    if library == "np":
        made = quadrat.Ragged(made.values.numpy(), made.offsets.numpy())
    index, numbers = data.draw(chosen(len(rows)))
    got = made[index]
    assert type(got) is quadrat.Ragged
    assert type(got.values) is type(got.offsets) is TYPES[library]
    assert got.values.dtype == made.values.dtype
    assert tuple(got.values.shape) == (sum(len(rows[number]) for number in numbers), *trailing)
    assert got.offsets.dtype == LIBRARIES[library].int64
    assert got.offsets.tolist() == np.cumsum([0, *(len(rows[number]) for number in numbers)]).tolist()
    expected = made.to_lists()
    assert got.to_lists() == [expected[number] for number in numbers]
    assert got.facts == quadrat.Ragged(got.values, got.offsets).facts
    got.values[:] = 1
    assert made.to_lists() == expected, "a copy"


PADDING = st.fixed_dictionaries(
    {
        "side": st.sampled_from(["right", "left"]),
        "length": st.sampled_from([None, 12]),
        "multiple_of": st.sampled_from([None, 8]),
        "padding_value": st.integers(0, 3),
    }
)


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), options=PADDING)
def test_to_padded(rows, library, options):
    made, _ = ragged(rows, library)
    got = made.to_padded(**options)
    assert type(got) is TYPES[library]
    width = options["length"] or max(map(len, rows), default=0)
    width = -(-width // (options["multiple_of"] or 1)) * (options["multiple_of"] or 1)
    gaps = [[options["padding_value"]] * (width - len(row)) for row in rows]
    left = options["side"] == "left"
    assert got.tolist() == [gap + row if left else row + gap for row, gap in zip(rows, gaps, strict=True)]


def test_to_padded_takes_the_options_of_pad():
    made, _ = ragged([[1], [2, 3]])
    assert made.to_padded(dtype="float32", return_tensors="pt").dtype == torch.float32
    with pytest.raises(ValueError, match="row 1 has 2 tokens"):
        made.to_padded(length=1)
    with pytest.raises(TypeError, match="width"):
        made.to_padded(width=1)


@given(
    rows=ROWS, trailing=TRAILING, before=st.integers(0, 3), kind=st.sampled_from(MOVED), offsets=st.sampled_from(INTS)
)
def test_to_nested(rows, trailing, before, kind, offsets):
    made = moved(rows, kind, trailing, before)
    made = quadrat.Ragged(made.values, made.offsets.to(getattr(torch, offsets)))
    nested = made.to_nested()
    assert nested.layout is torch.jagged
    assert nested.dtype == made.values.dtype
    assert (nested.size(0), nested.dim()) == (len(rows), 2 + len(trailing))
    assert nested.values().untyped_storage().data_ptr() == made.values.untyped_storage().data_ptr()
    assert nested.values().shape == (sum(map(len, rows)), *trailing)
    assert [row.tolist() for row in nested.unbind()] == made.to_lists()


def test_to_nested_shares_the_memory_of_numpy():
    made, values = ragged([[1], [], [2, 3]])
    nested = made[1:].to_nested()
    nested.values()[0] = 7
    assert made.to_lists() == [[1], [], [7, 3]]
    del made, values
    assert [row.tolist() for row in nested.unbind()] == [[], [7, 3]]


@given(rows=ROWS, before=st.integers(0, 3))
def test_a_gradient_goes_through_to_nested(rows, before):
    made = moved(rows, "float64", (), before)
    made.values.requires_grad_()
    nested = made.to_nested()
    (nested * nested).values().sum().backward()
    assert made.values.grad.tolist() == [0] * before + [2 * number for row in rows for number in row] + [0]


def arrow_type(kind, trailing):
    """The type of a token's values."""
    made = {"bool": pa.bool_(), "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}.get(kind)
    made = made or getattr(pa, kind)()
    for size in reversed(trailing):
        made = pa.list_(made, size)
    return made


ARROW_KINDS = st.sampled_from([*KINDS, "float16"])


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), kind=ARROW_KINDS, trailing=TRAILING, before=st.integers(0, 3))
def test_to_arrow(rows, library, kind, trailing, before):
    made = moved(rows, kind, trailing, before)
    expected = made.to_lists()
    if library == "np":
        made = quadrat.Ragged(made.values.numpy(), made.offsets.numpy())
    column = made.to_arrow()
    column.validate(full=True)
    assert column.type == pa.list_(arrow_type(kind, trailing))
    assert column.null_count == 0
    assert column.to_pylist() == expected
    if kind != "bool" and not trailing and any(rows):
        first = np.asarray(made.values)[before:]
        assert column.values.buffers()[1].address == first.ctypes.data, "the values stay where they are"
    if not trailing:
        numbers = column.values.to_numpy(zero_copy_only=kind != "bool")
        assert quadrat.Ragged(numbers, column.offsets.to_numpy()).to_lists() == expected


@given(rows=ROWS.filter(any), library=st.sampled_from(["np", "pt"]), before=st.integers(0, 3))
def test_collators_take_what_to_arrow_makes(rows, library, before):
    made = moved(rows, "int32", (), before)
    if library == "np":
        made = quadrat.Ragged(made.values.numpy(), made.offsets.numpy())
    tokenizer = make_tokenizer(pad_token="[EOS]")
    batch = quadrat.DataCollatorWithPadding(tokenizer, return_tensors="np")(pa.table({"input_ids": made.to_arrow()}))
    assert batch["input_ids"].tolist() == made.to_padded(padding_value=tokenizer.pad_token_id).tolist()
    assert batch["attention_mask"].tolist() == quadrat.attention_mask(made).tolist()


def test_to_arrow_of_many_values():
    most = 2**31 - 1
    values = np.zeros(most + 3, np.int8)  # of which nothing is touched
    assert quadrat.Ragged(values, np.array([2, most + 2])).to_arrow().type == pa.list_(pa.int8())
    column = quadrat.Ragged(values, np.array([0, most, most + 3])).to_arrow()
    assert column.type == pa.large_list(pa.int8())
    assert column[1].as_py() == [0, 0, 0]


def test_to_arrow_outlives_the_values():
    made = quadrat.Ragged(torch.arange(100_000), torch.tensor([0, 1, 100_000]))
    column = made.to_arrow()
    del made
    torch.zeros(100_000)
    assert column[1].as_py() == list(range(1, 100_000))


def test_to_arrow_of_values_that_are_not_as_stored():
    offsets = torch.tensor([0, 2, 3])
    assert quadrat.Ragged(np.arange(6)[::-2], offsets.numpy()).to_arrow().to_pylist() == [[5, 3], [1]]
    assert quadrat.Ragged(torch._neg_view(torch.arange(3)), offsets).to_arrow().to_pylist() == [[0, -1], [-2]]
    values = torch.arange(3.0).requires_grad_()
    assert quadrat.Ragged(values, offsets).to_arrow().to_pylist() == [[0, 1], [2]]


@pytest.mark.parametrize("kind", ["bfloat16", "complex64", "float8_e5m2"])
def test_to_arrow_refuses(kind):
    made = moved([[1]], kind, (), 0)
    with pytest.raises(TypeError, match=f"Arrow has no {kind}: convert the values first"):
        made.to_arrow()


FLOAT8 = ["float8_e4m3fn", "float8_e5m2"]


@given(rows=ROWS, kind=st.sampled_from([*MOVED, *FLOAT8]), trailing=TRAILING, before=st.integers(0, 3))
def test_to_lists(rows, kind, trailing, before):
    made = moved(rows, kind, trailing, before)
    expected = [row.tolist() for row in made]
    assert made.to_lists() == expected
    kinds = {type(number) for row in made.to_lists() for number in row}
    assert kinds == {type(number) for row in expected for number in row}
    made.values.requires_grad_(made.values.is_floating_point())
    assert made.to_lists() == expected
    if kind not in ("bfloat16", *FLOAT8):
        assert quadrat.Ragged(made.values.numpy(force=True), made.offsets.numpy()).to_lists() == expected


@given(rows=ROWS, data=st.data())
def test_chosen_rows_have_a_gradient(rows, data):
    made, _ = ragged(rows, "pt", "float32")
    index, numbers = data.draw(chosen(len(rows)))
    made.values.requires_grad_()
    made[index].values.sum().backward()
    counts = np.bincount(np.array(numbers, np.int64), minlength=len(rows)).tolist()
    assert made.values.grad.tolist() == [count for count, row in zip(counts, rows, strict=True) for _ in row]


def test_chooses_from_values_that_are_not_as_stored():
    """A view, and one of torch's that says that numbers are negated."""
    offsets = np.array([0, 2, 5])
    assert quadrat.Ragged(np.arange(10)[::-2], offsets)[[1, 0]].to_lists() == [[5, 3, 1], [9, 7]]
    negated = torch._neg_view(torch.arange(5))
    assert negated.is_neg()
    assert quadrat.Ragged(negated, torch.from_numpy(offsets))[[1, 0]].to_lists() == [[-2, -3, -4], [0, -1]]
    conjugate = torch.tensor([1j, 2j], dtype=torch.complex64).conj()
    assert quadrat.Ragged(conjugate, torch.tensor([0, 1, 2]))[[1, 0]].to_lists() == [[-2j], [-1j]]


@pytest.mark.parametrize("library", ["np", "pt"])
@pytest.mark.parametrize(
    ("error", "index", "message"),
    [
        (IndexError, [0, 2], "row 2 of 2"),
        (IndexError, [0, -3, 5], "row -3 of 2"),
        (IndexError, np.array([2**63], np.uint64), f"row {2**63} of 2"),
        (IndexError, torch.tensor([1, 7]), "row 7 of 2"),
        (IndexError, range(3), "row 2 of 2"),
        (IndexError, [True], "1 booleans for 2 rows"),
        (IndexError, np.ones(3, bool), "3 booleans for 2 rows"),
        (IndexError, torch.ones(0, dtype=torch.bool), "0 booleans for 2 rows"),
        (IndexError, [[0], [1]], "one dimension, not of 2"),
        (TypeError, [0.0], "not by float64"),
        (TypeError, torch.ones(2), "not by float32"),
        (TypeError, np.zeros(0), "not by float64"),
        (TypeError, ["0"], "not by <U1"),
        (TypeError, [None], "not by object"),
        (TypeError, [2**70], "not by object"),
        (TypeError, (0, 1), "tuple"),
    ],
)
def test_refuses_to_choose(library, error, index, message):
    made, _ = ragged([[1], [2, 3]], library)
    with pytest.raises(error, match=message):
        made[index]
    with pytest.raises(IndexError, match="row 0 of 0"):
        made[:0][[0]]


@given(rows=ROWS, beyond=st.integers(0, 5))
def test_knows_its_rows(rows, beyond):
    made, _ = ragged(rows)
    for index in (len(rows) + beyond, -len(rows) - 1 - beyond):
        with pytest.raises(IndexError, match=f"row {index} of {len(rows)}"):
            made[index]
    for index in ("0", 0.0, None, (0,)):
        with pytest.raises(TypeError):
            made[index]


@given(
    rows=ROWS,
    make=st.sampled_from([list, tuple, np.array, lambda row: torch.tensor(row, dtype=torch.int16)]),
    dtype=st.sampled_from([None, *(kind for kind in KINDS if kind != "bool"), torch.int32, float, np.int8]),
    library=st.sampled_from([None, "np", "pt"]),
    container=st.sampled_from([list, tuple]),
)
def test_from_rows_copies(rows, make, dtype, library, container):
    given_rows = container(make(row) if row or make in (list, tuple) else make([0])[:0] for row in rows)
    made = quadrat.Ragged.from_rows(given_rows, dtype=dtype, return_tensors=library)
    tensors = len(rows) > 0 and isinstance(given_rows[0], torch.Tensor)
    wanted = library or ("pt" if tensors else "np")
    assert type(made.values) is type(made.offsets) is TYPES[wanted]
    if dtype is not None:
        name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
    else:
        name = "int16" if tensors and any(rows) else "int64"
    assert made.values.dtype == getattr(LIBRARIES[wanted], name)
    assert made.offsets.dtype == LIBRARIES[wanted].int64
    assert made.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert made.to_lists() == rows
    for row in given_rows:
        if len(row) and isinstance(row, (np.ndarray, torch.Tensor)):
            row[:] = 111  # the copy does not see it
    assert made.to_lists() == rows


def test_from_rows_of_numbers_without_dtype():
    assert quadrat.Ragged.from_rows([[1.5], [], [2]][:2]).values.dtype == np.float64
    assert quadrat.Ragged.from_rows([[True]]).values.dtype == np.bool_
    assert quadrat.Ragged.from_rows([np.ones(1, np.uint8), np.ones(1, np.int16)]).values.dtype == np.int64


@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, "rows", {}, "not str"),
        (TypeError, [[1], None], {}, "row 1 is the NoneType None"),
        (TypeError, [[1], [1], np.ones((1, 1))], {}, "row 2 is the ndarray"),
        (TypeError, [[1], [2, "x"]], {}, "row 1, position 1"),
        (TypeError, [[True], [1]], {}, "different kinds"),
        (TypeError, [[1.5]], {"dtype": "int64"}, "row 0"),
        (TypeError, [[1]], {"dtype": "float16"}, "float16"),
        (OverflowError, [[1], [1, 2**70]], {}, "row 1, position 1"),
        (OverflowError, [[1], [300]], {"dtype": "int8"}, "row 1"),
        (OverflowError, [np.array([-1])], {"dtype": "uint64"}, "row 0"),
        (ValueError, [[1]], {"return_tensors": "tf"}, "return_tensors"),
    ],
)
def test_from_rows_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.Ragged.from_rows(rows, **options)


@pytest.mark.parametrize("library", ["np", "pt"])
@pytest.mark.parametrize("kind", INTS)
def test_offsets_may_be_any_integers(library, kind):
    made = quadrat.Ragged(array(range(5), "int64", library), array([0, 2, 2, 5], kind, library))
    assert made.lengths.tolist() == [2, 0, 3]
    assert made.to_lists() == [[0, 1], [], [2, 3, 4]]
    assert quadrat.pad(made).tolist() == [[0, 1, 0], [0, 0, 0], [2, 3, 4]]
    assert made[1:].to_lists() == [[], [2, 3, 4]]


@pytest.mark.parametrize("library", ["np", "pt"])
@pytest.mark.parametrize("kind", INTS)
def test_refuses_offsets(library, kind):
    for offsets in ([0, 3, 1], [0, 6], [3, 0], [-1, 2], []):
        if kind.startswith("u") and -1 in offsets:
            continue
        with pytest.raises(ValueError, match="offsets"):
            quadrat.Ragged(array(range(5), "int64", library), array(offsets, kind, library))


@given(count=st.integers(0, 6), offsets=st.lists(st.integers(-2, 8), min_size=1, max_size=6))
def test_refuses_offsets_outside_the_values(count, offsets):
    values = np.arange(count)
    steps = list(pairwise(offsets))
    if offsets[0] >= 0 and offsets[-1] <= count and all(first <= last for first, last in steps):
        made = quadrat.Ragged(values, np.array(offsets))
        assert made.to_lists() == [list(range(first, last)) for first, last in steps]
        return
    message = f"{count} values; they run from {offsets[0]} to {offsets[-1]}"
    bad = [i for i, (first, last) in enumerate(steps) if not 0 <= first <= last <= count]
    if bad:
        message += f", and row {bad[0]} runs from {steps[bad[0]][0]} to {steps[bad[0]][1]}"
    with pytest.raises(ValueError, match=message):
        quadrat.Ragged(values, np.array(offsets))


@pytest.mark.parametrize(
    ("error", "values", "offsets", "message"),
    [
        (TypeError, [1, 2], np.array([0, 2]), "not list and ndarray"),
        (TypeError, np.arange(2), [0, 2], "not ndarray and list"),
        (TypeError, np.arange(2), torch.tensor([0, 2]), "not ndarray and Tensor"),
        (TypeError, torch.arange(2), np.array([0, 2]), "not Tensor and ndarray"),
        (TypeError, np.zeros(2, np.complex128), np.array([0, 2]), "complex128"),
        (TypeError, np.zeros(2, ">i4"), np.array([0, 2]), ">i4"),
        (TypeError, torch.zeros(2, dtype=torch.complex128), torch.tensor([0, 2]), "complex128"),
        (ValueError, np.array(1), np.array([0, 1]), "dimension"),
        (ValueError, np.arange(2), np.array([[0, 2]]), "dimension"),
        (ValueError, np.arange(2), np.array([0.0, 2.0]), "integers"),
        (ValueError, np.arange(2), np.array([False, True]), "integers"),
        (ValueError, torch.zeros(2, device="meta"), torch.tensor([0, 2]), "meta"),
    ],
)
def test_refuses(error, values, offsets, message):
    with pytest.raises(error, match=message):
        quadrat.Ragged(values, offsets)


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]))
def test_survives_copies(rows, library):
    made, _ = ragged(rows, library)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other.to_lists() == rows
        assert other.values is not made.values
