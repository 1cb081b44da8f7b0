"""Two rows, packed by a collator, and the logits that a model has for them: the part of `check_packing` that runs."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from quadrat.support.counts import uncounted

_LENGTHS = 13, 8  # of the two rows: the second begins within a block of tokens, of whatever size


def batch_of_two(model: Any, collator: Any) -> Any:
    """The batch that a copy of the collator makes of two short rows."""
    config = model.config.get_text_config()
    special = [value for key, value in vars(config).items() if key.endswith("token_id")]
    usual = [token for token in range(min(getattr(config, "vocab_size", 100), 1000)) if token not in special]
    tokens = [usual[7 * place % len(usual)] for place in range(1, 1 + sum(_LENGTHS))]
    try:
        made = copy.copy(collator)([{"input_ids": tokens[: _LENGTHS[0]]}, {"input_ids": tokens[_LENGTHS[0] :]}])
        return made if isinstance(made, Mapping) else made.to("cpu")  # a DeferredBatch
    except Exception as error:
        raise ValueError(
            f"{type(collator).__name__} makes no batch of rows of input_ids alone ({type(error).__name__}: {error}): "
            "pass one of its batches, with at least two rows, instead of the collator"
        ) from error


def starts(position_ids: Any) -> list[int]:
    """Where rows begin, by their positions."""
    positions = np.asarray(position_ids.tolist()).reshape(-1, position_ids.shape[-1])[0]
    return [0, *(np.flatnonzero(positions[1:] <= positions[:-1]) + 1).tolist()]


@contextlib.contextmanager
def undisturbed(collator: Any, model: Any) -> Iterator[None]:
    """Restores all random generators, those of the collator too, and the modes of modules. Batches do not count."""
    with contextlib.ExitStack() as restored, uncounted(), torch.random.fork_rng():
        restored.callback(random.setstate, random.getstate())
        restored.callback(np.random.set_state, np.random.get_state())
        for one in getattr(collator, "__dict__", {}).values():
            if isinstance(one, torch.Generator):
                restored.callback(one.set_state, one.get_state())
            elif isinstance(one, np.random.Generator):
                restored.callback(setattr, one.bit_generator, "state", one.bit_generator.state)
        for module in model.modules():
            restored.callback(setattr, module, "training", module.training)
        yield


class NoLogitsError(ValueError):
    """The model returns nothing for each token."""


def compare(model: Any, batch: dict[str, Any], kwargs: dict[str, Any]) -> tuple[tuple[float, ...], float]:
    """The largest difference of each row's logits, in the batch and alone; and what rounding explains."""
    weight = next(one for one in model.parameters() if one.is_floating_point())
    tensors = {key: torch.as_tensor(one).to(weight.device) for key, one in batch.items() if hasattr(one, "dtype")}
    inputs = {key: tensors.get(key, one) for key, one in batch.items() if key != "labels"}
    total = inputs["input_ids"].shape[1]
    if "cu_seq_lens_q" in inputs:
        bounds = inputs["cu_seq_lens_q"].tolist()
    else:
        bounds = [*(starts(inputs["position_ids"]) if "position_ids" in inputs else (0, _LENGTHS[0])), total]
    own = ("labels", "position_ids", "seq_idx", "attention_mask", "padding_mask")  # of the batch, not of a row
    columns = {key: one for key, one in tensors.items() if one.shape == (1, total) and key not in own}
    model.eval()  # `undisturbed` restores it
    together, differences, scale = _logits(model(**inputs, **kwargs), total), [], 0.0
    for start, end in itertools.pairwise(bounds):
        if start == end:  # bounds of a fixed shape repeat the last one
            continue
        row = {key: one[:, start:end] for key, one in columns.items()}
        alone = _logits(model(**row, **kwargs), end - start)
        differences.append(float((together[start:end] - alone).abs().max()))
        scale = max(scale, float(alone.abs().max()))
    return tuple(differences), scale * float(torch.finfo(weight.dtype).eps) ** 0.5


def _logits(outputs: Any, tokens: int) -> Any:
    for name in ("logits", "last_hidden_state"):
        one = getattr(outputs, name, None)
        if one is not None and one.ndim == 3 and one.shape[1] == tokens:
            return one[0].float()
    raise NoLogitsError("run=True compares logits or hidden states of each token; this model returns neither")
