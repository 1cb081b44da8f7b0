"""Batches of a DataLoader's workers: the reference's, made in one block, and sent by value or in shared memory."""

import functools
import multiprocessing
import os
import random

import numpy as np
import pytest
import torch
import transformers
from accelerate.utils import send_to_device

import quadrat
from quadrat.support import memory, shared
from support import samples
from support.compare import assert_same_batch
from support.strategies import make_tokenizer
from support.workers import Collate, Kills, Observed, by_name, load, observe, segment_of, tensors_of

# The permutation collator masks, with a method that users may call or replace, what has been padded before.
BLOCKS = {name: 2 if "Permutation" in name else 1 for name in samples.CLASSES}


NAMES = samples.CLASSES * 4


@pytest.fixture
def in_shared_memory(monkeypatch):
    """Also small batches, in workers that are forked."""
    monkeypatch.setattr(shared, "_BY_VALUE", -1)


def batches(module, workers, method="fork", *, warm=False, **options):
    """`warm`: after a round in this process, whose recipes forked workers then have."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    collate = Collate(module, **options)
    chosen = [name for name in NAMES if name in collate.collators]
    if warm:
        for name in chosen:
            collate(name)
    return list(load(chosen, collate, workers, method))


@pytest.mark.parametrize(
    ("workers", "method", "warm"),
    [(0, "fork", True), (2, "fork", False), (2, "fork", True), pytest.param(2, "spawn", False, marks=pytest.mark.slow)],
)
def test_batches_are_the_references(workers, method, warm):
    expected = batches(transformers, workers, warm=warm)
    got = batches(quadrat, workers, method, warm=warm)
    for right, batch in zip(expected, got, strict=True):
        assert_same_batch(right, batch)
        assert [tensor.untyped_storage().nbytes() for tensor in tensors_of(batch)] == [
            tensor.nbytes for tensor in tensors_of(right)
        ]


@pytest.mark.usefixtures("in_shared_memory")
@pytest.mark.parametrize("warm", [False, True])
def test_batches_in_shared_memory_are_the_references(warm):
    expected = batches(transformers, 2, warm=warm)
    got = batches(quadrat, 2, warm=warm)
    for name, right, batch in zip(NAMES, expected, got, strict=True):
        assert_same_batch(right, batch)
        assert len(observe(batch)["segments"]) == BLOCKS[name]


@pytest.mark.parametrize("workers", [0, 2])
def test_numpy_batches(workers):
    expected, got = (batches(module, workers, framework="np") for module in (transformers, quadrat))
    for right, batch in zip(expected, got, strict=True):
        assert_same_batch(right, batch)
        assert all(type(value) is not torch.Tensor for value in batch.values())


def segments() -> set[str]:
    """What is in shared memory, without the semaphores of processes that start and end at any time."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


@pytest.mark.usefixtures("in_shared_memory")
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_a_batch_is_one_block_and_arrives_as_it_is(strategy):
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    left = segments()
    try:
        loader = load(NAMES, Observed(Collate(quadrat)), 1, worker_init_fn=by_name if "system" in strategy else None)
        for name, (batch, there) in zip(NAMES, loader, strict=True):
            here = observe(batch)
            assert there["shared"] == here["shared"] == {True}
            assert there["storages"] == here["storages"] == len(tensors_of(batch))
            assert len(here["segments"]) == BLOCKS[name]
            assert there["segments"] == here["segments"], "it was copied on the way"
            for tensor in tensors_of(batch):
                assert tensor.data_ptr() % 64 == 0
        del batch, tensor, loader
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert segments() <= left


def test_only_workers_share():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    features = samples.batch("DataCollatorWithPadding")

    def in_child(queue):
        observed = observe(collator(features))
        queue.put((observed["shared"], memory.interop().may_be_worker))

    assert observe(collator(features))["shared"] == {False}
    assert not memory.interop().may_be_worker
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    shared, asked = queue.get()
    child.join()
    assert (shared, asked) == ({False}, True)


def test_functions_do_not_share_in_workers():
    """What a dataset makes by them may stay: a shared block each would hold a file descriptor each."""

    def collate(rows):
        padded = quadrat.pad([torch.tensor(row) for row in rows])
        masked = quadrat.mask_tokens(padded, mask_token_id=1, vocab_size=9)
        return [value.is_shared() for value in (padded, masked.labels)]

    assert list(load([[[5, 6], [7]]], collate, 1)) == [[False, False]]


def test_a_small_batch_needs_no_descriptor():
    """Its tensors are writable, have storages of their own, and outlive the loader."""
    before = len(os.listdir("/proc/self/fd"))
    loader = load(NAMES, Observed(Collate(quadrat)), 1)
    kept = [batch for batch, _ in loader]
    del loader
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    for batch in kept:
        assert observe(batch)["shared"] == {False}
        for tensor in tensors_of(batch):
            tensor.zero_()
        assert len({tensor.untyped_storage()._cdata for tensor in tensors_of(batch)}) == len(tensors_of(batch))


