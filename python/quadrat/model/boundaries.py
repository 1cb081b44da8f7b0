"""Flat batches that come with boundaries: `[1, total]`, the rows one after the other, as for FlashAttention."""

from __future__ import annotations

from typing import Any

import torch

from quadrat.model.arguments import IGNORED, LABELS, MASK, has_cache, of_tokens
from quadrat.model.attention import is_flash
from quadrat.model.backbone import map_tensors
from quadrat.model.rows import Rows

_BOUNDS = "cu_seq_lens_q"
_OF_FLAT = (_BOUNDS, "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx", "quadrat_rows")


class BoundedRows(Rows):
    """The rows of a flat batch; its padded batch is as wide as the longest row, with padding on the right."""

    def __init__(self, lengths: Any) -> None:
        longest = int(lengths.max())
        real = torch.arange(longest, device=lengths.device) < lengths[:, None]
        super().__init__((len(lengths), longest), lengths, real.flatten().nonzero()[:, 0], longest)

    def padded(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the call with the same rows, padded."""
        kept = {name: value for name, value in arguments.items() if name not in _OF_FLAT}
        for name, lead in of_tokens(kept, (1, self.total)):
            value = kept[name]
            parts = [self.put(part) for part in value] if lead else self.put(value)
            kept[name] = torch.stack(parts) if lead else parts
        if isinstance(labels := kept.get(LABELS), torch.Tensor):
            kept[LABELS] = labels.masked_fill(~self.real, IGNORED)
        return kept | {MASK: self.real.long(), "use_cache": False}

    def flat(self, padded: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a flat call with the labels of a padded one, but for the first token of each row."""
        if not isinstance(labels := arguments.get(LABELS), torch.Tensor) or labels.shape != (1, self.total):
            return arguments
        drawn = self.take(padded[LABELS])
        return arguments | {LABELS: drawn.index_copy(1, self.firsts, labels[:, self.firsts])}

    def with_boundaries(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the flat call, with its rows for attention."""
        mask = torch.ones((1, self.total), dtype=torch.int64, device=self.cells.device)
        return {**arguments, MASK: mask, "quadrat_rows": self}

    def put_all(self, output: Any) -> Any:
        """Outputs with a place for each token as of the padded batch."""
        flat = 1, self.total
        return map_tensors(lambda value, _: self.put(value) if value.shape[:2] == flat else value, output)


def bounded_rows(arguments: dict[str, Any], module: Any) -> BoundedRows | None:
    """The rows of a call with a flat batch whose attention must be told of boundaries; None for other calls."""
    bounds, tokens = arguments.get(_BOUNDS), arguments.get("input_ids")
    tokens = arguments.get("inputs_embeds") if tokens is None else tokens
    if not isinstance(bounds, torch.Tensor) or not isinstance(tokens, torch.Tensor) or len(tokens) != 1:
        return None
    if has_cache(arguments) or arguments.get(MASK) is not None or is_flash(module.config._attn_implementation):
        return None
    lengths = bounds.long().diff()
    rest = tokens.shape[1] - int(bounds[-1])  # padding behind the rows is a row
    lengths = torch.cat([lengths, lengths.new_tensor([rest])]) if rest > 0 else lengths
    return BoundedRows(lengths) if rest >= 0 and len(lengths) > 1 and int(lengths.min()) >= 0 else None
