"""`batch_by_tokens`: the training batches of a Trainer or a DataLoader by token budget, in one line."""

from __future__ import annotations

import logging
from typing import Any, Literal

from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from quadrat.batching.shapes import ShapePlan
from quadrat.data.batched import BatchedDataset
from quadrat.input.items import Batch
from quadrat.input.rows import MAIN, Rows
from quadrat.integration.callback import SetEpochCallback
from quadrat.integration.evaluate_by_length import AGAIN, evaluate_by_length, require_usual
from quadrat.integration.rows import trainer_of_texts
from quadrat.integration.token_batches import each_pass, filled, loader_by_tokens, not_indexed, plan_batches
from quadrat.support.around import Around
from quadrat.support.extras import ONLINE_TRAINERS, derives_from

logger = logging.getLogger("quadrat")


class _Unwrapped(Around):
    """A collator for items that are whole batches."""

    def __init__(self, collator: Any, whole: Any) -> None:
        self.collator, self._whole = collator, whole

    def __call__(self, features: Any) -> Any:
        whole = len(features) == 1 and isinstance(features[0], (Batch, Rows))
        return self._whole(features[0]) if whole else self.collator(features)


def batch_by_tokens(
    trainer: Trainer | DataLoader[Any],
    max_tokens: int | Literal["auto"] = "auto",
    *,
    lengths: Any = None,
    column: str = MAIN,
    window: int | None = None,
    seed: int | None = None,
    evaluation: bool = False,
    shapes: int | ShapePlan | None = None,
    trim: bool = False,
    attention: Any = None,
) -> Any:
    """Have a Trainer, or a DataLoader that shuffles, make batches by token budget instead of a constant number of rows.

    Rows of about the same length go together, and each batch has as many of them as `max_tokens` allow, so that little
    is padding; see `TokenBudgetBatchSampler`. The training dataset becomes a `BatchedDataset`, the batch size 1 (one
    item, a whole batch), and a `SetEpochCallback` is added. Columns are removed as Trainer removes them. Collators of
    transformers become those of quadrat, and others work as they are. Gradient accumulation, several processes and runs
    that are resumed work. Call it before `trainer.train()`, in each process.

    Rows of a trainer of sentence-transformers are texts: they are tokenised once, and a row counts as the tokens of all
    its texts. Its dataset, collator and batch size stay, and it gets a batch sampler. One that promises which rows are
    in a batch (no duplicates, labels) is kept, with a ValueError.

    A `GRPOTrainer` or an `RLOOTrainer` of TRL generates its rows. Its passes are cut, see `quadrat.trl.trim`, and rows
    of similar length share the micro-batches of an optimizer step: as many micro-batches as before, none with more
    tokens than the largest before. If the loss is divided by the tokens of a generation batch (dapo, cispo, vespo), a
    micro-batch has any number of rows, otherwise as many as before. Losses and gradients of a step stay, up to
    rounding; metrics that are means over micro-batches change. Rows stay in their micro-batches, and the result says
    why, where that would change what is trained. No other argument is taken.

    Of a `DataLoader` with `shuffle=True` it makes another one, with its workers, generator and other options: use that
    in its place, and give it to `accelerator.prepare`. Each pass has the batches of the next epoch, or of the one that
    `loader.batch_sampler.set_epoch` was given, as accelerate does.

    Args:
        trainer: a `transformers.Trainer`, or one derived from it, whose training dataset can be indexed by row; or a
            `torch.utils.data.DataLoader` or a `StatefulDataLoader` of torchdata, before accelerate prepares it.
        max_tokens: maximum number of tokens in a batch of one process, padding included. "auto": as many as keep the
            number of steps, to 5 %: about `per_device_train_batch_size` times the mean length, and at least those of
            the longest row. If no number keeps the steps, the number of rows in a batch is limited too. If no batch has
            padding, because all rows have one length or a batch has one row, training batches do not change.
        lengths: `[rows]` integers, by default the lengths of `column`.
        column: the column whose lengths count.
        window, seed: as for `TokenBudgetBatchSampler`; the seed is by default `args.data_seed` or `args.seed`. For a
            loader it is that of its generator, or of torch; with several processes, 0.
        evaluation: whether `evaluate` and `predict` put rows of similar length together, too: as many in a batch as
            before, the longest first. Predictions and labels keep the dataset's order, and the loss is the mean over
            rows, as before; it changes if a batch's loss is a mean over tokens. What predictions hold at padding
            changes, and with it metrics that read this, such as that of run_qa.py; a warning says so if labels have no
            value for each token.
        shapes: fill training batches to a few shapes, for `torch.compile`: the number of shapes, or a plan of
            `quadrat.batching.plan_shapes`.
        trim: for rows that were stored padded: trim training batches as `DataCollatorWithPadding(trim=True)` does, for
            any collator; and count rows without what is trimmed.
        attention: for batches that take the same time, not only the same tokens, see `TokenBudgetBatchSampler`; "auto":
            `AttentionCost.of` the Trainer's model.

    Returns:
        The numbers of steps and of rows in a step, before and now, which `print` shows in two sentences; for a loader,
        the loader to use, which is the same one where a budget would save nothing; for an online trainer of TRL, what
        is done, which `print` shows.

    Raises:
        TypeError: for something that is neither a Trainer nor a plain DataLoader, a dataset that cannot be indexed by
            row, and rows without `column`.
        ValueError: without a training dataset, for a loader that does not shuffle, for a Trainer that chooses rows in
            its own way or has several GPUs in one process, for a batch sampler that promises which rows are in a
            batch, for a second call, and for a row above `max_tokens`; with `evaluation`, for a Trainer that evaluates
            in its own way.

    Examples:
        >>> import quadrat, tempfile, torch
        >>> from transformers import Trainer, TrainingArguments
        >>> rows = [{"input_ids": [5] * (1 + 7 * i % 50)} for i in range(64)]
        >>> model, args = torch.nn.Linear(1, 1), TrainingArguments(tempfile.mkdtemp(), report_to="none")
        >>> def pad(features):
        ...     return {"input_ids": quadrat.pad([one["input_ids"] for one in features], return_tensors="pt")}
        >>> trainer = Trainer(model, args, train_dataset=rows, data_collator=pad)
        >>> batches = quadrat.batch_by_tokens(trainer)
        >>> batches.max_tokens, batches.steps_before, batches.steps
        (255, 8, 8)
        >>> loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, collate_fn=pad)
        >>> loader = quadrat.batch_by_tokens(loader, 256)
        >>> len(loader), sum(len(batch["input_ids"]) for batch in loader)
        (8, 64)
    """
    given: dict[str, Any] = {"lengths": lengths, "column": column, "window": window, "shapes": shapes}
    given |= {"trim": trim, "attention": attention}
    if isinstance(trainer, DataLoader):
        if evaluation:
            raise ValueError("a loader has no evaluation: quadrat.batching.map_by_length computes rows by length")
        loader, made = loader_by_tokens(trainer, max_tokens, seed=seed, **given)
        logger.info("batch_by_tokens: %s", made)
        return loader
    if derives_from(type(trainer), "trl", ONLINE_TRAINERS):
        return _online(trainer, max_tokens, given | {"evaluation": evaluation or None, "trim": None, "seed": seed})
    require_usual_training(trainer)
    args, dataset = trainer.args, trainer.train_dataset
    given["seed"] = next(one for one in (seed, args.data_seed, args.seed) if one is not None)
    given |= {"drop_last": args.dataloader_drop_last, "accumulated": args.gradient_accumulation_steps}
    size = args.per_device_train_batch_size
    made, sampler = plan_batches(trainer, dataset, max_tokens, size, world=args.world_size, **given)
    texts = trainer_of_texts(trainer) is not None
    batches = None if sampler is None or texts else BatchedDataset(_without_unused(trainer, dataset), sampler)
    if evaluation:
        evaluate_by_length(trainer, column)
    if sampler is not None and texts:
        _sample(trainer, each_pass(sampler))
    elif sampler is not None:
        _use(trainer, batches, sampler.shapes, trim=trim)
    logger.info("batch_by_tokens: %s", made)
    return made


