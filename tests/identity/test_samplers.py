"""The sampler by length == that of the installed transformers: indices, batches, attributes, errors and generators."""

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import quadrat
from quadrat.installed import originals
from support.compare import state_of

# Ten times as many as elsewhere: a case is small.
MANY = settings(max_examples=10 * settings().max_examples)
SMALL = st.lists(st.integers(0, 9), max_size=30)
# What the reference takes just as well, though it is no list of plain integers.
ODD = st.one_of(
    st.lists(st.floats(0, 9) | st.integers(0, 9), min_size=1, max_size=30),
    st.lists(st.booleans() | st.integers(0, 2), min_size=1, max_size=9),
    st.lists(st.integers(0, 2**70), min_size=1, max_size=30),
    st.lists(st.integers(0, 9).map(np.int16), min_size=1, max_size=30),
    st.lists(st.integers(0, 30_000).map(np.int16), min_size=1, max_size=30),  # costs overflow, and warn
    st.lists(st.integers(0, 2**40).map(np.int64), min_size=1, max_size=30),
    st.lists(st.integers(0, 9).map(torch.tensor), min_size=1, max_size=9),
    *(SMALL.map(form) for form in (tuple, np.array, torch.tensor, lambda some: np.array(some, np.uint8))),
    SMALL.map(lambda some: np.repeat(np.array(some, np.int32), 2)[::2]),
    st.sampled_from([[], ["a", "bb"], [[1], [2]], range(7)]),
)
BATCH_SIZES = st.integers(1, 9)
LENGTHS = st.one_of(
    st.lists(st.integers(0, 5), min_size=1, max_size=120),  # many are equal
    st.lists(st.integers(0, 600), min_size=1, max_size=120),
    st.lists(st.sampled_from([0, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -1, -(2**63)]), min_size=1, max_size=20),
)
PAIR = (originals.LengthGroupedSampler, quadrat.batching.LengthGroupedSampler)


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What a call returns, or the type and words of what it raises; and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result: tuple[Any, ...] = "returned", call(*arguments, **options)
        except Exception as error:
            result = "raised", type(error), str(error)
    return *result, {str(warning.message) for warning in warned}


def attributes(sampler: Any) -> dict[str, str]:
    return {name: repr(getattr(sampler, name)) for name in vars(sampler) if name != "generator"}


def assert_alike(seen):
    """`seen` gives what is seen of the reference's class and of ours."""
    expected, got = map(seen, PAIR)
    assert got == expected


def seeded(number=3):
    return torch.Generator().manual_seed(number)


def epochs(sampler, count=2):
    """The indices of some epochs, and how the global generator is left."""
    records = []
    for _ in range(count):
        torch.manual_seed(5)
        indices = iter(sampler)
        drawn = torch.get_rng_state()  # the permutation is drawn before the first index is asked for
        records.append((type(indices), list(indices), [type(index) for index in sampler], drawn.tolist()))
        records.append(torch.get_rng_state().tolist())
    return records


def both(*arguments, **options):
    """What is seen of the reference's sampler and of ours, or their errors."""

    def seen(cls):
        sampler = cls(*arguments, **options)
        return outcome(len, sampler), outcome(epochs, sampler), attributes(sampler)

    return [outcome(seen, cls) for cls in PAIR]


@MANY
@given(LENGTHS | ODD, BATCH_SIZES, st.none() | st.integers(0, 2**40))
def test_length_grouped(lengths, batch_size, seed):
    before, results = copy.deepcopy(lengths), []
    for cls in PAIR:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        sampler = cls(batch_size, lengths=lengths, generator=generator)
        assert sampler.generator is generator
        assert isinstance(lengths, torch.Tensor) or sampler.lengths is lengths
        results.append((len(sampler), attributes(sampler), outcome(epochs, sampler), repr(state_of(generator))))
    assert results[1] == results[0]
    assert repr(lengths) == repr(before)


ROWS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=30)


def dataset_of(rows, column="input_ids"):
    half = len(rows) // 2
    kind = pa.list_(pa.int32())
    ids = pa.chunked_array([pa.array(rows[:half], kind), pa.array(rows[half:], kind)])
    return datasets.Dataset(pa.table({column: ids, "label": [len(row) for row in rows]}))


class Subclass(datasets.Dataset):
    """A dataset that is not read as others are."""

    def __iter__(self):
        for row in super().__iter__():
            yield {name: [value] * 2 for name, value in row.items()}


