"""`SetEpochCallback`: tells a collator which epoch Trainer is in."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class SetEpochCallback(TrainerCallback):
    """Calls `set_epoch` of the collator when an epoch begins, so that `rng="philox"` masks anew.

    A run that is resumed, half-way through an epoch too, goes on with the masks it would have had.

    Args:
        collator: what has `set_epoch`; by default the collator of Trainer's training DataLoader.

    Raises:
        TypeError: when training begins, if that has no `set_epoch`.
    """

    def __init__(self, collator: Any = None) -> None:
        self.collator = collator
        self._next = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forgets an earlier run."""
        self._next = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the collator the epoch before its first batch."""
        collator = self.collator
        if collator is None:
            collator = getattr(kwargs.get("train_dataloader"), "collate_fn", None)
            collator = getattr(collator, "data_collator", collator)  # Trainer's, which removes columns before
        if not hasattr(collator, "set_epoch"):
            raise TypeError(f"{type(collator).__name__} has no set_epoch: give SetEpochCallback the collator")
        # Where a data set has no length, Trainer's epoch is a guess that may stand still.
        epoch = max(int(state.epoch or 0), self._next)
        collator.set_epoch(epoch)
        self._next = epoch + 1