def _online(trainer: Any, max_tokens: Any, given: dict[str, Any]) -> Any:
    from quadrat.trl.micro_batches import batch_online

    names = [name for name, value in given.items() if value is not None and (name, value) != ("column", MAIN)]
    if max_tokens != "auto" or names:
        raise ValueError(
            f"{', '.join(names) or 'max_tokens'}: {type(trainer).__name__} generates its rows, and their micro-batches "
            "have at most as many tokens as before: give the trainer alone"
        )
    return batch_online(trainer)


def _use(trainer: Any, batches: Any, shapes: ShapePlan | None, *, trim: bool) -> None:
    args = trainer.args
    collator, whole = filled(trainer, shapes, trim=trim)
    # Those of others, subclasses of quadrat's among them, may look at their features first.
    if whole is not collator or not type(collator).__module__.startswith("quadrat."):
        collator = _Unwrapped(collator, whole)
    trainer.train_dataset, trainer.data_collator = batches, collator
    args.per_device_train_batch_size = trainer._train_batch_size = 1
    # Batches come in random order: rows are grouped by length already.
    if hasattr(args, "train_sampling_strategy"):
        args.train_sampling_strategy = "random"
    elif args.group_by_length:
        args.group_by_length = False
    trainer.callback_handler.callbacks.insert(0, SetEpochCallback())  # those that show what is logged come after it


