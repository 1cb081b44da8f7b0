"""`SetEpochCallback`: sets the epoch of a collator or dataset when an epoch of Trainer begins."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class SetEpochCallback(TrainerCallback):
    """Call `set_epoch` of the collator and the training dataset when an epoch of Trainer begins.

    With it, `rng="philox"` draws new masks in each epoch, and a `BatchedDataset` or `PackedDataset` has the batches or
    packs of that epoch, on every process. A run that is resumed, also in the middle of an epoch, has the masks and
    batches that it would have had.

    Args:
        collator: an object with `set_epoch`; by default the collator and the dataset of Trainer's training DataLoader,
            if they have it.

    Raises:
        TypeError: when the first epoch begins, if no object has `set_epoch`.

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

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reset the epoch count of an earlier run."""
        self._next = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch before its first batch."""
        told = [self.collator]
        if self.collator is None:
            loader = kwargs.get("train_dataloader")
            collator = getattr(loader, "collate_fn", None)
            # Trainer's own collator removes columns before it calls the user's.
            told = [getattr(collator, "data_collator", collator), getattr(loader, "dataset", None)]
        able = [one for one in told if hasattr(one, "set_epoch")]
        if not able:
            names = " and ".join(type(one).__name__ for one in told)
            raise TypeError(f"{names} has no set_epoch: give SetEpochCallback an object that has it")
        # If a dataset has no length, Trainer only estimates the epoch, and it may not change.
        epoch = max(int(state.epoch or 0), self._next)
        for one in able:
            if one is self.collator or getattr(one, "rng", "philox") == "philox":  # masks of others have no epoch
                one.set_epoch(epoch)
        self._next = epoch + 1
