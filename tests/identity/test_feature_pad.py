"""SequenceFeatureExtractor.pad under patch_transformers == that of the installed transformers, for all its inputs."""

import contextlib
import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import BatchFeature, SequenceFeatureExtractor
from transformers.utils import PaddingStrategy, TensorType

import quadrat
from quadrat.installed import originals
from quadrat.integration import patch_transformers as patching
from support.compare import assert_same_outcome, default_dtype, frozen
from support.forms import forms, observed

FLOATS = [0.0, 1.5, -2.25, 0.1, 3e38, 1e-40]
ODD_FLOATS = [*FLOATS, 1e300, -1e300, float("nan"), float("inf")]
DTYPES = ["float32"] * 3 + ["float64", "float16", "int16", "int32", "int64", "uint8", "uint16", "bool"]


class Extractor(SequenceFeatureExtractor):
    model_input_names = ("input_values", "attention_mask")


def _extractor(draw: Any, odd: bool, inner: int | None) -> Any:
    values = [0.0, 0, -1.5, 0.1, *([1, 1e39, float("nan"), float("inf"), None, np.float32(2)] if odd else [])]
    size = draw(st.sampled_from([1, 2, 80])) if odd else inner or 1
    made = Extractor(max(size, 2) if inner and not odd else size, 16000, draw(st.sampled_from(values)))
    made.padding_side = draw(st.sampled_from(["right", "left", *(["middle"] if odd else [])]))
    made.return_attention_mask = draw(st.sampled_from([True, False, None]))
    return made


FORMS_OF_ARRAYS = {
    "array": lambda array: array,
    "strided": lambda array: np.repeat(array, 2, 0)[::2],
    "transposed": np.asfortranarray,
    "reversed": lambda array: array[::-1],
    "swapped": lambda array: array.astype(array.dtype.newbyteorder()),
    "unpickled": lambda array: pickle.loads(pickle.dumps(array)),  # whose dtype is an object of its own
    "grad": lambda array: torch.tensor(np.abs(array) < 1).float().requires_grad_(),
}


