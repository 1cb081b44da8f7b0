"""`batch_by_tokens`: the training batches of a Trainer or a DataLoader by token budget, in one line."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable
from typing import Any, Literal

from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from quadrat.data.batched import BatchedDataset
from quadrat.input.items import Batch
from quadrat.input.rows import MAIN, Rows
from quadrat.integration.callback import SetEpochCallback
from quadrat.integration.loader_by_tokens import loader_by_tokens
from quadrat.integration.token_batches import AGAIN, collator_of_quadrat, not_indexed, plan_batches
from quadrat.support.wrappers import CollatorWrapper, replaced, suggesting

logger = logging.getLogger("quadrat")


class _Unwrapped(CollatorWrapper):
    """A collator for items that are whole batches."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, features: Any) -> Any:
        whole = len(features) == 1 and isinstance(features[0], (Batch, Rows))
        return self.collator(features[0] if whole else features)


@suggesting
def batch_by_tokens(
    trainer: Trainer | DataLoader[Any],
    max_tokens: int | Literal["auto"] = "auto",
    *,
    lengths: Any = None,
    column: str = MAIN,
    window: int | None = None,
    seed: int | None = None,
    attention: Any = None,
) -> Any:
    """Have a Trainer, or a DataLoader that shuffles, make batches by token budget instead of a constant number of rows.

    Rows of about the same length go together, and each batch has as many of them as `max_tokens` allow, so that little
    is padding; see `TokenBudgetBatchSampler`. The Trainer's training dataset becomes a `BatchedDataset`, of which its
    training loader takes one item, a whole batch, at a time, and it gets a `SetEpochCallback`. Its arguments stay as
    they are, and logs and checkpoints name their batch size. Columns are removed as Trainer removes them. Collators of
    transformers become those of quadrat, and others work as they are. Gradient accumulation, several processes and runs
    that are resumed work. Call it before `trainer.train()`, in each process; later it changes the next training, and a
    warning says so.

    Of a `DataLoader` with `shuffle=True` it makes another one, with its workers, generator and other options: use that
    in its place, and give it to `accelerator.prepare`. Each pass has the batches of the next epoch, or of the one that
    `loader.batch_sampler.set_epoch` was given, as accelerate does.

    Args:
        trainer: a `transformers.Trainer`, or one derived from it, whose training dataset can be indexed by row; or a
            `torch.utils.data.DataLoader` or a `StatefulDataLoader` of torchdata, before accelerate prepares it.
        max_tokens: maximum number of tokens in a batch of one process, padding included. "auto": as many as keep the
            number of steps, to 5 %: about `per_device_train_batch_size` times the mean length, and at least those of
            the longest row. If no number keeps the steps, the number of rows in a batch is limited too. If no batch has
            padding, because all rows have one length, a batch has one row, or the collator joins rows
            (`padding_free=True`), training batches do not change.
        lengths: `[rows]` integers, by default the lengths of `column`.
        column: the column whose lengths count.
        window, seed: as for `TokenBudgetBatchSampler`; the seed is by default `args.data_seed` or `args.seed`. For a
            loader it is that of its generator, or of torch; with several processes, 0.
        attention: for batches that take the same time, not only the same tokens, see `TokenBudgetBatchSampler`; "auto":
            `AttentionCost.of` the Trainer's model.

    Returns:
        The numbers of steps and of rows in a step, before and now, which `print` shows in some sentences; for a loader,
        the loader to use, which is the same one where a budget would save nothing.

    Raises:
        TypeError: for something that is neither a Trainer nor a plain DataLoader, a dataset that cannot be indexed by
            row, and rows without `column`.
        ValueError: without a training dataset, for a loader that does not shuffle, for a Trainer that chooses rows in
            its own way or has several GPUs in one process, for a second call, for a row above `max_tokens`, and for
            more or fewer `lengths` than rows.

    Examples:
        >>> import quadrat, tempfile, torch
        >>> from transformers import Trainer, TrainingArguments
        >>> rows = [{"input_ids": [5] * (1 + 7 * i % 50)} for i in range(64)]
        >>> model, args = torch.nn.Linear(1, 1), TrainingArguments(tempfile.mkdtemp(), report_to="none")
        >>> def pad(features):
        ...     return {"input_ids": quadrat.pad([row["input_ids"] for row in features], return_tensors="pt")}
        >>> trainer = Trainer(model, args, train_dataset=rows, data_collator=pad)
        >>> batches = quadrat.batch_by_tokens(trainer)
        >>> batches.max_tokens, batches.steps_before, batches.steps
        (255, 8, 8)
        >>> loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, collate_fn=pad)
        >>> loader = quadrat.batch_by_tokens(loader, 256)
        >>> len(loader), sum(len(batch["input_ids"]) for batch in loader)
        (8, 64)
    """
    options: dict[str, Any] = {"lengths": lengths, "column": column, "window": window, "attention": attention}
    if isinstance(trainer, DataLoader):
        loader, numbers = loader_by_tokens(trainer, max_tokens, seed=seed, **options)
        logger.info("batch_by_tokens: %s", numbers)
        return loader
    require_usual_training(trainer)
    args, dataset, collator = trainer.args, trainer.train_dataset, trainer.data_collator
    options["seed"] = next(number for number in (seed, args.data_seed, args.seed) if number is not None)
    options |= {"drop_last": args.dataloader_drop_last, "accumulated": args.gradient_accumulation_steps}
    options |= {"size": args.per_device_train_batch_size, "world": args.world_size}
    numbers, sampler = plan_batches(collator, trainer.model, dataset, max_tokens, **options)
    if sampler is not None:
        _use(trainer, BatchedDataset(_without_unused(trainer, dataset), sampler))
    logger.info("batch_by_tokens: %s", numbers)
    return numbers


