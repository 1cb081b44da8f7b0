"""A module computes the real tokens of a padded batch alone: arguments taken apart, outputs put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from quadrat.model.arguments import IGNORED, KEPT_LOGITS, LABELS, MASK, POSITIONS, of_tokens, takes
from quadrat.model.attention import is_flash
from quadrat.model.prefixes import shared_rows
from quadrat.model.rows import Rows

Path = tuple[str | int, ...]


def _counted_from(padding: int, real: Any) -> Any:
    return real.cumsum(1) * real + padding


# The positions that models give to tokens, of the mask, the ids and the number of the padding token: their columns;
# counted by the mask; counted by ids or by the mask, after the number of the padding token.
MADE_POSITIONS: dict[str, Callable[[Any, Any, int], Any]] = {
    "columns": lambda mask, _, __: torch.arange(mask.shape[1], device=mask.device).expand(mask.shape),
    "counted": lambda mask, _, __: (mask.cumsum(1) - 1).clamp(0),
    "counted by ids": lambda mask, ids, padding: _counted_from(padding, mask if ids is None else ids != padding),
    "counted after padding": lambda mask, _, padding: _counted_from(padding, mask),
}


def padding_token(config: Any) -> int:
    """The number of a model's padding token."""
    return int(getattr(config, "pad_token_id", None) or 0)


class Flat:
    """One call of a place, taken apart. Without known paths, outputs with a place for each token are found by shape."""

    def __init__(self, module: Any, mask: Any, call: Any, place: str) -> None:
        self.module, self.place, self._mask, self._call, self._way = module, place, mask, call, call.way
        self._paths: Mapping[Path, int] | None = call.way.paths.get(place)
        self._kept: Rows | None = None  # of the last columns, where logits are asked for these alone
        self.put_paths: dict[Path, int] = {}
        self.arguments: dict[str, Any] = {}  # those of the padded batch

    def take_apart(self, arguments: dict[str, Any], implementation: str) -> dict[str, Any]:
        """The arguments of the call without padding."""
        self.arguments = arguments
        mask, ids, positions = self._mask, arguments.get("input_ids"), arguments.get(POSITIONS)
        if positions is None and takes(self.module, POSITIONS):
            positions = MADE_POSITIONS[self._way.positions](mask, ids, padding_token(self.module.config))
            arguments = {**arguments, POSITIONS: positions}
        shared = self._call.shared if self._way.shared else None
        if shared is not None and self._way.positions != "columns":
            shared = shared_rows(ids, mask, positions)
        if shared is not None and not shared.fits(mask):
            shared = None
        if self._way.shared and self._call.proof and shared is None:
            raise NotImplementedError("these rows share nothing")
        rows = self.rows = Rows.of_mask(mask) if shared is None else shared
        flat = {name: rows.take(arguments[name], lead) for name, lead in of_tokens(arguments, rows.shape)}
        flat[MASK] = torch.ones_like(flat[MASK])
        if self._way.shifted and LABELS in flat:
            flat[LABELS] = flat[LABELS].index_fill(1, rows.firsts, IGNORED)  # not predicted from the row before
        if (columns := arguments.get(KEPT_LOGITS)) is not None and takes(self.module, KEPT_LOGITS):
            if not isinstance(columns, int):
                raise NotImplementedError("logits_to_keep is a tensor")
            some = 0 < columns < mask.shape[1]
            self._kept, flat[KEPT_LOGITS] = rows.last_columns(columns) if some else (None, 0)
        if takes(self.module, "use_cache") and arguments.get("use_cache") is None:
            flat["use_cache"] = False
        if is_flash(implementation):
            flat |= {f"cu_seq_lens_{part}": rows.bounds for part in "qk"}
            flat |= {f"max_length_{part}": rows.longest for part in "qk"}
        else:
            flat["quadrat_rows"] = rows
        return {**arguments, **flat}

    def put_together(self, output: Any) -> Any:
        """The outputs of the call as of the padded batch, zeros at padding."""
        output = map_tensors(self._put, output)
        pooler = getattr(self.module, "pooler", None)
        if pooler is not None and getattr(output, "pooler_output", None) is not None:
            output["pooler_output"] = pooler(output[0])
        return output

    def _put(self, value: Any, path: Path) -> Any:
        for of_last_columns, rows in enumerate((self.rows, self._kept)):
            known = self._paths is None or self._paths.get(path) == of_last_columns
            if rows is not None and known and value.shape[:2] == (1, rows.total):
                self.put_paths[path] = of_last_columns
                return rows.put(value)
        return value


def map_tensors(function: Callable[[Any, Path], Any], value: Any, path: Path = ()) -> Any:
    """An output with other tensors: what the function gives for each, and for where it is."""
    if isinstance(value, torch.Tensor):
        return function(value, path)
    if isinstance(value, dict):
        for key, part in list(value.items()):
            value[key] = map_tensors(function, part, (*path, key))
    elif type(value) in (list, tuple):
        return type(value)(map_tensors(function, part, (*path, place)) for place, part in enumerate(value))
    return value