def _row(draw: Any, form: str, length: int, inner: int | None, odd: bool) -> Any:
    shape = (length,) if inner is None else (length, inner)
    dtype = draw(st.sampled_from(DTYPES)) if odd and draw(st.booleans()) else form.partition(" ")[2]
    numbers = draw(
        st.lists(st.sampled_from(ODD_FLOATS if odd else FLOATS), min_size=length, max_size=length)
        if "float" in dtype
        else st.lists(st.integers(0, 100), min_size=length, max_size=length)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.array(numbers, np.float64 if "float" in dtype else np.int64).astype(dtype)
    if inner is not None:
        array = np.repeat(array[:, None], inner, 1)
    kind = form.partition(" ")[0]
    if kind in FORMS_OF_ARRAYS:
        return FORMS_OF_ARRAYS[kind](array)
    if kind in ("list", "tuple"):
        made = array.tolist()
        if odd and length and inner is None and draw(st.integers(0, 3)) == 0:
            made[0] = draw(st.sampled_from([1, 2.5, True, np.float32(1), "x", None]))
        return tuple(made) if kind == "tuple" else made
    return torch.tensor(array.tolist() if dtype == "uint16" else array, dtype=getattr(torch, dtype)).reshape(shape)


KINDS = [*("list", "tuple", "array", "array", "array", "tensor", "tensor"), *sorted(set(FORMS_OF_ARRAYS) - {"array"})]


def _rows(draw: Any, odd: bool, inner: int | None) -> Any:
    count = draw(st.integers(1, 4))
    form = f"{draw(st.sampled_from(KINDS))} {draw(st.sampled_from(DTYPES))}"
    equal = draw(st.integers(0, 3)) == 0
    lengths = [draw(st.integers(0 if odd else 1, 6)) for _ in range(count)]
    lengths = lengths[:1] * count if equal else lengths
    others = draw(st.lists(st.sampled_from(["mask", "label", "row", "text", "before"]), max_size=3, unique=True))
    mask = draw(st.sampled_from([np.int32, np.int64, np.bool_, np.float64, list, torch.tensor]))
    label = draw(st.sampled_from([int, float, bool, np.float32, np.float64, np.int64, np.uint16, torch.tensor, str]))
    made = []
    for i, length in enumerate(lengths):
        one = form if not odd or draw(st.integers(0, 3)) else f"{draw(st.sampled_from(KINDS))} float32"
        row: dict[str, Any] = {"before": np.full(2, i)} if "before" in others else {}
        row["input_values"] = _row(draw, one, length, inner, odd)
        if "mask" in others:
            ones = [1] * (length + (odd and draw(st.booleans())))
            row["attention_mask"] = mask(ones) if mask in (list, torch.tensor) else np.array(ones, mask)
        if "label" in others:
            row["labels"] = label(i)
        if "row" in others:
            row["scores"] = _row(draw, form, 3 if equal or draw(st.booleans()) else length, None, odd)
        if "text" in others and odd:
            row["text"] = draw(st.sampled_from(["abc", None, {}, [["x"]]]))
        made.append(row)
    if odd and draw(st.integers(0, 3)) == 0:
        made[-1].pop(draw(st.sampled_from(sorted(made[-1]))))
    return made


FORMS = forms(BatchFeature)


@st.composite
def calls(draw: Any) -> Any:
    """An extractor, its inputs and its options: three of four are such as it takes."""
    odd = draw(st.integers(0, 3)) == 0
    inner = draw(st.sampled_from([None] * 5 + [1, 2, 80]))
    made = _rows(draw, odd, inner)
    form = FORMS[draw(st.sampled_from(["list"] * 4 + ["columns"] * 3 + ["stacked"] * 2 + sorted(FORMS)))]
    with contextlib.suppress(Exception):  # rows that do not stack, or lack a column
        made = form(made)
    return _extractor(draw, odd, inner), made, draw(ODD_OPTIONS if odd else OPTIONS)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "padding": st.sampled_from([True] * 3 + ["longest", "max_length", PaddingStrategy.LONGEST, False]),
        "max_length": st.sampled_from([4, 9]),
        "truncation": st.booleans(),
        "pad_to_multiple_of": st.sampled_from([None, None, 1, 4, 8]),
        "return_attention_mask": st.booleans(),
        "return_tensors": st.sampled_from(["pt", "pt", "np", None, TensorType.PYTORCH]),
    },
)
ODD_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "padding": st.sampled_from([True, "longest", "max_length", "do_not_pad", "wrong", *PaddingStrategy, 1, None]),
        "max_length": st.sampled_from([None, 2, 4, 9, 0, -1, 9.0]),
        "truncation": st.sampled_from([False, True, True, 1, None]),
        "pad_to_multiple_of": st.sampled_from([None] * 3 + [1, 4, 8, True, 0, -2]),
        "return_attention_mask": st.sampled_from([None, None, True, False, 1]),
        "return_tensors": st.sampled_from(["pt"] * 3 + ["np"] * 2 + [None] * 3 + ["wrong", *TensorType]),
    },
)


def _copy(value: Any) -> Any:
    """The same arrays and tensors in other containers."""
    if isinstance(value, (dict, BatchFeature)):
        return type(value)({name: _copy(one) for name, one in value.items()})
    return type(value)(map(_copy, value)) if isinstance(value, (list, tuple)) else value


def assert_same(extractor: Any, given: Any, options: dict[str, Any]) -> None:
    ours, state = _copy(given), copy.deepcopy(vars(extractor))
    expected, besides = observed(lambda inputs: originals.FEATURE_PAD(extractor, inputs, **options), given)
    got, done = observed(lambda inputs: patching._pad(extractor, inputs, **options), ours)
    assert_same_outcome(expected, got)
    assert done == besides
    assert frozen(vars(extractor)) == frozen(state)
    if expected[0] == "raised":
        assert str(got[1]) == str(expected[1])
    elif isinstance(expected[1], BatchFeature):
        assert frozen(vars(got[1])) == frozen(vars(expected[1]))


@pytest.mark.parametrize("library", ["pt", "np", None])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int16"])
@pytest.mark.parametrize("form", sorted(set(FORMS_OF_ARRAYS) - {"grad"}))
def test_every_kind_of_array(form, dtype, library):
    arrays = [FORMS_OF_ARRAYS[form](np.arange(length).astype(dtype)) for length in (3, 5, 5)]
    rows = [{"input_values": array} for array in arrays]
    for inputs in (rows, {"input_values": arrays}, {"input_values": arrays[1:]}):
        assert_same(Extractor(1, 16000, 0.0), inputs, {"padding": True, "return_tensors": library})


@given(calls())
def test_every_form(call):
    assert_same(*call)