def _use(trainer: Any, batches: Any) -> None:
    collator = collator_of_quadrat(trainer.data_collator)
    # Those of others, subclasses of quadrat's among them, may look at their features first.
    if not type(collator).__module__.startswith("quadrat."):
        collator = _Unwrapped(collator)
    trainer.train_dataset, trainer.data_collator = batches, collator
    trainer.get_train_dataloader = _loader_of_batches(trainer)
    trainer.callback_handler.callbacks.insert(0, SetEpochCallback())  # those that show what is logged come after it


def _loader_of_batches(trainer: Any) -> Callable[[], Any]:
    """A Trainer's `get_train_dataloader` for a dataset of whole batches, in random order. Its arguments stay."""
    get_loader, batches = type(trainer).get_train_dataloader, trainer.train_dataset
    trainer_of = weakref.ref(trainer)  # a Trainer that refers to itself would keep its workers until the script ends

    def get_train_dataloader() -> Any:
        trainer: Any = trainer_of()
        if trainer.train_dataset is not batches:
            return get_loader(trainer)
        args = copy.copy(trainer.args)
        args.per_device_train_batch_size = 1
        if hasattr(args, "train_sampling_strategy"):
            args.train_sampling_strategy = "random"
        else:
            args.group_by_length = False
        with replaced((trainer, "args", args), (trainer, "_train_batch_size", 1)):
            return get_loader(trainer)

    return get_train_dataloader


def require_usual_training(trainer: Any) -> None:
    """Raises TypeError or ValueError for a Trainer whose training batches cannot be chosen."""
    if not isinstance(trainer, Trainer):
        raise TypeError(f"expected a transformers.Trainer or a DataLoader, not {type(trainer).__name__}")
    dataset = trainer.train_dataset
    if dataset is None:
        raise ValueError("the Trainer has no train_dataset")
    if isinstance(dataset, BatchedDataset):
        raise ValueError(f"the training batches of this Trainer are planned already: {AGAIN.format('Trainer')}")
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise not_indexed(dataset)
    cls = type(trainer)
    for name in ("get_train_dataloader", "_get_train_sampler"):
        is_usual = getattr(cls, name) is getattr(Trainer, name) and vars(trainer).get(name) is None
        if not is_usual and (name == "get_train_dataloader" or not _samples_as_usual(trainer)):
            raise ValueError(f"{cls.__name__} chooses rows in its own way: it has a {name} of its own")
    if trainer.is_in_train or trainer.state.global_step:
        logger.warning("batch_by_tokens: the Trainer has begun to train before: only its next training changes")
    if trainer.args.n_gpu > 1:
        raise ValueError(f"{trainer.args.n_gpu} GPUs in one process share each batch: start one per GPU, with torchrun")


def _samples_as_usual(trainer: Any) -> bool:
    """True if a Trainer's own sampler is of the kind that Trainer makes, with as many rows."""
    sampler, usual = trainer._get_train_sampler(), Trainer._get_train_sampler(trainer)
    return type(sampler) is type(usual) and len(sampler) == len(usual) and not getattr(sampler, "replacement", False)


def _without_unused(trainer: Any, dataset: Any) -> Any:
    if hasattr(dataset, "column_names") and hasattr(dataset, "remove_columns"):
        return trainer._remove_unused_columns(dataset, description="training")
    if not trainer.args.remove_unused_columns:
        return dataset
    collator = trainer._get_collator_with_removed_columns(lambda rows: rows, description="training")
    return _Selected(dataset, collator)


class _Selected:
    """A dataset whose rows go through a function of several rows."""

    def __init__(self, dataset: Any, function: Any) -> None:
        self.dataset, self.function = dataset, function

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.function([self.dataset[index]])[0]