DATASETS = {
    "stored": lambda dataset: dataset,
    "mapped": lambda dataset: dataset.select([*range(1, len(dataset)), 0]),
    "numpy": lambda dataset: dataset.with_format("numpy"),
    "torch": lambda dataset: dataset.with_format("torch"),
    "arrow": lambda dataset: dataset.with_format("arrow"),
    "pandas": lambda dataset: dataset.with_format("pandas"),
    "another column": lambda dataset: dataset.with_format("numpy", columns=["label"]),
    "all columns": lambda dataset: dataset.with_format("numpy", columns=["label"], output_all_columns=True),
    "transform": lambda dataset: dataset.with_transform(
        lambda rows: {"input_ids": [row * 3 for row in rows["input_ids"]]}
    ),
    "doubled": lambda dataset: dataset.with_transform(lambda rows: {"label": [2 * label for label in rows["label"]]}),
    "arrow dataset": quadrat.ArrowDataset,
    "list": list,
    "bare": lambda dataset: [row["input_ids"] for row in dataset],
    "rows of rows": lambda dataset: datasets.Dataset.from_list(
        [{**row, "input_ids": [row["input_ids"]] * (1 + len(row["input_ids"]) % 3)} for row in dataset]
    ),
    "wrong column": lambda dataset: dataset.rename_column("input_ids", "ids"),
    "numbers": lambda dataset: dataset.remove_columns("input_ids").rename_column("label", "input_ids"),
    "empty": lambda dataset: dataset.select([]),
    "subclass": lambda dataset: Subclass(dataset.data),
    "subset": lambda dataset: torch.utils.data.Subset(dataset, range(len(dataset))),
    "iterable": lambda dataset: dataset.to_iterable_dataset(),
    "nothing": lambda dataset: None,
}


@pytest.mark.parametrize("kind", DATASETS)
def test_lengths_of_datasets(kind):
    @given(ROWS, BATCH_SIZES, st.sampled_from([None, None, "input_ids", "label", "x"]))
    @settings(max_examples=10)
    def check(rows, batch_size, column):
        dataset = DATASETS[kind](dataset_of(rows))
        expected, got = both(batch_size, dataset=dataset, model_input_name=column)
        assert got == expected

    check()


def test_reads_no_more_of_a_stored_dataset_than_its_offsets(monkeypatch):
    dataset = dataset_of([[1, 2], [3], [4, 5, 6]]).select([2, 0, 1])
    for name in ("__getitem__", "__iter__", "_getitem"):
        monkeypatch.setattr(datasets.Dataset, name, None)
    sampler = quadrat.batching.LengthGroupedSampler(2, dataset)
    assert len(sampler) == 3
    assert sorted(sampler) == [0, 1, 2]
    assert sampler.lengths == [3, 2, 1]
    assert type(sampler.lengths) is list


def test_lengths_may_be_changed():
    dataset = dataset_of([[1] * length for length in range(1, 9)])

    def seen(cls):
        sampler = cls(2, dataset, generator=seeded())
        parts = [list(sampler)]
        sampler.lengths[0] = 100
        parts.append(list(sampler))
        sampler.lengths = [1] * 4
        return [*parts, list(sampler), len(sampler)]

    assert_alike(seen)


@pytest.mark.parametrize("form", ["stored", "numpy", "torch", "doubled"])
def test_lengths_from_a_column(form):
    """As Trainer gives them: a list, an array, or, from datasets 4 on, a column that is read when it is asked."""
    dataset = DATASETS[form](dataset_of([[1] * (length % 5) for length in range(40)]).shuffle(seed=0))
    assert_alike(lambda cls: list(cls(2, dataset, lengths=dataset["label"], generator=seeded())))


def test_no_other_column_is_decoded(monkeypatch):
    dataset = dataset_of([[1] * length for length in range(9)])
    lengths, read, original = dataset["label"], [], datasets.Dataset.__getitem__

    def spy(self, key):
        if isinstance(key, slice):
            read.append(self.column_names)
        return original(self, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", spy)
    sampler = quadrat.batching.LengthGroupedSampler(2, lengths=lengths)
    assert sampler.lengths == list(range(9))
    assert sorted(sampler) == list(range(9))
    assert read in ([["label"]], [])  # a list, before datasets 4


def test_nulls():
    dataset = datasets.Dataset(pa.table({"input_ids": pa.array([[1], None, [2]], pa.list_(pa.int32()))}))
    with pytest.raises(TypeError, match="object of type 'NoneType' has no len") as expected:
        originals.LengthGroupedSampler(2, dataset)
    with pytest.raises(TypeError, match=re.escape(f"{expected.value}: row 1 of column 'input_ids' is null")):
        quadrat.batching.LengthGroupedSampler(2, dataset)


def test_takes_what_the_reference_takes():
    expected, got = both(2)
    assert got == expected
    expected, got = both(2, lengths=[3, 1, 2], model_input_name="x", dataset=[{}, {}, {}])
    assert got == expected
    assert issubclass(*PAIR[::-1])


def test_copies_and_pickles():
    dataset = dataset_of([[1] * (length % 7) for length in range(50)])
    sampler = quadrat.batching.LengthGroupedSampler(2, dataset)
    for twin in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert type(twin) is type(sampler)
        assert epochs(twin) == epochs(sampler)
        assert twin.lengths == sampler.lengths
    pickled = pickle.dumps(originals.LengthGroupedSampler(2, dataset))
    with quadrat.patch_transformers():
        ours = pickle.loads(pickled)
    assert type(ours) is quadrat.batching.LengthGroupedSampler
    assert epochs(ours) == epochs(sampler)


def test_a_subclass():
    results = []
    for cls in PAIR:

        class Twice(cls):
            def __iter__(self):
                return iter([index for index in super().__iter__() for _ in range(2)])

        results.append(epochs(Twice(2, dataset_of([[1] * length for length in range(30)]))))
    assert results[1] == results[0]