USUAL = st.fixed_dictionaries(
    {"padding": st.sampled_from([True, "longest", "max_length"]), "max_length": st.sampled_from([6, 8])},
    optional={
        "truncation": st.booleans(),
        "pad_to_multiple_of": st.sampled_from([None, 4]),
        "return_attention_mask": st.booleans(),
        "return_tensors": st.sampled_from(["pt", "np"]),
    },
)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([list, "float32", "float64", "int16", torch.tensor]),
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["list", "columns", "several"]), st.booleans()),
    USUAL,
)
def test_usual_batches_do_without_the_reference(lengths, make, case, options):
    """Unless they are cut, or are longer than they are to be."""
    side, form, masked = case
    extractor = Extractor(1, 16000, 0.5 if make != "int16" else 0, padding_side=side)
    values = [np.arange(length) / (1 if make == "int16" else 3) for length in lengths]
    made = [
        one.tolist() if make is list else one.astype(make) if isinstance(make, str) else make(one) for one in values
    ]
    rows = [{"input_values": one, "labels": i} for i, one in enumerate(made)]
    if masked:
        rows = [{**row, "attention_mask": np.ones(len(row["input_values"]), np.int32)} for row in rows]
    given = FORMS[form](rows)
    assert_same(extractor, given, options)
    limit = options["max_length"]
    cut = max(lengths) > limit and (options.get("truncation", False) or options["padding"] == "max_length")
    masks_apart = masked and not options.get("return_attention_mask", True) and len(set(lengths)) > 1
    if not cut and not masks_apart:
        quadrat.stats(reset=True)
        patching._pad(extractor, FORMS[form](rows), **options)
        assert quadrat.stats().compiled == 1


CLIPS = [{"input_values": np.arange(length, dtype=np.float32) / 7, "labels": length} for length in (3, 1, 5)]
FRAMES = [{"input_values": np.arange(3 * length, dtype=np.float32).reshape(length, 3)} for length in (4, 1, 6)]
LISTS = [{"input_values": row["input_values"].tolist(), "labels": row["labels"]} for row in CLIPS]


def patched(extractor: Any, given: Any, **options: Any) -> Any:
    with quadrat.patch_transformers(datasets=False):
        return extractor.pad(given, **options)


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("cut", [{}, {"truncation": True, "max_length": 2}])
def test_rows_in_arrow_are_read_in_place(cut, attributes):
    pyarrow = pytest.importorskip("pyarrow")
    from quadrat.input.items import LazyTable
    from quadrat.input.rows import rows_of

    masks = [{"attention_mask": [1] * len(row["input_values"])} if attributes else {} for row in LISTS]
    lists = [row | mask for row, mask in zip(LISTS, masks, strict=True)]
    types = {"input_values": pyarrow.list_(pyarrow.float32()), "labels": pyarrow.int64()}
    types |= {"attention_mask": pyarrow.list_(pyarrow.int32())} if attributes else {}
    table = pyarrow.Table.from_pylist(lists, schema=pyarrow.schema(types))
    lists = table.to_pylist()
    for options in ({"return_tensors": "pt"} | cut, {"return_tensors": "np", "padding": "max_length", "max_length": 6}):
        expected = originals.FEATURE_PAD(Extractor(1, 16000, 0.0), lists, **options)
        rows, lazy = rows_of(table), list(LazyTable(table).rows(range(len(table))))
        got = patching._pad(Extractor(1, 16000, 0.0), rows, **options)
        assert not rows.handed_out
        assert_same_outcome(("returned", expected), ("returned", got))
        got = patching._pad(Extractor(1, 16000, 0.0), lazy, **options)
        assert all(row.where is not None for row in lazy)
        assert_same_outcome(("returned", expected), ("returned", got))


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("cut", [{}, {"truncation": True, "max_length": 2}])
def test_rows_of_a_dataset(form, size, cut):
    datasets = pytest.importorskip("datasets")
    lists = LISTS if size == 1 else [{"input_values": row["input_values"].tolist()} for row in FRAMES]
    dataset, extractor = datasets.Dataset.from_list(lists).with_format(form), Extractor(size, 16000, 0.0)
    options = {"return_attention_mask": True} | cut
    expected = originals.FEATURE_PAD(extractor, dataset.__getitems__([2, 0]), **options)
    quadrat.stats(reset=True)
    with quadrat.patch_transformers():
        rows = dataset.__getitems__([2, 0])
        got = extractor.pad(rows, **options)
    assert type(rows) is list or not rows.handed_out
    assert quadrat.stats().compiled == 1
    assert_same_outcome(("returned", expected), ("returned", got))


