"""`rng="philox"`: its options, and batches outside the fast path, whose masking must know where each row lies."""

import itertools
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from quadrat.input.rows import plain
from quadrat.masking.vocabulary import length_of
from quadrat.ops import _philox as philox
from quadrat.ops.mask_tokens import Marks, mask_places
from quadrat.support.tensors import is_tensor
from quadrat.support.wrappers import calling_trainer


def check(collator: Any) -> None:
    """Raises ValueError or TypeError for options that do not go together."""
    if collator.rng not in ("torch", "philox"):
        raise ValueError(f"rng must be 'torch' or 'philox', not {collator.rng!r}")
    if collator.row_key is not None and not isinstance(collator.row_key, str):
        raise TypeError(f"row_key must be the name of a column, not {collator.row_key!r}")
    if collator.rng == "philox":
        philox.seed_of(collator.seed)
    elif collator.row_key is not None:
        raise ValueError('row_key is for rng="philox"')


def key_column(collator: Any, names: Any) -> int:
    """Which column has the row keys; -1 where they come from the tokens. Raises ValueError."""
    if collator.row_key is None:
        return -1
    if collator.row_key not in names:
        raise ValueError(
            f"row_key={collator.row_key!r}: the features have no such column, but {list(names)}; Trainer removes "
            "columns the model does not take, unless it is told remove_unused_columns=False"
        )
    return list(names).index(collator.row_key)


def plain_call(collator: Any, reference: Any) -> Callable[[Any], Any]:
    """Pads as `reference` does, its method bound to the collator, and masks by counter."""

    def collate(features: Any) -> Any:
        view, rows = view_of(collator, features, flat=False)
        return types.MethodType(reference.__func__, view)(rows)

    return collate


def view_of(collator: Any, features: Any, *, flat: bool) -> tuple[Any, list[Any]]:
    """A view of the collator that knows the rows of these features, and the features without their keys."""
    rows = list(plain(features))
    named = bool(rows) and isinstance(rows[0], Mapping)
    key_column(collator, rows[0] if named else ())
    keys = None if collator.row_key is None else [row[collator.row_key] for row in rows]
    if keys is not None:
        rows = [{name: value for name, value in row.items() if name != collator.row_key} for row in rows]
        keys = [key.item() if hasattr(key, "item") else key for key in keys]
    view = object.__new__(type(collator))
    lengths = [len(row.get("input_ids", ()) if named else row) for row in rows]  # without, the reference says what is
    batch = np.array(lengths, np.int64), keys, collator.seed, flat
    # What masking must know besides the ids; and no seed, of which the reference would make a generator.
    vars(view).update(vars(collator), seed=None, _quadrat_batch=batch)
    return view, rows


def mask_batch(collator: Any, inputs: Any, special: Any, offset_mapping: Any) -> tuple[Any, Any]:
    """(ids, labels) of a padded or flat batch, `[rows, width]`, whose rows the collator knows; else a ValueError."""
    batch = vars(collator).get("_quadrat_batch")
    if batch is None:
        raise ValueError(
            'rng="philox" must know where each row begins and ends: call the collator with features, or '
            'quadrat.mask_tokens(..., rng="philox", lengths=...)'
        )
    lengths, keys, seed, flat = batch
    tokenizer = collator.tokenizer
    if collator.whole_word_mask and offset_mapping is None:
        raise ValueError("whole_word_mask needs a column offset_mapping or word_ids")
    if special is None:  # as the reference asks; padding is in no row
        special = np.array(
            [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in inputs.tolist()],
            np.int64,
        ).reshape(tuple(inputs.shape))
        if is_tensor(inputs) and inputs.is_cuda:
            special = inputs.new_tensor(special)
    probabilities = collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob
    mask_id, size = tokenizer.convert_tokens_to_ids(tokenizer.mask_token), length_of(tokenizer)
    options = philox.PhiloxOptions(philox.seed_of(seed), collator.epoch, *probabilities, mask_id, size)
    left = tokenizer.padding_side != "right"
    bounds = philox.RowBounds(lengths, len(lengths), inputs.shape[1], left=left, flat=flat)
    marks = Marks(special, offset_mapping if collator.whole_word_mask else None, keys)
    return mask_places(inputs, bounds, options, marks)


_SET_NO_EPOCH = frozenset(("transformers", "trl", "quadrat"))  # whose Trainers and callbacks call no `set_epoch`
_MOST_QUIET = 127  # batches from a look to the next


def warn_of_one_epoch(collator: Any) -> None:
    """Warns, once, where a Trainer makes batches of several epochs and none was set, so that masks repeat."""
    fields, was_set = vars(collator), collator._shared_epoch().was_set
    batches = fields.get("_quadrat_made", 0)
    quiet = min(batches // 8, _MOST_QUIET)  # a look takes microseconds
    fields["_quadrat_made"] = batches + 1 + quiet
    fields["_quadrat_looks"] = itertools.repeat(False) if was_set[0] else itertools.repeat(False, quiet)
    state = None if was_set[0] else _state_of_training()
    if state is not None:
        was_set[0] = 1  # so that no other worker warns
        epochs = f"all {state.num_train_epochs} epochs" if state.num_train_epochs < sys.maxsize else "each epoch"
        warnings.warn(
            f'rng="philox": no epoch was set, so a row is masked alike in {epochs}. Give the Trainer '
            "callbacks=[quadrat.SetEpochCallback()]; call the collator's set_epoch(0) if masks are to repeat.",
            stacklevel=3,
        )


def _state_of_training() -> Any:
    """The state of the Trainer that is taking a batch to train on, if it trains for several epochs; else None."""
    trainer = calling_trainer("get_batch_samples")
    if trainer is None or trainer.args.process_index > 0:
        return None
    worker, state = sys.modules["torch.utils.data"].get_worker_info(), trainer.state
    if worker is not None and worker.id > 0:
        return None
    able = {type(callback).__module__.partition(".")[0] for callback in (trainer, *trainer.callback_handler.callbacks)}
    # Code of others may set the epoch later, but not after the first one.
    certain = 1 < state.num_train_epochs < sys.maxsize and able <= _SET_NO_EPOCH
    return state if certain or state.epoch >= 1 else None
