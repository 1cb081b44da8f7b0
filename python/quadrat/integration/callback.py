"""`SetEpochCallback`: tells a collator which epoch Trainer is in."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class SetEpochCallback(TrainerCallback):
    """Tells the collator and the training dataset when an epoch begins.

    With it, `rng="philox"` masks anew, and a `BatchedDataset` or `PackedDataset` has the batches or packs of that
    epoch, on every process. A run that is resumed, half-way through an epoch too, goes on with the masks and batches it
    would have had.

    Args:
        collator: what has `set_epoch`; by default the collator and the dataset of Trainer's training DataLoader,
            whichever have it.

    Raises:
        TypeError: when training begins, if none has a `set_epoch`.
    """

    def __init__(self, collator: Any = None) -> None:
        self.collator = collator
        self._next = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forgets an earlier run."""
        self._next = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the epoch before its first batch."""
        told = [self.collator]
        if self.collator is None:
            loader = kwargs.get("train_dataloader")
            collator = getattr(loader, "collate_fn", None)
            # Trainer's own collator removes columns before it calls the user's.
            told = [getattr(collator, "data_collator", collator), getattr(loader, "dataset", None)]
        able = [one for one in told if hasattr(one, "set_epoch")]
        if not able:
            names = " and ".join(type(one).__name__ for one in told)
            raise TypeError(f"{names} has no set_epoch: give SetEpochCallback what has one")
        # Where a data set has no length, Trainer's epoch is a guess that may stand still.
        epoch = max(int(state.epoch or 0), self._next)
        for one in able:
            one.set_epoch(epoch)
        self._next = epoch + 1