def _sample(trainer: Any, sampler: Any) -> None:
    """Has a Trainer of sentence-transformers train on the batches of this sampler."""
    usual, train_dataset, trainer._quadrat_sampler = trainer.get_batch_sampler, trainer.train_dataset, sampler

    def get_batch_sampler(dataset: Any, *args: Any, **options: Any) -> Any:
        return sampler if dataset is train_dataset else usual(dataset, *args, **options)

    trainer.get_batch_sampler = get_batch_sampler
    trainer.add_callback(SetEpochCallback(sampler))


def require_usual_training(trainer: Any) -> None:
    """Raises TypeError or ValueError for a Trainer whose training batches cannot be chosen."""
    if not isinstance(trainer, Trainer):
        raise TypeError(f"expected a transformers.Trainer or a DataLoader, not {type(trainer).__name__}")
    dataset = trainer.train_dataset
    if dataset is None:
        raise ValueError("the Trainer has no train_dataset")
    if isinstance(dataset, BatchedDataset) or getattr(trainer, "_quadrat_sampler", None) is not None:
        raise ValueError(f"the training batches of this Trainer are planned already: {AGAIN.format('Trainer')}")
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise not_indexed(dataset)
    if (texts := trainer_of_texts(trainer)) is not None:
        require_usual(trainer, ["get_train_dataloader", "get_batch_sampler"], "chooses rows", texts)
        if isinstance(dataset, dict):
            raise ValueError("the train_dataset has several datasets, and each batch has rows of one: its batches stay")
        chosen = getattr(trainer.args.batch_sampler, "value", trainer.args.batch_sampler)
        if chosen != "batch_sampler":
            raise ValueError(f"batch_sampler={chosen!r} promises which rows a batch has together: its batches stay")
    else:
        require_usual(trainer, ["get_train_dataloader"], "chooses rows")
        try:
            require_usual(trainer, ["_get_train_sampler"], "chooses rows")
        except ValueError:  # for one that returns what Trainer's does, as many rows of the same kind
            own, usual = trainer._get_train_sampler(), Trainer._get_train_sampler(trainer)
            if type(own) is not type(usual) or len(own) != len(usual) or getattr(own, "replacement", False):
                raise
    if trainer.args.n_gpu > 1:
        raise ValueError(f"{trainer.args.n_gpu} GPUs in one process share each batch: start one per GPU, with torchrun")


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
