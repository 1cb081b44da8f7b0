"""`join_columns`, `pad_axes` and `dtypes` against oracles of one line: `torch.cat`, `F.pad`, `.to(dtype)`."""

import itertools
from typing import Any
from unittest import mock

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.nn.functional import pad

import quadrat
from support import samples
from support.compare import assert_same_batch

pytestmark = pytest.mark.same_everywhere

COLLATORS = ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]
COLLATORS += ["DataCollatorForLanguageModeling", "DataCollatorWithFlattening"]
FORMS = ["array", "strided array", "tensor", "strided tensor", "list", "tuple"]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES_OF_ROWS = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]
# Numbers at which rounding to 16 bits changes its mind, and those beyond.
EDGES = [0.0, -0.0, 65519.996, 65520.0, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8, 1e-45, 3.3895e38, 3.39e38, 1e38]
DTYPES = st.sampled_from(DTYPES_OF_ROWS)
NUMBERS = st.floats(width=32) | st.sampled_from([*EDGES, *(-edge for edge in EDGES)])


def given_as(row: torch.Tensor, form: str) -> Any:
    if form.startswith("strided") and row.dim() > 1:
        row = row.transpose(0, -1).contiguous().transpose(0, -1)
    if form.endswith("array") and row.dtype != torch.bfloat16:
        return row.numpy()
    return {"list": row.tolist(), "tuple": tuple(row.tolist())}.get(form, row)


def as_read(row: torch.Tensor, form: str, kept: Any = DTYPES_OF_ROWS) -> torch.Tensor:
    """A row, with the dtype that numbers in lists have, unless it is of memory and of a dtype that is kept."""
    if form not in ("list", "tuple") and row.dtype in kept:
        return row
    return row.to(torch.float32 if row.is_floating_point() else row.dtype if row.dtype == torch.bool else torch.int64)


@st.composite
def tensors(draw: Any, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    numbers = NUMBERS if dtype.is_floating_point else st.integers(0, 1 if dtype == torch.bool else 99)
    rows = []
    for shape in shapes:
        size = int(np.prod(shape))
        values = draw(st.lists(numbers, min_size=size, max_size=size))
        kind = torch.float64 if dtype.is_floating_point else torch.int64
        rows.append(torch.tensor(values, dtype=kind).reshape(shape).to(dtype))
    return rows


def assert_equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.isnan(), expected.isnan()) if got.is_floating_point() else True
    assert torch.equal(torch.signbit(got)[~got.isnan()], torch.signbit(expected)[~expected.isnan()])


def tokens(lengths: Any, name: str = "Seq2Seq") -> list[dict[str, Any]]:
    labels = "Seq2Seq" in name or "Token" in name
    return [{"input_ids": [5] * size, **({"labels": [6] * size} if labels else {})} for size in lengths]


def make(name: str, **options: Any) -> Any:
    return samples.make(quadrat, name, **({"mlm": False} if "Language" in name else {}), **options)


@given(name=st.sampled_from(COLLATORS), form=st.sampled_from(FORMS), data=st.data())
def test_joined(name, form, data):
    draw = data.draw
    dtype, into = draw(DTYPES), draw(st.none() | st.sampled_from(FLOATS))
    trailing = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    sizes = draw(st.lists(st.none() | st.integers(1, 4), min_size=1, max_size=5))
    rows = iter(draw(tensors([(n, *trailing) for n in sizes if n is not None], dtype)))
    features, kept = tokens(range(1, len(sizes) + 1), name), []
    for feature, size in zip(features, sizes, strict=True):
        if size is not None:
            kept.append(next(rows))
            feature["pixels"] = given_as(kept[-1], form)
        elif draw(st.booleans()):
            feature["pixels"] = None
    free = {"padding_free": True} if name in (COLLATORS[1], COLLATORS[3]) and draw(st.booleans()) else {}
    dtypes = None if into is None or dtype == torch.bool else {"pixels": into}
    collator = make(name, join_columns=["pixels"], dtypes=dtypes, **free)
    without = [{key: value for key, value in feature.items() if key != "pixels"} for feature in features]
    plain = make(name, **free)(without)
    for _ in range(2):
        batch = dict(collator(features))
        if kept:
            # With a dtype, numbers in lists do not become float32 first.
            joined = torch.cat([as_read(row, form) for row in kept]) if dtypes is None else torch.cat(kept).to(into)
            assert_equal(batch.pop("pixels"), joined)
        assert_same_batch(dict(plain), batch)
    assert not collator.__dict__.get("_quadrat_fell_back")


