"""Two rows, packed by a collator, and the logits that a model has for them: what `check_packing` compares."""

import contextlib
import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from quadrat.model import proof
from quadrat.support.counts import uncounted
from quadrat.support.wrappers import replaced

_LENGTHS = 13, 8  # of the two rows: the second begins within a block of tokens, of whatever size


def batch_of_two(model: Any, collator: Any) -> Any:
    """The batch that a copy of the collator makes of two short rows."""
    config = model.config.get_text_config()
    special = [value for key, value in vars(config).items() if key.endswith("token_id")]
    usual = [token for token in range(min(getattr(config, "vocab_size", 100), 1000)) if token not in special]
    tokens = [usual[7 * place % len(usual)] for place in range(1, 1 + sum(_LENGTHS))]
    try:
        batch = copy.copy(collator)([{"input_ids": tokens[: _LENGTHS[0]]}, {"input_ids": tokens[_LENGTHS[0] :]}])
        return batch if isinstance(batch, Mapping) else batch.to("cpu")  # a DeferredBatch
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
    """As `proof.undisturbed`, and restores the random generators of a collator. Batches do not count."""
    with contextlib.ExitStack() as restored, uncounted(), proof.undisturbed(model):
        for generator in getattr(collator, "__dict__", {}).values():
            if isinstance(generator, torch.Generator):
                restored.callback(generator.set_state, generator.get_state())
            elif isinstance(generator, np.random.Generator):
                restored.callback(setattr, generator.bit_generator, "state", generator.bit_generator.state)
        yield


class NoLogitsError(ValueError):
    """The model returns nothing for each token."""


class Packed:
    """A packed batch for a model, with and without changes, and its rows alone."""

    def __init__(self, model: Any, batch: Mapping[str, Any], kwargs: Mapping[str, Any]) -> None:
        weight = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
        self.model, self.kwargs, self._device = model, dict(kwargs), weight.device
        self._rounding = float(torch.finfo(weight.dtype).eps) ** 0.5
        arrays = {key: value for key, value in batch.items() if hasattr(value, "dtype")}
        tensors = {key: torch.as_tensor(array).to(weight.device) for key, array in arrays.items()}
        self.batch = {key: tensors.get(key, value) for key, value in batch.items() if key != "labels"}
        self._total = self.batch["input_ids"].shape[1]
        if "cu_seq_lens_q" in self.batch:
            bounds = self.batch["cu_seq_lens_q"].tolist()
        else:
            known = "position_ids" in self.batch
            bounds = [*(starts(self.batch["position_ids"]) if known else (0, _LENGTHS[0])), self._total]
        self.rows = [(start, end) for start, end in itertools.pairwise(bounds) if start != end]  # of a fixed shape
        of_batch = {"labels", "position_ids", "seq_idx", "attention_mask", "padding_mask"}  # not of a row
        columns = tensors.keys() - of_batch
        self._columns = {key: tensors[key] for key in columns if tensors[key].shape == (1, self._total)}

    @property
    def runs_on_gpu_only(self) -> bool:
        """True if the model has FlashAttention, and is not on a GPU."""
        kinds = {str(getattr(config, "_attn_implementation", "")) for config in _configs_of(self.model)}
        return self._device.type == "cpu" and any("flash" in kind for kind in kinds)

    def positions(self, start: int) -> Any:
        """Positions that start again in each row."""
        return self._joined([torch.arange(start, start + end - begin) for begin, end in self.rows])

    def seq_idx(self) -> Any:
        """The number of each token's row."""
        return self._joined([torch.full((end - begin,), row) for row, (begin, end) in enumerate(self.rows)]).int()

    def boundaries(self) -> dict[str, Any]:
        """The arguments of FlashAttention."""
        bounds = torch.tensor([0, *(end for _, end in self.rows)], dtype=torch.int32, device=self._device)
        longest = max(end - begin for begin, end in self.rows)
        return {f"cu_seq_lens_{part}": bounds for part in "qk"} | {f"max_length_{part}": longest for part in "qk"}

    def _joined(self, parts: list[Any]) -> Any:
        rest = self._total - sum(map(len, parts))
        return torch.cat([*parts, torch.zeros(rest, dtype=parts[0].dtype)])[None].to(self._device)

    def compare(self, changes: Mapping[str, Any] = {}) -> tuple[tuple[float, ...], float]:
        """The largest difference of each row's logits, in the batch and alone; and what rounding explains."""
        inputs = {**self.batch, **self.kwargs, **changes}
        arguments = {key: value for key, value in inputs.items() if key not in changes or value is not None}
        together, differences, scale = _logits(self.model(**arguments), self._total), [], 0.0
        for start, end in self.rows:
            alone = self._alone(start, end)
            differences.append(float((together[start:end] - alone).abs().max()))
            scale = max(scale, float(alone.abs().max()))
        return tuple(differences), scale * self._rounding

    def of_positions(self, position_ids: Any) -> tuple[float, float]:
        """As `compare`, of the first row with its positions in the batch and with the model's own."""
        (start, end), positions = self.rows[0], {}
        alone = self._alone(start, end)
        if position_ids is not None:
            positions = {"position_ids": position_ids[..., start:end]}
        difference = (self._alone(start, end, **positions) - alone).abs().max()
        return float(difference), float(alone.abs().max()) * self._rounding

    def _alone(self, start: int, end: int, **positions: Any) -> Any:
        row = {key: tensor[:, start:end] for key, tensor in self._columns.items()}
        return _logits(self.model(**row, **self.kwargs, **positions), end - start)


def _configs_of(model: Any) -> list[Any]:
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    return list(configs.values())


def without_flash(model: Any) -> contextlib.AbstractContextManager[None]:
    """The attention of a model in plain torch meanwhile."""
    return replaced(*((config, "_attn_implementation_internal", "eager") for config in _configs_of(model)))


def _logits(outputs: Any, tokens: int) -> Any:
    for name in ("logits", "last_hidden_state"):
        output = getattr(outputs, name, None)
        if output is not None and output.ndim == 3 and output.shape[1] == tokens:
            return output[0].float()
    raise NoLogitsError("check_packing compares logits or hidden states of each token; this model returns neither")
