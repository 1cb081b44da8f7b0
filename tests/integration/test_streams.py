"""`BatchedStream` and `PackedStream`: each row once, within the budget, and exactly where a state left off."""

import functools
import itertools
import pickle
from types import SimpleNamespace
from unittest import mock

import datasets
import numpy as np
import pytest
import torch
from accelerate.data_loader import IterableDatasetShard
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import quadrat
from support.streams import (
    DATASETS,
    KINDS,
    LENGTHS,
    LIMIT,
    Torch,
    after,
    documents,
    everything,
    rows_of,
    said,
    stream_of,
)


@pytest.fixture
def worker(monkeypatch):
    """Sets what a process takes itself for."""

    def sets(number, count):
        info = SimpleNamespace(id=number, num_workers=count, seed=0)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)

    return sets


@given(
    lengths=st.just([]) | st.lists(st.integers(0, 12), max_size=60),
    window=st.integers(1, 70),
    max_tokens=st.integers(12, 60),
    padded=st.booleans(),
    max_batch_size=st.none() | st.integers(1, 7),
    multiple_of=st.sampled_from([1, 4, 6]),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_batches_keep_the_budget_and_rows_come_once(lengths, window, max_tokens, padded, max_batch_size, **options):
    limits = {"padded": padded, "max_batch_size": max_batch_size, **options}
    stream = quadrat.BatchedStream(rows_of(lengths), max_tokens, window=window, **limits)
    batches = [said(batch) for batch in stream]
    assert documents(batches) == everything(lengths)
    multiple = options["multiple_of"]
    for batch in batches:
        sizes = list(map(len, batch))
        width = -(-(max(sizes) if padded else sum(sizes)) // multiple) * multiple
        assert width * (len(sizes) if padded else 1) <= max_tokens
        assert len(sizes) <= (max_batch_size or len(sizes))
    assert batches == [said(batch) for batch in stream], "each iteration begins anew"


@given(
    lengths=st.just([]) | st.lists(st.integers(0, 30), max_size=60),
    window=st.integers(1, 70),
    limit=st.integers(1, 40),
    strategy=st.sampled_from(["best_fit", "first_fit", "in_order"]),
    overlong=st.sampled_from(["truncate", "split"]),
    shuffle=st.booleans(),
)
def test_packs_hold_what_they_may_and_rows_come_once(lengths, window, limit, overlong, **options):
    rows = rows_of(lengths)
    packs = list(quadrat.data.PackedStream(rows, limit, window=window, overlong=overlong, **options))
    assert all(len(pack["input_ids"]) == pack["seq_lengths"].sum() <= limit for pack in packs)
    assert all((pack["input_ids"] == pack["number"]).all() for pack in packs)
    if overlong == "truncate":
        expected = [row["input_ids"][:limit] for row in rows]
    else:
        starts = [range(0, max(length, 1), limit) for length in lengths]
        expected = [row["input_ids"][at : at + limit] for row, ats in zip(rows, starts, strict=True) for at in ats]
    assert documents(map(said, packs)) == sorted(expected)


@given(
    shards=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    workers=st.integers(1, 3),
    is_mapped=st.booleans(),
    epoch=st.integers(0, 1),
)
def test_workers_of_concatenated_datasets_resume(shards, workers, is_mapped, epoch):
    """Those that have no shard of one part, too."""

    def stream():
        rows = datasets.Dataset.from_list(rows_of(LENGTHS[:15]))
        parts = [rows.to_iterable_dataset(num_shards=count) for count in shards]
        dataset = datasets.concatenate_datasets(parts)
        dataset = dataset.map(lambda row: {"more": row["number"]}) if is_mapped else dataset
        batches = quadrat.BatchedStream(dataset, LIMIT, window=4)
        batches.set_epoch(epoch)
        return batches

    for number in range(workers):
        info = SimpleNamespace(id=number, num_workers=workers, seed=0)
        with mock.patch.object(torch.utils.data, "get_worker_info", lambda info=info: info):
            items, states = [], []
            for item in (whole := stream()):
                items.append(said(item))
                states.append(whole.state_dict())
            for count, state in list(enumerate(states, 1))[::3]:
                assert after(state, stream()) == items[count:]


@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=80), window=st.integers(26, 40))
def test_in_order_is_the_order_of_all_rows(lengths, window):
    """No pack is cut at the end of a window, if a window has more than one."""
    lengths = [length + 1 for length in lengths]
    packs = quadrat.data.PackedStream(rows_of(lengths), 13, strategy="in_order", window=window, shuffle=False)
    expected = quadrat.batching.plan_packs(lengths, 13, "in_order").to_lists()
    assert [[document[0] for document in said(pack)] for pack in packs] == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DATASETS)
