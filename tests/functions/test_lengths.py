"""quadrat.lengths: of whatever holds rows, without a look at what is in them."""

import importlib
import itertools

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import quadrat
from quadrat.batching.lengths import parts_of
from quadrat.batching.row_tokens import tokens_in_batches

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=12)
TYPES = [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.string())]


def test_a_list_is_one_of_lengths_whatever_attributes_it_has():
    class Named(list):
        column_names = ("input_ids",)

    packs = quadrat.batching.plan_packs(Named([3, 4, 5]), 8)
    assert packs.to_lists() == quadrat.batching.plan_packs([3, 4, 5], 8).to_lists()


def value_of(kind, number):
    return str(number) if kind.value_type == pa.string() else number


def chunked(rows, kind, cuts):
    """The rows as a chunked array; each chunk is a slice of a longer array."""
    lists = [[value_of(kind, number) for number in row] for row in rows]
    bounds = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    padding = [[value_of(kind, 1)] * 3]
    parts = [pa.array(padding + lists[a:b] + padding, kind).slice(1, b - a) for a, b in itertools.pairwise(bounds)]
    return pa.chunked_array(parts, kind)


def dataset_of(rows, kind=TYPES[0], cuts=(), column="input_ids"):
    table = pa.table({column: chunked(rows, kind, cuts), "row": pa.array(range(len(rows)), pa.int64())})
    return datasets.Dataset(table)


def check(array, expected):
    assert type(array) is np.ndarray
    assert array.dtype == np.int64
    assert array.tolist() == expected


