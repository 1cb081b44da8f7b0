"""A `DataLoader` of the same rows by token budget."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, IterableDataset

from quadrat.batching.token_budget import TokenBudgetBatchSampler
from quadrat.integration.token_batches import AGAIN, TokenBatches, collator_of_quadrat, not_indexed, plan_batches

_OF_BATCHES = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last")


class _EachPass(TokenBudgetBatchSampler):
    """Each pass over the rows has the epoch after that of the last one, unless an epoch was set."""

    _is_set = True  # to 0

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._is_set = True

    def __iter__(self) -> Iterator[list[int]]:
        if not self._is_set:
            self.set_epoch(self.epoch + 1)
        self._is_set = False
        return super().__iter__()


def loader_by_tokens(
    loader: Any, max_tokens: int | Literal["auto"], *, seed: int | None = None, **options: Any
) -> tuple[Any, TokenBatches]:
    """A loader of the same rows by token budget, or the one given where a budget would save nothing; and its numbers.

    See `batch_by_tokens`.
    """
    _require_shuffled(loader)
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if seed is None:  # processes need the same
        generator = loader.generator or (_name_of(loader.sampler)[0] == "torch" and loader.sampler.generator)
        seed = 0 if world > 1 else (generator or torch.default_generator).initial_seed() % 2**64
    options |= {"world": world, "seed": seed, "drop_last": loader.drop_last}
    collator = loader.collate_fn
    model = getattr(collator, "model", None)
    numbers, sampler = plan_batches(collator, model, loader.dataset, max_tokens, loader.batch_size, **options)
    if sampler is None:
        return loader, numbers
    sampler.__class__ = _EachPass
    kept = {
        name: value
        for name in inspect.signature(type(loader)).parameters
        if name not in _OF_BATCHES and (value := getattr(loader, name, None)) not in (None, "")
    }
    kept["collate_fn"] = collator_of_quadrat(collator)
    return type(loader)(loader.dataset, batch_sampler=sampler, **kept), numbers


def _require_shuffled(loader: Any) -> None:
    stateful = getattr(sys.modules.get("torchdata.stateful_dataloader"), "StatefulDataLoader", DataLoader)
    if type(loader) not in (DataLoader, stateful):
        raise TypeError(
            f"a {type(loader).__name__} makes batches in its own way: give batch_by_tokens the DataLoader before "
            "accelerator.prepare, or another library, wraps it"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise not_indexed(loader.dataset)
    sampler = loader.sampler
    if isinstance(loader.batch_sampler, TokenBudgetBatchSampler):
        raise ValueError(f"the batches of this loader are planned already: {AGAIN.format('loader')}")
    usual = {(library, name) for library in ("torch", "torchdata") for name in ("RandomSampler", "BatchSampler")}
    if not {_name_of(sampler), _name_of(loader.batch_sampler)} <= usual:
        raise ValueError(
            "the loader does not shuffle (shuffle=True), and the order of its rows would change: "
            "quadrat.batching.by_length keeps the order of results"
        )
    if sampler.replacement or sampler.num_samples != len(loader.dataset):
        raise ValueError("the sampler of the loader draws rows more than once, or some of them: use shuffle=True")


def _name_of(value: Any) -> tuple[str, str]:
    """The library and the name of an object's class: torchdata has samplers of its own."""
    return type(value).__module__.partition(".")[0], type(value).__name__
