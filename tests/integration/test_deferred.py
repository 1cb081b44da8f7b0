"""Deferred batches where they are used: DataLoader workers, accelerate, Trainer."""

import numpy as np
import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderDispatcher, prepare_data_loader
from torch.utils.data import DataLoader, IterableDataset
from transformers import BatchEncoding, BertForSequenceClassification, BertLMHeadModel, Trainer

import quadrat
from support.compare import assert_same_batch
from support.isolated import in_two
from support.masking import make_masking_tokenizer
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny, trained
from support.workers import segment_of


def rows(count=48):
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(count):
        ids = random.integers(7, 400, random.integers(4, 20)).tolist()
        drawn.append({"input_ids": ids, "attention_mask": [1] * len(ids), "label": int(random.integers(0, 3))})
    return drawn


def even_rows(count=12):
    return [{**row, "input_ids": row["input_ids"][:4], "attention_mask": [1] * 4} for row in rows(count)]


def collators(name="DataCollatorWithPadding", **options):
    return [getattr(quadrat, name)(make_tokenizer(), deferred=deferred, **options) for deferred in (False, True)]


def test_large_ones_lie_in_shared_memory():
    """Small ones come with the message, which is faster."""
    features = [{"input_ids": list(range(3, 3 + n))} for n in (9, 8, 70_000, 8)]
    collator, deferring = collators()
    loader = DataLoader(features, batch_size=2, collate_fn=deferring, num_workers=1)
    for first, batch in zip((0, 2), loader, strict=True):
        assert (segment_of(batch._buffer)[1] != "0") == (first == 2)
        assert_same_batch(collator(features[first : first + 2]), batch.to("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(method):
    features = rows()
    collator, deferring = collators()
    loader = DataLoader(features, batch_size=8, collate_fn=deferring, num_workers=2, multiprocessing_context=method)
    for first, batch in zip(range(0, 48, 8), loader, strict=True):
        assert isinstance(batch, quadrat.deferred.DeferredBatch)
        assert_same_batch(collator(features[first : first + 8]), batch.to("cpu"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("language", [False, True])
def test_same_losses(workers, language, tmp_path):
    """With unused columns, evaluation and accumulated gradients, whose losses are scaled by the labels counted."""

    def losses(deferred):
        dataset = [{**row, "unused": 1} for row in rows()]
        if language:
            dataset = [{"input_ids": row["input_ids"]} for row in rows()]
            collator = quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), mlm=False, deferred=deferred)
        else:
            collator = quadrat.DataCollatorWithPadding(make_tokenizer(), deferred=deferred)
        args = arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2, dataloader_num_workers=workers)
        model = BertLMHeadModel if language else BertForSequenceClassification
        trainer = trained(model, dataset, args, eval_dataset=dataset[:8], data_collator=collator)
        return [*trainer.losses, trainer.evaluate()["eval_loss"]]

    assert losses(deferred=True) == losses(deferred=False)


def test_a_trainer_that_moves_batches_by_itself(tmp_path):
    """Where nobody calls `to`, a mapping is taken apart: it comes out whole, and feeds a model."""
    trainer = Trainer(model=tiny(BertForSequenceClassification, num_labels=2), args=arguments(tmp_path))
    collator, deferring = collators()
    features = [{**row, "label": row["label"] % 2} for row in rows(4)]
    prepared = trainer._prepare_inputs(deferring(features))
    assert_same_batch(dict(collator(features)), dict(prepared))
    assert trainer.model(**prepared).logits.shape == (4, 2)
    _, count = trainer.get_batch_samples(iter([deferring(features)]), 1, torch.device("cpu"))
    _, expected = trainer.get_batch_samples(iter([collator(features)]), 1, torch.device("cpu"))
    assert count == expected


COLLATORS = {"DataCollatorWithPadding": BatchEncoding, "DefaultDataCollator": dict}
PREPARED = {
    "shard": {"dispatch_batches": False},
    "dispatch": {"dispatch_batches": True},
    "split": {"dispatch_batches": True, "split_batches": True},
}


def loaders(name, **options):
    """The same batches from transformers' collator and from a deferring one, prepared by accelerate."""
    for module, deferred in ((transformers, {}), (quadrat, {"deferred": True})):
        arguments = () if name == "DefaultDataCollator" else (make_tokenizer(),)
        loader = DataLoader(even_rows(), batch_size=4, collate_fn=getattr(module, name)(*arguments, **deferred))
        yield prepare_data_loader(loader, **{"device": torch.device("cpu"), "put_on_device": True, **options})


@pytest.mark.parametrize("how", PREPARED)
@pytest.mark.parametrize("name", COLLATORS)
def test_accelerate_gives_the_container_of_the_reference(name, how):
    """Also where it takes batches apart and puts them together again, as `type(batch)(columns)`."""
    count = 0
    for expected, got in zip(*loaders(name, **PREPARED[how]), strict=True):
        assert type(expected) is COLLATORS[name]
        assert_same_batch(expected, got)
        count += 1
    assert count == 3


class Rows(IterableDataset):
    def __iter__(self):
        return iter(even_rows())


def dispatched(_):
    def batches(module, name, **options):
        arguments = () if name == "DefaultDataCollator" else (make_tokenizer(),)
        loader = DataLoader(Rows(), batch_size=3, collate_fn=getattr(module, name)(*arguments, **options))
        prepared = Accelerator(cpu=True).prepare(loader)
        assert isinstance(prepared, DataLoaderDispatcher)
        return list(prepared)

    for name, container in COLLATORS.items():
        expected, got = batches(transformers, name), batches(quadrat, name, deferred=True)
        assert len(got) == len(expected) == 2
        for right, batch in zip(expected, got, strict=True):
            assert type(right) is container
            assert_same_batch(right, batch)


@pytest.mark.slow
def test_two_processes_that_are_dispatched_to(tmp_path):
    """An IterableDataset is read by one process, which sends each of the others its rows."""
    in_two(dispatched, tmp_path)