@example([], TYPES[0], [], None)
@given(ROWS, st.sampled_from(TYPES), st.lists(st.integers(0, 12), max_size=4), st.data())
def test_arrow_as_python_counts(rows, kind, cuts, data):
    expected = [len(row) for row in rows]
    array = chunked(rows, kind, cuts)
    table = pa.table({"input_ids": array})
    for source in (table, array, {"input_ids": array}, {"input_ids": array.combine_chunks()}):
        check(quadrat.lengths(source), expected)
    dataset = dataset_of(rows, kind, cuts)
    check(quadrat.lengths(dataset), expected)
    check(quadrat.lengths(quadrat.ArrowDataset(dataset)), expected)
    if rows:
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20))
        part = dataset.select(chosen)
        check(quadrat.lengths(part), [expected[row] for row in chosen])
        both = datasets.concatenate_datasets([part, dataset])
        check(quadrat.lengths(both), [expected[row] for row in chosen] + expected)
        few = both.shuffle(seed=1).select(range(len(both) // 2))
        check(quadrat.lengths(few), [len(row) for row in few["input_ids"]])


@given(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3))
def test_lists_of_one_size(size, count, first):
    array = pa.array([[1] * size] * count, pa.list_(pa.int32(), size)).slice(min(first, count))
    check(quadrat.lengths({"input_ids": array}), [size] * len(array))


def test_record_batches_and_other_libraries():
    table = pa.table({"input_ids": [[1], [2, 3]]})

    class Foreign:
        def __init__(self, of):
            self.__arrow_c_stream__ = of.__arrow_c_stream__

    class ForeignBatch:
        def __init__(self, of):
            self.__arrow_c_array__ = of.__arrow_c_array__

    (batch,) = table.to_batches()
    for source in (batch, Foreign(table), Foreign(table["input_ids"]), ForeignBatch(table["input_ids"].chunk(0))):
        check(quadrat.lengths(source), [1, 2])


def test_formats_do_not_matter():
    dataset = dataset_of([[1, 2], [], [3]])
    for kind in (None, "numpy", "torch", "arrow"):
        check(quadrat.lengths(dataset.with_format(kind)), [2, 0, 1])
    check(quadrat.lengths(dataset.with_format("torch", columns=["row"])), [2, 0, 1])


@given(ROWS)
@example([])
def test_what_is_in_memory(rows):
    expected = [len(row) for row in rows]
    features = [{"input_ids": row, "text": "x"} for row in rows]
    for source in (
        *(features, tuple(features), Items(features), {"input_ids": rows}, rows, tuple(rows)),
        *([np.array(row) for row in rows], [torch.tensor(row) for row in rows]),
        *(quadrat.Ragged.from_rows(rows, dtype="int64"), {"input_ids": quadrat.Ragged.from_rows(rows, dtype="int64")}),
        quadrat.Ragged.from_rows(rows, return_tensors="pt"),
    ):
        check(quadrat.lengths(source), expected)


def test_arrays_have_rows_of_one_length():
    for array in (np.zeros((3, 5)), torch.zeros(3, 5)):
        check(quadrat.lengths(array), [5, 5, 5])
        check(quadrat.lengths({"input_ids": array}), [5, 5, 5])


class Items(torch.utils.data.Dataset):
    """A dataset as users write them, which counts how often it is read."""

    def __init__(self, items):
        self.items, self.reads = items, 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        self.reads += 1
        return self.items[row]


def test_a_dataset_of_ones_own_is_read_once():
    dataset = Items([{"input_ids": [1] * length, "words": ["a"]} for length in (3, 0, 7)])
    check(quadrat.lengths(dataset), [3, 0, 7])
    assert dataset.reads == 3
    check(quadrat.lengths(dataset, "words"), [1, 1, 1])
    check(quadrat.lengths(torch.utils.data.Subset(dataset, [2, 0])), [7, 3])


def test_nothing_is_decoded(monkeypatch):
    dataset = dataset_of([[1, 2], [3]]).select([1, 0, 1])
    monkeypatch.setattr(datasets.Dataset, "_getitem", None)
    monkeypatch.setattr(datasets.Dataset, "__iter__", None)
    check(quadrat.lengths(dataset), [1, 2, 1])


@pytest.mark.parametrize("kind", [*TYPES, pa.list_(pa.int32(), 1)])
def test_nulls_name_their_row(kind):
    array = pa.array([None if row in (1, 3) else [value_of(kind, 1)] for row in range(5)], kind)
    for source in (pa.table({"input_ids": array}), datasets.Dataset(pa.table({"input_ids": array}))):
        with pytest.raises(TypeError, match="row 1 of column 'input_ids' is null"):
            quadrat.lengths(source)
    dataset = datasets.Dataset(pa.table({"input_ids": array}))
    with pytest.raises(TypeError, match="row 2 of column 'input_ids' is null"):
        quadrat.lengths(dataset.select([4, 0, 3, 1]))
    check(quadrat.lengths(dataset.select([4, 0, 2])), [1, 1, 1])
    nested = pa.table({"input_ids": pa.array([None if row == 1 else [[5, 6]] for row in range(3)])})
    with pytest.raises(TypeError, match="row 1 is null"):
        quadrat.lengths(nested, choices=True)
    with pytest.raises(TypeError, match="row 1 of column 'input_ids' is null"):
        quadrat.lengths([{"input_ids": [1]}, {"input_ids": None}])


def test_rows_that_are_made_when_they_are_read():
    dataset = dataset_of([[1, 2], [3]])
    for lazy in (dataset.with_transform(lambda rows: rows), quadrat.ArrowDataset(dataset).with_transform(dict)):
        with pytest.raises(ValueError, match=r"with_transform.*tokenize with `map` first"):
            quadrat.lengths(lazy)


@pytest.mark.parametrize(
    "source",
    [
        dataset_of([[1]], column="ids"),
        pa.table({"ids": [[1]]}),
        {"ids": [[1]]},
        [{"ids": [1]}],
        Items([{"ids": [1]}]),
    ],
)
def test_a_column_that_is_missing(source):
    with pytest.raises(ValueError, match=r"no column 'input_ids'.*'ids'"):
        quadrat.lengths(source)
    check(quadrat.lengths(source, "ids"), [1])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (datasets.DatasetDict({"train": dataset_of([[1]])}), r"DatasetDict has no rows of its own.*'train'"),
        (dataset_of([[1]]).to_iterable_dataset(), "IterableDataset cannot be indexed by row"),
        (iter([[1]]), "cannot be indexed by row"),
        (pa.table({"input_ids": ["text"]}), "'input_ids' holds string, and only lists"),
        (pa.table({"input_ids": [7]}), "'input_ids' holds int64, and only lists"),
        (datasets.Dataset.from_dict({"input_ids": ["text"]}), "holds .*string"),
        ([{"input_ids": [1]}, {"input_ids": "text"}], "row 1 of column 'input_ids' is a str"),
        ({"input_ids": [5, 6]}, "row 0 of column 'input_ids' is a int"),
        ([[1], 7], "row 1 of column 'input_ids' is a int"),
        ([[1], np.array(7)], "row 1 of column 'input_ids' is a ndarray"),
        ([[1], torch.tensor(7)], "row 1 of column 'input_ids' is a Tensor"),
        (Items([([1], 0)]), "row 0 is a tuple, not a mapping"),
        (Items([({"input_ids": [1]}, {"input_ids": [1]})]), "row 0 is a tuple, not a mapping"),
        (np.array([1, 2]), "row 0 of column 'input_ids' is a int64"),
    ],
)
def test_what_has_no_lengths(source, message):
    with pytest.raises(TypeError, match=message):
        quadrat.lengths(source)