def test_resumes_at_every_point(kind, name):
    make = functools.partial(stream_of, kind, name, **({"columns": ["input_ids"]} if kind == "batches" else {}))
    stream = make()
    stream.set_epoch(2)
    items, states = [], [stream.state_dict()]
    for item in stream:
        items.append(said(item))
        states.append(pickle.loads(pickle.dumps(stream.state_dict())))
    assert documents(items) == everything()
    assert states[-1]["window"] >= 3
    windows = [state["window"] for state in states]
    for at, state in enumerate(states):
        if at % 3 and at + 1 < len(states) and windows[at] == windows[at - 1]:
            continue  # a third of the states, all that follow the first item of a window, and the last
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == state
        rest = []
        for item in again:
            rest.append(said(item))
            assert {**again.state_dict(), "source": 0} == {**states[at + len(rest)], "source": 0}
        assert rest == items[at:]
        assert again.epoch == 2
        if at % 12 == 0:  # and from a state of a resumed iteration
            again.load_state_dict(state)
            list(itertools.islice(again, 5))
            assert after(again.state_dict(), make()) == items[at + 5 :]
    assert after(state, again) == []
    assert [said(item) for item in again] == items, "the next iteration is of the whole epoch"


@given(
    lengths=st.lists(st.integers(0, 12), max_size=40),
    window=st.integers(1, 12),
    kind=st.sampled_from(KINDS),
    data=st.data(),
)
def test_resumes_with_any_rows(lengths, window, kind, data):
    """Windows so short that all of their rows wait, as well."""
    stream, again = (stream_of(kind, rows_of(lengths), window=window) for _ in range(2))
    items = [said(item) for item in stream]
    taken = data.draw(st.integers(min(1, len(items)), len(items)))
    list(itertools.islice(stream, taken))
    assert after(stream.state_dict(), again) == items[taken:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("function", "mapped")])
def test_workers_and_ranks_share_the_rows(kind, workers, name):
    shares, single = [], workers == 2 and name == "1 shard"
    for rank in range(2):
        stream = stream_of(kind, name, world_size=2, rank=rank)
        shares.append(list(DataLoader(stream, batch_size=None, num_workers=workers, collate_fn=said)))
    assert documents(itertools.chain(*shares)) == everything()
    assert all(shares), "each rank has some"
    assert not single or len(shares[0]) < len(LENGTHS)


def test_a_dataset_that_shards_itself():
    stream = stream_of("batches", Torch(rows_of(LENGTHS), shards_itself=True), shards_itself=True)
    batches = list(DataLoader(stream, batch_size=None, num_workers=2, collate_fn=said))
    assert documents(batches) == everything()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["list", "torch", "4 shards", "buffer"])
def test_workers_resume(kind, name, worker):
    """What a StatefulDataLoader does: each worker process has a state."""
    shares = []
    for number in range(2):
        worker(number, 2)
        items = [said(item) for item in stream_of(kind, name)]
        for taken in range(1, len(items), 3):
            stream = stream_of(kind, name)
            list(itertools.islice(stream, taken))
            state = stream.state_dict()
            assert after(state, stream_of(kind, name)) == items[taken:]
        shares.append(items)
        if not items:  # some versions of datasets leave one shard where rows are shuffled
            continue
        worker(number, 3)
        again = stream_of(kind, name)
        again.load_state_dict(state)
        with pytest.raises(ValueError, match=f"from worker {number} of 2, but this is {number} of 3"):
            iter(again)
    assert documents(itertools.chain(*shares)) == everything()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["list", "torch", "4 shards", "buffer"])