NUMBERS = [0.5, -1.0, 1e300, 3e38, float("nan")]


@given(
    st.lists(st.lists(st.lists(st.sampled_from(NUMBERS), max_size=2), max_size=3), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["float32", "float64", "int64"]),
    st.sampled_from([1, 2]),
    st.booleans(),
)
@example(rows=[[[1e300], [1.0]], [[0.5]]], nested=False, kind="float64", size=1, cut=False)
def test_lists_in_arrow(rows, nested, kind, size, cut):
    pyarrow = pytest.importorskip("pyarrow")
    from quadrat.input.rows import rows_of

    rows = [[[1 if kind == "int64" else one for one in frame] for frame in row] for row in rows]
    rows = rows if nested else [[one for frame in row for one in frame] for row in rows]
    lists = pyarrow.list_(getattr(pyarrow, kind)())
    column = pyarrow.array(rows, pyarrow.list_(lists) if nested else lists)
    table = pyarrow.table({"input_values": column})
    extractor, options = Extractor(size, 16000, 0.0), {"truncation": cut, "max_length": 2}
    expected, (said, _) = observed(lambda given: originals.FEATURE_PAD(extractor, given, **options), table.to_pylist())
    got, (also_said, _) = observed(lambda given: patching._pad(extractor, given, **options), rows_of(table))
    assert_same_outcome(expected, got)
    assert said == also_said


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, lambda row: row.astype(np.float16)])
@pytest.mark.parametrize("options", [{}, {"truncation": True, "max_length": 2}, {"pad_to_multiple_of": 4}])
def test_frames_of_features(make, options):
    rows = [{"input_values": make(row["input_values"])} for row in FRAMES]
    for side in ("left", "right"):
        extractor = Extractor(3, 16000, -1.0, padding_side=side)
        quadrat.stats(reset=True)
        assert_same(extractor, rows, options)
        assert_same(extractor, FORMS["columns"](rows), options)
        assert quadrat.stats().compiled == 2
    assert_same(Extractor(1, 16000, 0.0), rows, options)  # which pads both dimensions


def test_defaults_of_torch():
    for context in (default_dtype(torch.float64), torch.device("meta")):
        with context:
            expected = originals.FEATURE_PAD(Extractor(1, 16000, 0.0), LISTS, return_tensors="pt")
            got = patched(Extractor(1, 16000, 0.0), LISTS, return_tensors="pt")
        assert_same_outcome(("returned", expected), ("returned", got))


@pytest.mark.parametrize("method", ["pad", *originals.PARTS_OF_FEATURE_PAD])
def test_classes_that_pad_in_their_own_way_do_it(method):
    calls = []

    def own(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(args)
        return getattr(SequenceFeatureExtractor, method)(self, *args, **options)

    extractor = type("Own", (Extractor,), {method: own})(1, 16000, 0.0)
    expected = originals.FEATURE_PAD(Extractor(1, 16000, 0.0), CLIPS, return_tensors="pt")
    quadrat.stats(reset=True)
    got = patched(extractor, CLIPS, return_tensors="pt")
    assert_same_outcome(("returned", expected), ("returned", got))
    assert calls
    assert quadrat.stats().compiled == (method == "pad")  # which calls that of the base class


@pytest.mark.parametrize("name", ["feature_size", "padding_value", "return_attention_mask", "padding_side"])
def test_an_extractor_that_lacks_an_attribute(name):
    extractor = Extractor(1, 16000, 0.0)
    delattr(extractor, name)
    assert_same(extractor, CLIPS, {})
    assert_same(extractor, CLIPS[:1], {"return_attention_mask": False})


def test_what_numpy_says_of_numbers_beyond_float32_is_said():
    rows = [{"input_values": np.array([1e300, 1.0])}, {"input_values": np.array([0.5])}]
    with pytest.warns(RuntimeWarning, match="overflow"):
        patched(Extractor(1, 16000, 0.0), rows)


def test_the_base_class_changed_later_is_left_alone(monkeypatch):
    monkeypatch.setattr(SequenceFeatureExtractor, "_truncate", lambda self, inputs, **_: {"input_values": np.zeros(2)})
    assert patched(Extractor(1, 16000, 0.0), CLIPS)["input_values"].tolist() == [[0, 0]] * 3