GRID = datasets.Features({"input_ids": datasets.Array2D((None, 2), "int32")})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"input_ids": [5]}, {"input_ids": [[5, 6]]}], "row 1 of column 'input_ids' is a list of lists"),
        ([{"input_ids": ([5, 6],)}], "row 0 .* is a tuple of lists"),
        ({"input_ids": [[5], [[5, 6]]]}, "row 1 .* is a list of lists"),
        (Items([{"input_ids": [[5, 6]]}]), "row 0 .* is a list of lists"),
        ([[5], [{"input_ids": [5]}]], "row 1 .* is a list of dicts"),
        ([({"input_ids": [5]}, {"input_ids": [5, 6]})], "row 0 .* is a tuple of dicts"),
        ([([5, 6], 0), ([5], 1)], "row 0 .* is a tuple of lists"),
        ([np.array([5]), np.array([[5, 6]])], "row 1 .* is a ndarray of ndarrays"),
        ([{"input_ids": torch.tensor([5])}, {"input_ids": torch.tensor([[5, 6]])}], "row 1 .* is a Tensor of Tensors"),
        ([{"input_ids": [torch.tensor([5, 6])]}], "row 0 .* is a list of Tensors"),
        ({"input_ids": np.zeros((3, 1, 5))}, "row 0 .* is a ndarray of ndarrays"),
        (torch.zeros(3, 1, 5), "row 0 .* is a Tensor of Tensors"),
        (pa.table({"input_ids": [[[5, 6]]]}), "'input_ids' holds list<item: list<item: int64>>, not of tokens"),
        (datasets.Dataset.from_dict({"input_ids": [[[5, 6]]]}), "not of tokens"),
        (datasets.Dataset.from_dict({"input_ids": [[{"a": 5}]]}), "not of tokens"),
        (datasets.Dataset.from_dict({"input_ids": [[[1, 2]], [[3, 4]] * 3]}, features=GRID), "not of tokens"),
    ],
)
def test_rows_of_rows_have_no_lengths(source, message):
    """Which of their dimensions is that of the tokens, only the user knows: nobody plans batches by another one."""
    for measure in (quadrat.lengths, lambda rows: quadrat.TokenBudgetBatchSampler(quadrat.lengths(rows), 8)):
        with pytest.raises(
            TypeError, match=rf"{message}.*take off a dimension of size 1 .*choices=True.*another column"
        ):
            measure(source)
    if not isinstance(source, (list, torch.Tensor, pa.Table, Items)):
        with pytest.raises(TypeError, match=message):
            quadrat.TokenBudgetBatchSampler(source, 8)


def test_pairs_of_an_encoding_and_a_label():
    pairs = [({"input_ids": [1] * length}, label) for label, length in enumerate((3, 0, 7))]
    for source in (pairs, [*map(list, pairs)], Items(pairs), Items([*map(list, pairs)])):
        check(quadrat.lengths(source), [3, 0, 7])


FORMS = {
    "list": list,
    "tuple": tuple,
    "items": Items,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "table": pa.Table.from_pylist,
    "dataset": datasets.Dataset.from_list,
    "chosen": lambda rows: datasets.Dataset.from_list(rows * 2).select([*range(len(rows), 2 * len(rows))]),
}


@given(st.lists(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=4), min_size=1, max_size=6))
def test_choices(examples):
    expected = [len(example) * max(map(len, example), default=0) for example in examples]
    rows = [{"input_ids": example, "label": 0} for example in examples]
    for form in ("list", "items", "columns"):
        check(quadrat.lengths(FORMS[form](rows), choices=True), expected)
    if any(map(any, examples)):  # else Arrow does not know what they are of
        for form in ("table", "dataset", "chosen"):
            check(quadrat.lengths(FORMS[form](rows), choices=True), expected)


