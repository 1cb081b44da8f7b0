"""`batch_by_tokens`: a Trainer's training batches by token budget, in one line."""

from __future__ import annotations

import logging
import math
from typing import Any, Literal, NamedTuple

from torch.utils.data import IterableDataset
from transformers import Trainer

from quadrat.batching.budget import joins_rows, require_rows
from quadrat.batching.lengths import lengths_of
from quadrat.batching.shapes import ShapePlan
from quadrat.batching.token_budget import TokenBudgetBatchSampler, usual_sampler
from quadrat.collators.fixed_shapes import FixedShapes
from quadrat.data.batched import BatchedDataset
from quadrat.input.items import Batch
from quadrat.input.rows import MAIN, Rows
from quadrat.installed.originals import ORIGINALS
from quadrat.integration.adopt import from_transformers
from quadrat.integration.callback import SetEpochCallback
from quadrat.integration.evaluate_by_length import evaluate_by_length, require_usual
from quadrat.integration.rows import has_choices, row_lengths, stored_width, trimming
from quadrat.support.arrays import IntArray

logger = logging.getLogger("quadrat")


class TokenBatches(NamedTuple):
    """The result of `batch_by_tokens`; as a string, one to three sentences."""

    max_tokens: int  # of a batch, padding included
    rows: int  # of the dataset
    steps_before: int  # optimizer steps of an epoch, with batches of a constant number of rows
    steps: int  # those of an epoch now
    rows_before: int  # of a step, on all processes
    max_rows: int | None  # of a batch; None: as many as `max_tokens` allow
    alike: bool  # whether all rows have one width
    changed: bool  # False: batches are as before, because a budget would save nothing
    stored: int = 0  # the tokens to which rows are stored padded, and batches computed; 0 if they are not

    def __str__(self) -> str:
        """The numbers in words."""
        limit = "" if self.max_rows is None else f" and {self.max_rows:,} rows"
        made = (
            f"batches of at most {self.max_tokens:,} tokens{limit}: {self.steps:,} steps an epoch instead of "
            f"{self.steps_before:,}. A step has {self.rows / self.steps:,.1f} rows on average instead of "
            f"{self.rows_before:,}{'' if self.alike else ': few long or many short ones'}."
        )
        if not self.changed:
            why = "all rows have one width" if self.alike else "a batch has one row"
            made = f"batches are as before: {why}, so a token budget would save nothing."
        stored = f" Rows are stored padded to {self.stored:,} tokens, and computed so: map without padding, or trim "
        return made + f"{stored}(trim=True, quadrat run --trim)." * (self.stored > 0)


class _Unwrapped:
    """A collator for items that are whole batches; in all else the one that it calls."""

    def __init__(self, collator: Any, whole: Any) -> None:
        self.collator, self._whole = collator, whole

    def __call__(self, features: Any) -> Any:
        whole = len(features) == 1 and isinstance(features[0], (Batch, Rows))
        return self._whole(features[0]) if whole else self.collator(features)

    def __getattr__(self, name: str) -> Any:
        if name == "collator":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.collator, name)


