"""`SetEpochCallback`: has a Trainer's collator, dataset and stream be where its training is."""

import json
from typing import Any

from transformers import TrainerCallback

from quadrat.batching._epoch import differences
from quadrat.batching.token_budget import TokenBudgetBatchSampler
from quadrat.data._grouped import GroupedDataset
from quadrat.data.batched import BatchedDataset

_PLANS = "SetEpochCallback: plans of type "  # in a checkpoint: for each type, the settings of its plans


class SetEpochCallback(TrainerCallback):
    """Tell a Trainer's dataset and collator which epoch it is, and resume a stream from a checkpoint.

    Calls `set_epoch` of the collator and the training dataset when an epoch of Trainer begins: `rng="philox"` draws
    new masks, and a `BatchedDataset` or `PackedDataset` has the batches or packs of that epoch, on every process. A run
    that is resumed, also in the middle of an epoch, has the masks and batches that it would have had. What batches or
    packs depend on (budget, seed, lengths) is in each checkpoint: with others, Trainer would skip other rows
    than it has seen. `train_samples_per_second` counts the rows of a `BatchedDataset`, not its batches.

    If the training dataset is a stream (`BatchedStream`, `PackedStream`, a `datasets.IterableDataset`, any
    `IterableDataset` of torch), each checkpoint has its state, and that of each worker process, in
    `trainer_state.json`. A run that is resumed from it gets the batches that it would have had, in any epoch, and
    Trainer skips none, whatever `ignore_data_skip` is. Rows are read again only where a stream has no `state_dict`, or
    one that leaves rows out (a shuffle buffer of `datasets`). The number of processes and of `dataloader_num_workers`
    must be as before.

    Args:
        collator: an object with `set_epoch`; by default the collator and the dataset of Trainer's training DataLoader.

    Raises:
        TypeError: when the first epoch begins, if no object has `set_epoch`, and the dataset is not a stream; when a
            batch is made, if a stream's `state_dict` has values that JSON does not keep.
        ValueError: when training is resumed, if a checkpoint's batches or packs are planned in another way, unless
            `ignore_data_skip` has the epoch begin anew; if its state is of another stream or of another number of
            processes or workers; or if there is none, and the stream was read for a second time.
        RuntimeError: when a run that is resumed begins to train, if its loader was read before.

    Examples:
        >>> import quadrat
        >>> rows = [{"input_ids": [5] * length} for length in (5, 3, 8, 2, 6)]
        >>> packs = quadrat.PackedDataset(rows, max_length=8)
        >>> callback = quadrat.SetEpochCallback(packs)  # Trainer(..., callbacks=[callback]) calls the next line
        >>> callback.on_epoch_begin(args=None, state=type("State", (), {"epoch": 2.0}), control=None)
        >>> packs.epoch
        2
    """

    def __init__(self, collator: Any = None) -> None:
        self.collator = collator
        self._next = 0
        self._tracker: Any = None
        self._plans = list[tuple[str, dict[str, Any]]]()  # where the settings of each are in a checkpoint, and they

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin with the first epoch, or where the checkpoint was written."""
        self._next, self._tracker, self._plans, loader = 0, None, [], kwargs.get("train_dataloader")
        if loader is None:
            return
        for plan in (self.collator, getattr(loader, "dataset", None)):
            if isinstance(plan, (TokenBudgetBatchSampler, GroupedDataset)):
                kept = _PLANS + type(plan).__name__, json.loads(json.dumps(plan._settings))
                _require_plan(*kept, args, state)
                self._plans.append(kept)
        from quadrat.integration.resume import STORED, Tracker

        tracker = Tracker.follow(loader, args, state)
        if tracker is not None:
            self._tracker = tracker
            if state.global_step:
                tracker.resume(state.stateful_callbacks.get(STORED))
                self._next = tracker.epoch
            tracker.store()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch before its first batch."""
        # All callbacks forget the plans of the checkpoint before one of them adds those of this run.
        for name in [name for name in state.stateful_callbacks if name.startswith(_PLANS)] if self._plans else ():
            del state.stateful_callbacks[name]
        listeners = [self.collator]
        if self.collator is None:
            loader = kwargs.get("train_dataloader")
            collator = getattr(loader, "collate_fn", None)
            # Trainer's own collator removes columns before it calls the user's.
            listeners = [getattr(collator, "data_collator", collator), getattr(loader, "dataset", None)]
        able = [listener for listener in listeners if hasattr(listener, "set_epoch")]
        if not able and self._tracker is None:
            names = " and ".join(type(listener).__name__ for listener in listeners)
            raise TypeError(f"{names} has no set_epoch: give SetEpochCallback an object that has it")
        # If a dataset has no length, Trainer only estimates the epoch, and it may not change.
        epoch = self._next if self._tracker is not None else max(int(state.epoch or 0), self._next)
        for listener in able:
            # Masks of other collators have no epoch.
            if listener is self.collator or getattr(listener, "rng", "philox") == "philox":
                listener.set_epoch(epoch)
        if self._tracker is not None:
            self._tracker.begin(epoch)
        self._next = epoch + 1

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have checkpoints say how batches are planned."""
        for name, settings in self._plans:
            if settings not in (plans := state.stateful_callbacks.setdefault(name, [])):
                plans.append(settings)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a batch of a stream."""
        if self._tracker is not None:
            self._tracker.step()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a batch of a stream."""
        if self._tracker is not None:
            self._tracker.step()
            self._tracker.step_ends()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have a checkpoint that is written now be of the next epoch, unless training ends within this one."""
        if self._tracker is not None and not control.should_training_stop:
            self._tracker.end()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Count the rows of a `BatchedDataset`, of which Trainer counts the batches."""
        name, dataset = "train_samples_per_second", getattr(kwargs.get("train_dataloader"), "dataset", None)
        if name in (logs or ()) and isinstance(dataset, BatchedDataset):
            (batches,) = dataset._current()
            size = args.train_batch_size if args.max_steps > 0 else 1  # the rows that Trainer counts for a batch
            logs[name] = round(logs[name] * batches.total / len(batches) / size, 3)
            if state.log_history:
                state.log_history[-1][name] = logs[name]

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the states of other processes to a checkpoint."""
        if self._tracker is not None:
            self._tracker.gather()


def _require_plan(name: str, settings: dict[str, Any], args: Any, state: Any) -> None:
    """Raises ValueError if the checkpoint that a run goes on from has none of these settings."""
    if not state.global_step or args.ignore_data_skip:
        return
    stored = state.stateful_callbacks.get(name, ())
    plans = [differences(settings, {**dict.fromkeys(settings), **plan}, "the checkpoint") for plan in stored]
    if differing := min(plans, key=len, default="it was written with other batches, or without this callback"):
        raise ValueError(
            f"the checkpoint's batches are others, and Trainer would skip rows that it has not seen: {differing}. Go "
            "on with what it was written with, or begin its epoch anew with TrainingArguments(ignore_data_skip=True)"
        )
