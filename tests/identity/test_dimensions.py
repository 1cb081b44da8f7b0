"""Columns whose rows have more than one dimension, as the installed transformers makes batches of them."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat import _core
from support.compare import assert_identical, both
from support.strategies import make_tokenizer

KINDS = [*_core.kinds, "float16", "float16", "float32", "complex64", ">i4", "object"]
FRAMEWORKS = st.sampled_from(["pt", "np"])


class Subclass(np.ndarray):
    pass


def laid_out(array: Any, how: str) -> Any:
    """The same numbers, in memory in another way."""
    if how == "transposed":
        return np.asfortranarray(array)
    if how == "strided":
        return np.repeat(array, 2, axis=0)[::2]
    if how == "backwards":
        return array[::-1].copy()[::-1]
    if how == "narrowed":
        return np.concatenate([array, array], axis=-1)[..., : array.shape[-1]]
    if how == "unaligned":
        moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype) if array.dtype != object else array
        moved = moved.reshape(array.shape)
        moved[...] = array
        return moved
    return array.view(Subclass) if how == "subclass" else array


LAYOUTS = ["plain"] * 6 + ["transposed", "strided", "backwards", "narrowed", "unaligned", "subclass"]
FORMS = ["array"] * 4 + ["tensor"] * 4 + ["list", "tuple", "requires_grad", "list of arrays"]


def in_form(array: Any, form: str) -> Any:
    if form == "array":
        return array
    if form in ("list", "tuple"):
        return array.tolist() if form == "list" else tuple(array.tolist())
    if form == "list of arrays":
        return list(array)
    try:
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError):
        return array
    return tensor.clone().requires_grad_() if form == "requires_grad" and tensor.is_floating_point() else tensor


@st.composite
def values(draw: Any, count: int) -> list[Any]:
    """A value for each row: mostly arrays, or tensors, of one shape and dtype."""
    odd = draw(st.integers(0, 3)) == 0  # whether rows may differ
    kinds_of_row = st.tuples(
        st.lists(st.integers(0, 3) | st.integers(1, 3), min_size=1, max_size=4),
        st.sampled_from(KINDS),
        st.sampled_from(LAYOUTS),
        st.sampled_from(FORMS),
    )
    first = draw(kinds_of_row)
    rows = []
    for _ in range(count):
        other = draw(kinds_of_row)
        shape, kind, layout, form = (
            draw(st.sampled_from([first[part], first[part], other[part]])) if odd else first[part] for part in range(4)
        )
        if draw(st.integers(0, 9)) == 0:
            shape = [draw(st.integers(0, 3)), *shape[1:]]
        numbers = draw(st.integers(0, 99)) + np.arange(int(np.prod(shape))).reshape(shape)
        scaled = numbers if draw(st.booleans()) else numbers / 3
        with np.errstate(all="ignore"):
            array = scaled.astype(kind)
        rows.append(in_form(laid_out(array, layout) if array.ndim else array, form))
    return rows


@st.composite
def features(draw: Any, names: list[str]) -> list[dict[str, Any]]:
    count = draw(st.integers(1, 4))
    columns = {name: draw(values(count)) for name in names}
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


@pytest.mark.filterwarnings("ignore:Casting complex")
@given(
    st.lists(
        st.sampled_from(["pixel_values", "labels", "label", "label_ids"]), min_size=1, max_size=2, unique=True
    ).flatmap(features),
    FRAMEWORKS,
)
def test_stacked(rows, framework):
    assert_identical(*both("DefaultDataCollator", framework), rows)


@pytest.mark.filterwarnings("ignore:Casting complex")
@given(features(["bbox", "labels"]), st.sampled_from(["list", "array", "tensor"]), FRAMEWORKS, st.data())
def test_beside_tokens(rows, form, framework, data):
    tokens = [data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)) for _ in rows]
    make = {"list": list, "array": np.array, "tensor": torch.tensor}[form]
    rows = [{"input_ids": make(ids), **row} for ids, row in zip(tokens, rows, strict=True)]
    assert_identical(*both("DataCollatorWithPadding", make_tokenizer(), return_tensors=framework), rows)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.sampled_from(["right", "left"]), FRAMEWORKS, st.data())
def test_pad_values(lengths, side, framework, data):
    trailing = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    longer = data.draw(st.integers(0, 1))
    boxes = [np.ones((length + longer, *trailing), np.float32) * length for length in lengths]
    rows = [{"input_ids": [5] * max(length, 1), "bbox": box} for length, box in zip(lengths, boxes, strict=True)]
    lists = data.draw(st.booleans())
    if lists:
        rows = [row | {"bbox": row["bbox"].tolist()} for row in rows]
    elif framework == "pt":
        rows = [row | {"bbox": torch.from_numpy(row["bbox"])} for row in rows]
    for deferred in (False, framework == "pt"):
        collator = quadrat.DataCollatorWithPadding(
            make_tokenizer(padding_side=side), return_tensors=framework, pad_values={"bbox": -1}, deferred=deferred
        )
        for _ in range(2):  # the second batch is a known one
            padded = np.asarray(collator(rows)["bbox"])
            expected = np.full((len(rows), max(map(len, boxes)), *trailing), -1, np.float32)
            if lists and not any(map(len, boxes)):
                expected = expected.reshape(len(rows), 0)  # empty lists do not tell more
            for row, box in zip(expected, boxes if expected.size else [], strict=expected.size > 0):
                row[len(row) - len(box) if side == "left" else 0 :][: len(box)] = box
            unknown = lists and not any(map(len, boxes))
            assert padded.dtype == (np.int64 if unknown else np.float32 if framework == "pt" else float)
            assert padded.tolist() == expected.tolist()


ROWS = [{"input_ids": [5, 6, 7], "bbox": [[1, 2], [3, 4], [5, 6]]}, {"input_ids": [8], "bbox": [[7, 8]]}]
ODD = [
    ([[7, 8, 9]], "column 'bbox' padded with 0: row 1 has tokens of the shape (3,), row 0 of (2,)"),
    ([[7, 8], [9]], "column 'bbox' padded with 0: row 1, position 1 is not a list as long as the first one"),
    ([[7, 8], None], "column 'bbox' padded with 0: row 1, position 1 is not a list as long as the first one"),
    ([[7, "a"]], "column 'bbox' padded with 0: row 1, position 0 mixes types of numbers"),
    (["ab"], "column 'bbox' padded with 0: row 1 is the list ['ab']"),
]


@pytest.mark.parametrize(("boxes", "message"), ODD)
def test_pad_values_names_the_row_of_odd_lists(boxes, message):
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values={"bbox": 0})
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(f"pad_values: {message}")):
            collator([ROWS[0], ROWS[1] | {"bbox": boxes}])
        assert collator(ROWS)["bbox"].shape == (2, 3, 2)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=2), st.sampled_from(FORMS[:10]), st.integers(1, 3))
def test_choices(trailing, form, tokens):
    """The reference puts all numbers of a choice into one row."""
    box = np.ones((tokens, *trailing), np.int64)
    rows = [{"input_ids": [[5] * tokens] * 2, "bbox": [in_form(box * row, form)] * 2, "label": 0} for row in range(3)]
    assert_identical(*both("DataCollatorForMultipleChoice", make_tokenizer()), rows)


def test_known_batches_of_one_plan_have_any_shape():
    """The sizes are no part of a plan."""
    collator = quadrat.DefaultDataCollator()
    quadrat.stats(reset=True)
    for shape in ((2, 3), (4, 1, 2), (3, 2), (1, 1, 1, 5)):
        rows = [{"pixel_values": np.full(shape, i, np.uint8)} for i in range(3)]
        assert_identical(*both("DefaultDataCollator"), rows)
        assert collator(rows)["pixel_values"].shape == (3, *shape)
    assert quadrat.stats().fell_back == 0