@pytest.mark.usefixtures("in_shared_memory")
def test_masking_apart_shares():
    """A collator with masking of its own: labels come from a second call."""

    class Mine(quadrat.DataCollatorForLanguageModeling):
        def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
            return super().torch_mask_tokens(inputs, special_tokens_mask, offset_mapping)

    collator = Mine(samples.tokenizer())
    ((batch, there),) = load([samples.batch("DataCollatorForLanguageModeling")], Observed(collator), 1)
    assert there["shared"] == {True}
    assert there["segments"] == {segment_of(tensor) for tensor in tensors_of(batch)}


@pytest.mark.parametrize("features", [
    [{"input_ids": [], "attention_mask": []}] * 2,
    [{"input_ids": [], "attention_mask": [], "label": 3}] * 2,
])  # fmt: skip
@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DefaultDataCollator"])
def test_batches_and_columns_without_elements(name, features):
    for module in (transformers, quadrat):
        got = list(load([features] * 3, samples.make(module, name), 1))
        right = [samples.make(transformers, name)(features)] * 3
        for batch, other in zip(right, got, strict=True):
            assert_same_batch(batch, other)


def test_columns_of_the_reference_are_sent_too():
    """Nested rows are stacked by the reference's own code: they are in other memory, and torch copies them."""
    features = [{"input_ids": [1, 2], "box": [[1, 2], [3, 4]]}, {"input_ids": [3, 4], "box": [[5, 6], [7, 8]]}]
    right = transformers.default_data_collator(features)
    for batch in load([features] * 3, quadrat.default_data_collator, 1):
        assert_same_batch(right, batch)


@pytest.mark.slow
def test_no_descriptor_or_segment_is_left():
    name = "DataCollatorForLanguageModeling"
    left = segments()
    features = [samples.batch(name)] * 400
    loader = load(features, Observed(samples.make(quadrat, name)), 1, persistent_workers=True)
    there, here = [], []
    for _ in range(2):
        for _, seen in loader:
            there.append(seen["descriptors"])
            here.append(len(os.listdir("/proc/self/fd")))
    assert max(there[400:]) <= max(there[:400]) + 8, "the worker keeps them"
    assert max(here[400:]) <= max(here[:400]) + 8, "this process keeps them"
    assert segments() <= left


# Features that quadrat's collator refuses: each with the reference's error and what quadrat adds.
REFUSED = {
    ValueError: ("DataCollatorWithPadding", [{"input_ids": [1, 2], "x": [1]}, {"input_ids": [1], "x": [1, 2]}]),
    KeyError: ("DataCollatorForTokenClassification", [{"input_ids": [1], "labels": [1]}, {"input_ids": [1]}]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_errors_keep_type_and_message(kind):
    name, features = REFUSED[kind]
    collator = samples.make(quadrat, name)
    with pytest.raises(kind) as here:
        collator(features)
    good = samples.batch(name)
    loader = iter(load([good, features, *[good] * 50, features, good], Observed(collator), 1))
    _, first = next(loader)
    with pytest.raises(kind) as there:
        next(loader)
    assert type(there.value) is type(here.value)
    assert "quadrat: " in str(here.value)
    for line in str(here.value.args[0]).splitlines():
        assert line in str(there.value)
    for _ in range(50):
        next(loader)
    with pytest.raises(kind):
        next(loader)
    assert next(loader)[1]["descriptors"] <= first["descriptors"] + 8


def test_a_batch_larger_than_shared_memory():
    state = os.statvfs("/dev/shm")
    size = state.f_blocks * state.f_frsize + (1 << 30)
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), padding="max_length", max_length=size // 8)
    good = quadrat.DataCollatorWithPadding(make_tokenizer())([{"input_ids": [1, 2]}])
    loader = iter(load([[{"input_ids": [1, 2]}]] * 2, collator, 1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"does not fit into shared memory: [\d,]+ are left in /dev/shm"):
            next(loader)
    assert good["input_ids"].tolist() == [[1, 2]]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("sent", [False, True])
def test_boundaries_are_one_tensor(workers, sent, monkeypatch):
    """Where they are when they are made; accelerate copies each of them."""
    if sent:
        monkeypatch.setattr(shared, "_BY_VALUE", -1)
    rows = [[5, 6, 7], [8, 9]]
    flatten = functools.partial(quadrat.flatten, kwargs_for="varlen_attn", return_tensors="pt")
    (batch,) = load([rows], flatten, workers)
    assert batch["cu_seq_q"] is batch["cu_seq_k"]
    moved = send_to_device(batch, "meta")
    assert moved["cu_seq_q"] is not moved["cu_seq_k"]
    for module in (transformers, quadrat):
        collator = module.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
        (batch,) = load([[{"input_ids": row} for row in rows]], collator, workers)
        assert batch["cu_seq_lens_q"] is not batch["cu_seq_lens_k"]


# torch may raise the death of the second worker while it cleans up after the first.
@pytest.mark.filterwarnings("ignore:.*DataLoaderIter.__del__:pytest.PytestUnraisableExceptionWarning")
def test_a_killed_worker_is_an_error():
    name = "DataCollatorWithPadding"
    loader = load([samples.batch(name)] * 4, Kills(samples.make(quadrat, name)), 2)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(loader)