@given(axes=st.sampled_from([-1, 0, (0, 1), (-2, -1), (0, 2)]), form=st.sampled_from(FORMS), data=st.data())
def test_any_axis_is_padded(axes, form, data):
    draw = data.draw
    given_axes = (axes,) if isinstance(axes, int) else axes
    dimensions = draw(st.integers(max(2, *(axis + 1 for axis in given_axes)), 4))
    padded, dtype = {axis % dimensions for axis in given_axes}, draw(DTYPES.filter(lambda kind: kind != torch.bool))
    fixed = draw(st.lists(st.integers(1, 3), min_size=dimensions, max_size=dimensions))
    count, left = draw(st.integers(1, 4)), draw(st.booleans())
    sizes = st.integers(1, 4)
    shapes = [tuple(draw(sizes) if axis in padded else fixed[axis] for axis in range(dimensions)) for _ in range(count)]
    rows, value = draw(tensors(shapes, dtype)), draw(st.integers(0, 9))
    aligned = len(padded) == 1 and draw(st.booleans())
    lengths = [shape[min(padded)] for shape in shapes] if aligned else [9] * count
    features = [{**feature, "x": given_as(row, form)} for feature, row in zip(tokens(lengths), rows, strict=True)]
    multiple = draw(st.none() | st.just(8))
    options = {"pad_values": {"x": value}, "pad_axes": {"x": axes, "mask": "x"}, "pad_to_multiple_of": multiple}
    collator = samples.make(quadrat, "DataCollatorForSeq2Seq", **options)
    collator.tokenizer.padding_side = "left" if left else "right"
    batch = collator(features)
    width = [max(shape[axis] for shape in shapes) for axis in range(dimensions)]
    if len(padded) == 1 and [shape[min(padded)] for shape in shapes] == lengths:
        width[min(padded)] = batch["input_ids"].shape[1]
    else:
        left = False

    def widened(row: torch.Tensor, by: float) -> torch.Tensor:
        gaps = [(0, 0) if not left else (width[a] - row.shape[a], 0) for a in range(dimensions)]
        gaps = gaps if left else [(0, width[a] - row.shape[a]) for a in range(dimensions)]
        return pad(row, [gap for pair in reversed(gaps) for gap in pair], value=by)

    join = [axis for axis in range(1, dimensions) if axis not in padded and fixed[axis] == 1]
    expected = [widened(as_read(row, form, [torch.float16, torch.bfloat16]), value) for row in rows]
    assert_equal(batch["x"], torch.cat(expected, join[0]) if join else torch.stack(expected))
    here = tuple(slice(None) if axis in padded else 0 for axis in range(dimensions))
    masks = torch.stack([widened(torch.ones(row.shape, dtype=torch.int64), 0)[here] for row in rows])
    assert_equal(batch["mask"], masks)
    assert not collator.__dict__.get("_quadrat_fell_back")


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)
def test_all_numbers_of_16_bits_and_their_neighbours(target):
    """Each number of the target, those half-way to the next, and their neighbours."""
    bits = torch.arange(2**16, dtype=torch.int32)
    if target == torch.bfloat16:
        near = ((bits << 16)[:, None] + torch.tensor([-1, 0, 1, 0x7FFF, 0x8000, 0x8001], dtype=torch.int32)).flatten()
        numbers = near.view(torch.float32)
    else:
        float_bits = bits.to(torch.int16).view(torch.float16).float().view(torch.int32)
        near = float_bits[:, None] + torch.tensor([-1, 0, 1, 0xFFF, 0x1000, 0x1001, 0x2000], dtype=torch.int32)
        numbers = near.flatten().view(torch.float32)
    for rows in (numbers, numbers.double(), numbers.numpy()):
        padded = quadrat.pad([rows[:5], rows], dtype=target, return_tensors="pt")
        assert_equal(padded[1], torch.as_tensor(rows).to(target))
    back = numbers.to(target)
    assert_equal(quadrat.pad([back], dtype=torch.float32), back[None].float())
    assert_equal(quadrat.pad([back, back[:3]]), torch.stack([back, pad(back[:3], (0, len(back) - 3))]))