def test_epochs_differ_and_reach_persistent_workers(kind, name):
    stream = stream_of(kind, name)
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True, collate_fn=said)
    epochs = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        epochs.append(list(loader))
        assert documents(epochs[-1]) == everything()
    assert epochs[0] == epochs[2] != epochs[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_rows_of_several_shards(kind):
    """`take` and `skip` count rows of the whole dataset, not of each shard."""
    dataset = DATASETS["4 shards"](rows_of(LENGTHS)).take(9)
    expected = sorted(row["input_ids"] for row in dataset)
    assert documents(map(said, stream_of(kind, dataset))) == expected == everything(LENGTHS[:9])


@pytest.mark.parametrize("kind", KINDS)
def test_seeds(kind):
    by_seed = [[said(item) for item in stream_of(kind, "list", seed=seed)] for seed in (0, 1, 0)]
    assert by_seed[0] == by_seed[2] != by_seed[1]


def test_the_dataset_of_the_user_stays_as_it_is():
    dataset = DATASETS["4 shards"](rows_of(LENGTHS))
    dataset.set_epoch(5)
    before = dataset.state_dict()
    stream = stream_of("batches", dataset)
    stream.set_epoch(2)
    next(iter(stream))
    assert (dataset.epoch, dataset.state_dict()) == (5, before)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_of_accelerate_take_turns(kind):
    """Each process reads the whole stream (dispatch_batches=False), and all have as many batches."""
    stream = stream_of(kind, "list")
    shards = [IterableDatasetShard(stream, 1, num_processes=2, process_index=process) for process in range(2)]
    batches = [[said(item) for item in shard] for shard in shards]
    items = [said(item) for item in stream]
    assert len(batches[0]) == len(batches[1])
    assert [item for step in zip(*batches, strict=True) for item in step][: len(items)] == items


@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_begins_when_it_is_asked_for(kind):
    """A StatefulDataLoader asks for the state before the first item of a later iteration."""
    stream, again = stream_of(kind, "list"), stream_of(kind, "list")
    items = [said(item) for item in stream]
    iterator = iter(stream)
    assert after(stream.state_dict(), again) == items == [said(item) for item in iterator]
    assert after(stream.state_dict(), again) == []


def test_states_of_others_are_refused():
    stream = stream_of("batches", "list")
    list(itertools.islice(stream, 9))
    state = stream.state_dict()
    assert state["window"] > 0
    for options in ({"window": 23}, {"seed": 1}, {"shuffle": False}, {"padded": False}, {"world_size": 2}):
        with pytest.raises(ValueError, match=f"the state is from another stream: .*{next(iter(options))}"):
            stream_of("batches", "list", **options).load_state_dict(state)
    with pytest.raises(ValueError, match="stream is 'PackedStream' here and 'BatchedStream' in the state"):
        stream_of("packs", "list").load_state_dict({**state, "strategy": "best_fit"})
    with pytest.raises(KeyError, match="kept"):
        stream.load_state_dict({name: value for name, value in state.items() if name != "kept"})
    with pytest.raises(ValueError, match="the state is from another dataset: its rows had other lengths"):
        after(state, stream_of("batches", rows_of(LENGTHS[::-1])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (iter([]), TypeError, "can be read only once: give the function that makes it"),
        ({"train": []}, TypeError, r"no rows of its own: give one of \['train'\]"),
        (3, TypeError, "a int has no rows: give an iterable of mappings"),
        ([[1, 2]], TypeError, "row 0 is a list, not a mapping"),
        ([{"input_ids": [1], "number": [1]}] * 40 + [{"input_ids": None}], TypeError, r"row 16 .* is null .*row 24"),
        ([{"tokens": [1]}], ValueError, "no column 'input_ids': row 0 has"),
        ([{"input_ids": [1], "number": [1]}] * 40 + [{"input_ids": [1] * 99}], ValueError, "row 40 has 99 tokens.*='"),
    ],
)
def test_wrong_datasets(kind, dataset, error, message):
    with pytest.raises(error, match=message):
        list(stream_of(kind, dataset))


def test_wrong_arguments():
    rows = rows_of([3, 4])
    batched, packed = quadrat.BatchedStream, quadrat.data.PackedStream
    wrong = [
        (batched, 0, {}, "max_tokens must be"),
        (batched, 16, {"multiple_of": 32}, "multiple_of=32 is above max_tokens=16"),
        (batched, 16, {"window": 0}, "window must be"),
        (batched, 16, {"world_size": 2, "rank": 2}, "rank must be"),
        (batched, 16, {"seed": -1}, "seed must be"),
        (batched, 16, {"overlong": "split"}, "overlong must be one of 'error', 'alone', not 'split'"),
        (batched, 16, {"columns": ["label"]}, r"columns=\['label'\] must contain 'input_ids'"),
        (packed, 16, {"strategy": "worst"}, "strategy must be one of"),
        (packed, 16, {"overlong": "alone"}, "overlong must be one of 'error', 'truncate', 'split'"),
    ]
    for cls, limit, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            cls(rows, limit, **options)
    with pytest.raises(TypeError, match=r"give \['input_ids'\]"):
        quadrat.data.PackedStream(rows, 16, columns="input_ids")
    with pytest.raises(ValueError, match="no column 'label'"):
        list(quadrat.BatchedStream(rows, 16, columns=["input_ids", "label"]))


def test_a_row_above_the_budget_alone():
    stream = quadrat.BatchedStream(rows_of([3, 40, 2]), 16, overlong="alone", shuffle=False)
    assert [[len(row) for row in said(batch)] for batch in stream] == [[40], [3, 2]]


def test_packs_are_full():
    """The figures of the docstring, with fewer rows."""
    lengths = np.minimum(np.random.default_rng(0).lognormal(5, 0.8, 20_000).astype(int) + 1, 1024)
    rows = [{"input_ids": np.zeros(length, np.int32)} for length in lengths]
    packs = list(quadrat.data.PackedStream(rows, 1024))
    assert lengths.sum() / (len(packs) * 1024) > 0.998


def test_what_is_shown():
    stream = quadrat.BatchedStream([], 64, window=9, seed=3)
    stream.set_epoch(2)
    assert repr(stream) == "BatchedStream(list, 64, window=9, seed=3, world_size=1, rank=0, epoch=2)"