MASKS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8)


@given(MASKS, st.sampled_from([*FORMS]))
def test_tokens_that_a_mask_keeps(masks, form):
    rows = [{"input_ids": [7] * len(mask), "attention_mask": mask} for mask in masks]
    parts = parts_of(FORMS[form](rows), ("input_ids", "attention_mask"))
    check(tokens_in_batches(parts, choices=False), [sum(flag != 0 for flag in mask) for mask in masks])


def test_rows_of_many_parts(monkeypatch):
    module = importlib.import_module("quadrat.batching.lengths")
    monkeypatch.setattr(module, "_AT_A_TIME", 3)
    monkeypatch.setattr(module, "_ITEMS", 3)
    rows = [{"input_ids": [[7] * row] * 2, "attention_mask": [[1] * row] * 2} for row in range(1, 9)]
    for form in FORMS.values():
        check(quadrat.lengths(form(rows), choices=True), [2 * row for row in range(1, 9)])


def test_choices_and_masks_that_do_not_fit():
    rows = [{"input_ids": [[7] * 5] * 3, "attention_mask": [[1] * n + [0] * (5 - n) for n in (1, 4, 2)], "label": 1}]
    names = "input_ids", "attention_mask"
    for form in FORMS.values():
        check(tokens_in_batches(parts_of(form(rows), names), choices=True), [12])
        check(quadrat.lengths(form(rows), choices=True), [15])
        odd = parts_of(form([{"input_ids": [7, 8, 0], "attention_mask": [1, 0]}]), names)
        with pytest.raises(ValueError, match="row 0 has 3 tokens, and 2 in 'attention_mask'"):
            tokens_in_batches(odd, choices=False)
        with pytest.raises(ValueError, match="no column 'input_ids'"):
            quadrat.lengths(form([{"ids": [1]}]), choices=True)


def test_a_column_of_a_dataset():
    """A list, or, from datasets 4 on, an object that reads it."""
    dataset = dataset_of([[1, 2], [], [3]], pa.list_(pa.int64()), []).select([2, 0])
    check(quadrat.lengths(dataset["input_ids"]), [1, 2])


def test_a_dataset_that_makes_its_rows_otherwise():
    class Doubled(datasets.Dataset):
        def _getitem(self, key, **options):
            row = super()._getitem(key, **options)
            return {"input_ids": row["input_ids"] * 2}

    dataset = dataset_of([[1, 2], [], [3]], pa.list_(pa.int64()), [])
    check(quadrat.lengths(Doubled(dataset.data)), [4, 0, 2])


@pytest.mark.parametrize(("count", "message"), [(2, "gives 2"), (4, "gives more")])
def test_rows_are_as_many_as_they_are_said_to_be(count, message):
    class Rows:
        def __len__(self):
            return 3

        def __iter__(self):
            return iter([[1]] * count)

    with pytest.raises(ValueError, match=f"column 'input_ids' has the length 3, but {message}"):
        quadrat.lengths({"input_ids": Rows()})


class Interrupting(str):
    """A key whose comparison is interrupted."""

    __slots__ = ()

    def __hash__(self):
        return hash("input_ids")

    def __eq__(self, other):
        raise KeyboardInterrupt


def test_an_interrupt_while_a_row_is_looked_up_is_raised():
    with pytest.raises(KeyboardInterrupt):
        quadrat.lengths([{Interrupting("other"): [1]}])


@pytest.mark.parametrize("wait", [0.0, 1e9], ids=["with a progress bar", "without"])
def test_many_items_of_a_dataset(monkeypatch, capsys, wait):
    module = importlib.import_module("quadrat.batching.lengths")
    monkeypatch.setattr("quadrat.support.progress._QUIET", wait)
    lengths = [row % 7 for row in range(3 * module._ITEMS + 5)]
    rows = torch.utils.data.Subset([{"input_ids": [0] * length} for length in lengths], range(len(lengths)))
    check(quadrat.lengths(rows), lengths)
    assert capsys.readouterr().err == ""  # no terminal