@given(dtype=st.sampled_from([torch.bfloat16, torch.float16]), data=st.data())
def test_16_bits_stay(dtype, data):
    """As a padded column, and as a stacked one of the default collator."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    rows = data.draw(tensors([(size,) for size in sizes], dtype))
    features = [{"input_ids": [5] * len(row), "x": row} for row in rows]
    batch = samples.make(quadrat, "DataCollatorWithPadding", pad_values={"x": -1})(features)
    width = batch["input_ids"].shape[1]
    assert_equal(batch["x"], torch.stack([pad(row, (0, width - len(row)), value=-1) for row in rows]))
    if dtype == torch.bfloat16:
        collator = samples.make(quadrat, "DataCollatorWithPadding", pad_values={"x": -1}, return_tensors="np")
        with pytest.raises(ValueError, match=r"NumPy has no .* column 'x'"):
            collator(features)


EMPTY = [(0,), (0, 3), (2, 3, 0), (0, 2, 0)]


@pytest.mark.parametrize("form", ["array", "tensor"])
@pytest.mark.parametrize("dtype", DTYPES_OF_ROWS, ids=str)
@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_rows_without_elements(shape, dtype, form):
    """Arrays and tensors tell their dtype, and options that do not fit it are refused, as beside elements."""
    row = given_as(torch.empty(shape, dtype=dtype), form)
    features = [{"input_ids": [5, 6], "x": row}] * 2
    for name in ("DataCollatorWithPadding", "DataCollatorWithFlattening"):
        joining = make(name, join_columns=["x"])
        for _ in range(2):
            assert_equal(joining(features)["x"], torch.cat([torch.empty(shape, dtype=dtype)] * 2))
    padded = as_read(torch.empty(shape, dtype=dtype), form, [torch.float16, torch.bfloat16]).dtype
    padded = torch.int64 if padded == torch.bool else padded
    for axes in (None, {"x": 0}):
        assert make("DataCollatorWithPadding", pad_values={"x": 1}, pad_axes=axes)(features)["x"].dtype == padded
    if dtype.is_floating_point:
        for options in ({"join_columns": ["x"]}, {"pad_values": {"x": 0}}):
            with pytest.raises(ValueError, match="'x' holds numbers that do not convert to int64"):
                make("DataCollatorWithPadding", dtypes={"x": "int64"}, **options)(features)
    unfit = 0.5 if not dtype.is_floating_point else 1e39
    if not (dtype.is_floating_point and dtype.itemsize > 2):
        with pytest.raises(ValueError, match="'x' padded with"):
            make("DataCollatorWithPadding", pad_values={"x": unfit})(features)


@st.composite
def datasets_of_arrays(draw: Any) -> Any:
    """A dataset with a column of arrays, those arrays, None where there is none."""
    dimensions, dtype = draw(st.integers(2, 5)), draw(st.sampled_from(["float32", "float16", "float64", "int32"]))
    kind = draw(st.sampled_from(["lists", "lists of a length", "array", "array of any length"]))
    trailing = draw(st.lists(st.integers(1, 3), min_size=dimensions - 1, max_size=dimensions - 1))
    count, first, ragged = draw(st.integers(1, 4)), draw(st.integers(1, 3)), kind != "array"
    rows: list[Any] = []
    for number in range(count):
        shape = (draw(st.integers(1, 4)) if ragged else first, *trailing)
        rows.append((number + np.arange(np.prod(shape)) / 4).reshape(shape).astype(dtype))
    if draw(st.booleans()):
        rows[draw(st.integers(0, count - 1))] = None
    feature: Any = datasets.Value(dtype)
    if kind.startswith("array"):
        shape = (None if ragged else first, *trailing)
        feature = getattr(datasets, f"Array{dimensions}D")(shape, dtype)
    else:
        for size in reversed(trailing):
            feature = datasets.List(feature, length=size if kind == "lists of a length" else -1)
        feature = datasets.List(feature)
    ids = [[5] * (number + 1) for number in range(count)]
    features = datasets.Features(input_ids=datasets.List(datasets.Value("int64")), pixels=feature)
    values = [None if row is None else row.tolist() for row in rows]
    return datasets.Dataset.from_dict({"input_ids": ids, "pixels": values}, features), rows


@given(case=datasets_of_arrays(), read=st.sampled_from(["table", "rows", "patched"]), data=st.data())
def test_from_arrow_without_lists(case, read, data):
    dataset, rows = case
    into = data.draw(st.none() | st.sampled_from(FLOATS))
    kept = [as_read(torch.from_numpy(row), "list") for row in rows if row is not None]
    joins = len(kept) < len(rows) or data.draw(st.booleans())
    options: dict[str, Any] = {"join_columns": ("pixels",)} if joins else {}
    if not joins:
        options = {"pad_values": {"pixels": 0}, "pad_axes": {"pixels": 0}}
        width = max(map(len, kept))
        kept = [pad(row, [0, 0] * (row.dim() - 1) + [0, width - len(row)]) for row in kept]
    options.update(pad_to_multiple_of=None, dtypes=into and {"pixels": into})
    collator = samples.make(quadrat, "DataCollatorWithPadding", **options)
    with mock.patch("quadrat.input.rows._as_python", side_effect=AssertionError), quadrat.data.patch_datasets():
        table, places = dataset.with_format("arrow")[:], list(range(len(dataset)))
        lying = quadrat.ArrowDataset(dataset).__getitems__(places)
        features = {"table": table, "rows": lying, "patched": dataset.__getitems__(places)}[read]
        batch = collator(features)
    if kept:
        joined = [axis for axis in range(1, kept[0].dim()) if kept[0].shape[axis] == 1]
        expected = torch.cat(kept) if joins else torch.cat(kept, joined[0]) if joined else torch.stack(kept)
        assert_equal(batch["pixels"], expected if into is None else expected.to(into))
    else:
        assert "pixels" not in batch
    assert not collator.__dict__.get("_quadrat_fell_back")


def test_what_no_kernel_reads_is_refused():
    """A number of a class that the kernels do not know, beside columns of these options."""
    collator = samples.make(
        quadrat, "DataCollatorForTokenClassification", join_columns=("pixels",), pad_values={"x": 1, "score": 0.5},
        pad_axes={"x": -1, "mask": "x"}, dtypes={"pixels": "float16", "other": "bfloat16", "score": "bfloat16"},
    )  # fmt: skip
    features = tokens(range(1, 4))
    for number, row in enumerate(features):
        row.update(x=np.ones((2, number + 1)), score=[0.25] * (number + 1), other=0.5)
        row.update({"pixels": np.ones((number, 2), np.float32)} if number else {})
    assert {"x", "mask", "score", "pixels"} < {*collator(features)}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"columns \['other'\] of dtypes are not rows of numbers.*; give equal"):
            collator([{**row, "other": np.array(0.5)} for row in features])
    assert not collator.__dict__.get("_quadrat_fell_back")


ROW = {"input_ids": [5, 6]}
IMAGE = np.ones((2, 3), np.float32)
JOIN, PAD = {"join_columns": ("x",)}, {"pad_values": {"x": 0}}
WRONG: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    (JOIN, [{**ROW, "x": IMAGE}, ROW, {**ROW, "x": IMAGE[:, :2]}], r"'x', row 2 .*\(2, 2\) and row 0 \(2, 3\)"),
    (JOIN, [ROW, {**ROW, "x": "text"}], "'x', row 1 is the string 'text'.*remove"),
    (JOIN, [{**ROW, "x": 5}], "'x', row 0 is one number"),
    (JOIN, [ROW, {**ROW, "x": IMAGE}, {**ROW, "x": IMAGE.astype(int)}], "'x', row 2 holds int64 and row 1 float32"),
    (PAD, [{**ROW, "x": [1]}, {**ROW, "x": [0.5]}, {**ROW, "x": [True]}], "'x', row 1 holds float64 and row 0 int64"),
    ({"pad_values": {"x": 0.5}}, [{**ROW, "x": [1]}], "'x' padded with 0.5: it does not fit the dtype int64"),
    ({"pad_values": {"x": None}}, [{**ROW, "x": [1]}], "'x' padded with None: .*must be a number"),
    ({"pad_values": {"x": "a"}}, [{**ROW, "x": [1]}], "'x' padded with 'a': .*must be a number"),
    ({"pad_values": [("x", 0)]}, [ROW], "pad_values must map"),
    ({"pad_values": {"input_ids": 0}}, [ROW], "'input_ids'.* padded by the tokenizer; set its pad_token"),
    ({"pad_values": {"attention_mask": 0}}, [ROW], "'attention_mask'.* padded by the tokenizer"),
    (PAD, [{**ROW, "x": "a"}], "'x' padded with 0"),
    ({**JOIN, "dtypes": {"x": "int8"}}, [{**ROW, "x": IMAGE}], "'x'.*dtype"),
    ({"join_columns": "x"}, [ROW], "join_columns must be a tuple"),
    ({"join_columns": ("input_ids",)}, [ROW], "padded by the tokenizer"),
    ({**PAD, "pad_axes": {"x": 2}}, [{**ROW, "x": IMAGE}], r"'x', row 0 has the shape \(2, 3\), and no axis 2"),
    ({**PAD, "pad_axes": {"x": 1}}, [{**ROW, "x": IMAGE}, {**ROW, "x": IMAGE[:1]}], r"row 1 .*\(1, 3\) and row 0"),
    ({"pad_axes": {"x": -1}}, [{**ROW, "x": IMAGE}], "pad_values={'x': 0}"),
    ({"pad_axes": {"m": "x"}}, [{**ROW, "x": IMAGE}], "'m' is the mask of 'x'"),
    ({"pad_values": {"x": 1e6}, "dtypes": {"x": "float16"}}, [{**ROW, "x": [1.0]}], "'x' padded with 1000000.*float16"),
    ({"pad_values": {"x": 300}, "dtypes": {"x": "uint8"}}, [{**ROW, "x": [1]}], "'x' padded with 300.*uint8"),
    ({"pad_values": {"x": 2049}}, [{**ROW, "x": np.ones(1, np.float16)}], "'x' padded with 2049: .*float16"),
    ({"pad_values": {"x": 1e6}}, [{**ROW, "x": np.ones(1, np.float16)}], "'x' padded with 1000000.0: .*float16"),
    ({"dtypes": {"x": "bfloat17"}}, [{**ROW, "x": 1.0}], "dtypes: column 'x'"),
    ({"dtypes": {"input_ids": "int32"}}, [ROW], "padded by the tokenizer"),
    ({"dtypes": {"x": "int8"}}, [{**ROW, "x": 1}, {**ROW, "x": 300}], "'x', as int8: row 1 holds a number that"),
    ({"dtypes": {"x": "uint8"}}, [{**ROW, "x": [1, -1]}], "'x', as uint8: row 0 holds a number that does not fit"),
    ({"dtypes": {"x": "int64"}}, [{**ROW, "x": 0.5}], "'x' holds numbers that do not convert to int64"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "features", "message"), WRONG)
def test_errors(options, features, message):
    with pytest.raises((ValueError, TypeError), match=message):
        samples.make(quadrat, "DataCollatorWithPadding", **options)(features)


def test_options_that_change_and_what_is_sent():
    """A list of names and numbers that pad, which are edited, dtypes that are exchanged, and deferred batches."""
    names: list[str] = []
    collator = samples.make(quadrat, "DataCollatorWithPadding", join_columns=names, deferred=True)
    features = [{**ROW, "x": IMAGE}, {**ROW, "x": IMAGE}]
    assert collator(features).to("cpu")["x"].shape == (2, 2, 3)
    names.append("x")
    assert collator(features).to("cpu")["x"].shape == (4, 3)
    collator.dtypes = {"x": torch.bfloat16}
    assert collator(features).to("cpu")["x"].dtype == torch.bfloat16
    collator.pad_values = values = {"y": 0}
    for _ in range(2):  # the first time, and when the batch is known
        values["y"] += 3
        padded = collator([{**row, "y": [1] * n} for n, row in enumerate(features, 1)]).to("cpu")
        assert padded["y"][0, :2].tolist() == [1, values["y"]]


def test_weights_of_grids():
    """Patches of each row, from lists of mappings, a dict of columns and a dataset."""
    grids = [[[1, 4, 6], [1, 2, 2]], None, [], [[2, 2, 4]]]
    rows = [{"input_ids": [5] * n, "grid": grid} for n, grid in enumerate(grids)]
    del rows[1]["grid"]
    columns = {"input_ids": [[5] * n for n in range(4)], "grid": grids}
    for source in (rows, columns, datasets.Dataset.from_dict(columns)):
        assert quadrat.lengths(source, weights="grid").tolist() == [28, 1, 2, 19]


GRIDS = st.lists(st.tuples(*[st.integers(1, 4)] * 3).map(list), max_size=3)


@given(
    grids=st.lists(st.none() | GRIDS, min_size=1, max_size=12),
    how=st.sampled_from(["sampler", "loader", "stream"]),
    padded=st.booleans(),
    data=st.data(),
)
def test_budgets_hold_tokens_and_patches(grids, how, padded, data):
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=len(grids), max_size=len(grids)))
    patches = np.array([sum(int(np.prod(grid)) for grid in grids or ()) for grids in grids])
    rows = [{"input_ids": [i] * n, "grid": grid} for i, (n, grid) in enumerate(zip(sizes, grids, strict=True))]
    dataset = datasets.Dataset.from_list(
        rows,
        datasets.Features(
            input_ids=datasets.List(datasets.Value("int64")),
            grid=datasets.List(datasets.List(datasets.Value("int64"), 3)),
        ),
    )
    weighted = quadrat.lengths(dataset, weights="grid")
    budget = int(weighted.max()) + data.draw(st.integers(0, 100))
    if how == "sampler":
        batches = list(quadrat.TokenBudgetBatchSampler(weighted, budget, padded=padded))
    elif how == "stream":
        stream = quadrat.BatchedStream(dataset.to_iterable_dataset(), budget, padded=padded, weights="grid")
        batches = [[row["input_ids"][0] for row in batch] for batch in stream]
    else:
        loader = torch.utils.data.DataLoader(dataset, batch_size=2, shuffle=True, collate_fn=list)
        by_budget = quadrat.batch_by_tokens(loader, budget, lengths=weighted)
        batches = [[row["input_ids"][0] for row in batch] for batch in by_budget]
    assert sorted(itertools.chain(*batches)) == list(range(len(rows)))
    for batch in batches if how != "loader" or by_budget is not loader else ():
        tokens = [sizes[row] for row in batch]
        assert len(batch) * max(tokens) <= budget or not padded
        assert patches[batch].sum() <= budget
        assert sum(tokens) + patches[batch].sum() <= budget or padded
    packs = quadrat.batching.plan_packs(sizes, 64, counts=weighted - sizes, max_count=max(1, int(patches.max())))
    assert all(patches[pack].sum() <= max(1, patches.max()) for pack in packs.to_lists())


def test_hints_where_rows_are_tuples():
    tuples = [{"input_ids": (5, 6), "labels": (1, 2)}, {"input_ids": (5,), "labels": (1,)}]
    with pytest.raises(TypeError, match=r"only concatenate tuple.*\n.*row 0 is a tuple where a list is expected"):
        samples.make(quadrat, "DataCollatorForTokenClassification")(tuples)