def batch_by_tokens(
    trainer: Any,
    max_tokens: int | Literal["auto"] = "auto",
    *,
    lengths: Any = None,
    column: str = MAIN,
    window: int | None = None,
    seed: int | None = None,
    evaluation: bool = False,
    shapes: int | ShapePlan | None = None,
    trim: bool = False,
) -> TokenBatches:
    """Have a Trainer make its training batches by token budget instead of a constant number of rows.

    Rows of about the same length go together, and each batch has as many of them as `max_tokens` allow, so that little
    is padding; see `TokenBudgetBatchSampler`. The training dataset becomes a `BatchedDataset`, the batch size 1 (one
    item, a whole batch), and a `SetEpochCallback` is added. Columns are removed as Trainer removes them. Collators of
    transformers become those of quadrat, and others work as they are.

    Works with gradient accumulation, several processes, and runs that are resumed. Call it before `trainer.train()`,
    in each process.

    Args:
        trainer: a `transformers.Trainer`, or one derived from it, whose training dataset can be indexed by row.
        max_tokens: maximum number of tokens in a batch of one process, padding included. "auto": as many as keep the
            number of steps, to 5 %: about `per_device_train_batch_size` times the mean length, and at least those of
            the longest row. If no number keeps the steps, the number of rows in a batch is limited too. If no batch has
            padding, because all rows have one length or a batch has one row, training batches stay as they are.
        lengths: `[rows]` integers, by default the lengths of `column`.
        column: the column whose lengths count.
        window, seed: as for `TokenBudgetBatchSampler`; the seed is by default `args.data_seed` or `args.seed`.
        evaluation: whether `evaluate` and `predict` put rows of similar length together, too: as many in a batch as
            before, the longest first. Predictions, labels and metrics are those of the dataset's order, and the loss
            is the mean over rows, as before. If a batch's loss is a mean over tokens, it depends on which rows are
            together, so that the mean over rows changes. What predictions hold at padding changes, and with it metrics
            that read this, such as that of run_qa.py; a warning says so if labels have no value for each token.
        shapes: fill training batches to a few shapes, for `torch.compile`: the number of shapes, or a plan of
            `quadrat.batching.plan_shapes`.
        trim: for rows that were stored padded: have training batches without the columns that `attention_mask` masks in
            every row, as `DataCollatorWithPadding(trim=True)` does, for any collator; and count rows without them.

    Returns:
        The numbers of steps and of rows in a step, before and now, which `print` shows in two sentences.

    Raises:
        TypeError: for something that is not a Trainer, a dataset that cannot be indexed by row, and rows without
            `column`.
        ValueError: without a training dataset, for a Trainer that chooses rows in its own way or has several GPUs in
            one process, for a second call, and for a row above `max_tokens`; with `evaluation`, for a Trainer that
            evaluates in its own way.

    Examples:
        >>> import quadrat, tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
        >>> rows = [{"input_ids": [5] * (1 + 7 * i % 50), "labels": 0} for i in range(64)]
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=64, **sizes))
        >>> args = TrainingArguments(tempfile.mkdtemp(), report_to="none", disable_tqdm=True, save_strategy="no")
        >>> def pad(features):
        ...     columns = {name: [feature[name] for feature in features] for name in features[0]}
        ...     return {"input_ids": quadrat.pad(columns["input_ids"], return_tensors="pt")}
        >>> trainer = Trainer(model, args, train_dataset=rows, data_collator=pad)
        >>> batches = quadrat.batch_by_tokens(trainer)
        >>> batches.max_tokens, batches.steps_before, batches.steps
        (255, 8, 8)
    """
    _check(trainer)
    args, dataset, collator = trainer.args, trainer.train_dataset, trainer.data_collator
    trim = trim or getattr(collator, "trim", False)
    if trim and joins_rows(collator):
        raise ValueError(
            "a collator that joins rows has no columns of padding to trim: map the dataset without padding"
        )
    found = row_lengths(trainer, dataset, column, trim=trim) if lengths is None else lengths_of(lengths)
    require_rows(found, "batch")
    size, world, accumulated = args.per_device_train_batch_size, args.world_size, args.gradient_accumulation_steps
    multiple = getattr(collator, "pad_to_multiple_of", None) or (8 if isinstance(shapes, int) else 1)
    choices = has_choices(trainer) and lengths is None
    if choices:
        if shapes is not None:
            raise ValueError("batches of multiple choice cannot be filled to a few shapes: leave shapes out")
        multiple *= len(dataset[0][column])
    narrow, wide = (-(-max(int(one), 1) // multiple) * multiple for one in (found.min(), found.max()))
    before = now = math.ceil(math.ceil(len(found) / size / world) / accumulated)
    changed = trim or max_tokens != "auto" or shapes is not None or (narrow < wide and size > 1)
    tokens, rows = size * wide, size
    if changed:
        options: dict[str, Any] = {
            "padded": not joins_rows(collator),
            "multiple_of": multiple,
            "window": window,
            "world_size": world,
            "rank": None,
            "seed": next(one for one in (seed, args.data_seed, args.seed) if one is not None),
            "shapes": shapes,
        }
        sampler = _sampler(found, args, max_tokens, options)
        batches = BatchedDataset(_without_unused(trainer, dataset), sampler)
        tokens, rows, now = sampler.max_tokens, sampler.max_batch_size, math.ceil(len(batches) // world / accumulated)
    if evaluation:
        evaluate_by_length(trainer, column)
    if changed:
        _use(trainer, batches, sampler.shapes, trim=trim)
    stored = 0 if trim or lengths is not None else stored_width(dataset, found, column, choices=choices)
    numbers = tokens, len(found), before, now, size * world * accumulated, rows
    made = TokenBatches(*numbers, alike=narrow == wide, changed=changed, stored=stored)
    logger.info("batch_by_tokens: %s", made)
    return made


def _sampler(lengths: IntArray, args: Any, max_tokens: Any, options: dict[str, Any]) -> TokenBudgetBatchSampler:
    shapes = options["shapes"]
    if max_tokens == "auto" and not isinstance(shapes, ShapePlan):
        size, accumulated = args.per_device_train_batch_size, args.gradient_accumulation_steps
        return usual_sampler(lengths, size, batches_of_a_step=accumulated, **options)
    tokens = shapes.max_tokens if max_tokens == "auto" else max_tokens
    longest, multiple = int(lengths.max()), options["multiple_of"]
    if isinstance(tokens, int) and 0 < tokens < (least := -(-longest // multiple) * multiple):
        row = f"row {int(lengths.argmax())} has {longest} tokens"
        rounded = f" in multiples of {multiple}" if longest <= tokens else ""
        raise ValueError(f"{row}, more than max_tokens={tokens} allow{rounded}; give {least} or more")
    return TokenBudgetBatchSampler(lengths, tokens, **options)


def _use(trainer: Any, batches: BatchedDataset, shapes: ShapePlan | None, *, trim: bool) -> None:
    """Has a Trainer train on these batches."""
    args, collator = trainer.args, trainer.data_collator
    if type(collator) in ORIGINALS.values():
        collator = from_transformers(collator)
    whole = trimming(trainer, collator) if trim else collator
    whole = whole if shapes is None else FixedShapes(whole, shapes)
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
    trainer.add_callback(SetEpochCallback())


def _check(trainer: Any) -> None:
    if not isinstance(trainer, Trainer):
        raise TypeError(f"expected a transformers.Trainer, not {type(trainer).__name__}")
    dataset = trainer.train_dataset
    if dataset is None:
        raise ValueError("the Trainer has no train_dataset")
    if isinstance(dataset, BatchedDataset):
        raise ValueError("the batches of this Trainer are made by a sampler already")
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"{type(dataset).__name__} cannot be indexed by row, so its rows cannot be chosen by length: "
            "use quadrat.BatchedStream"
        )
    require_usual(trainer, ["get_train_dataloader"], "chooses rows")
    try:
        require_usual(trainer, ["_get_train_sampler"], "chooses rows")
    except ValueError:
        if not _chooses_as_usual(trainer):
            raise
    if trainer.args.n_gpu > 1:
        raise ValueError(f"{trainer.args.n_gpu} GPUs in one process share each batch: start one per GPU, with torchrun")


def _chooses_as_usual(trainer: Any) -> bool:
    """Whether a `_get_train_sampler` of a subclass returns what Trainer's does, as many rows of the same kind."""
    own, usual = trainer._get_train_sampler(), Trainer._get_train_sampler(trainer)
    return type(own) is type(usual) and len(own) == len(usual) and not getattr(own, "replacement", False)


def _without_unused(trainer: Any, dataset: Any) -> Any:
    """The dataset without the columns that Trainer removes."""
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
