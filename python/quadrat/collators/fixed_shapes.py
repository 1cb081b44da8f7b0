"""`FixedShapes`: batches filled to the shapes of a plan."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quadrat.batching.shapes import ShapePlan
from quadrat.input.rows import MAIN
from quadrat.ops.pad import pad
from quadrat.support.around import Around
from quadrat.support.kinds import is_kind
from quadrat.support.tensors import is_tensor

# Other than 0 and what the collator pads with.
_FILLS = {"labels": -100, "seq_idx": -1, "special_tokens_mask": 1, "padding_mask": True}


class FixedShapes(Around):
    """A collator whose batches have the shapes of a plan: another collator's, filled.

    In a padded batch, each row is padded to the width, and rows of padding are added, with labels of -100 and an
    attention mask of one token, because some implementations of attention return NaN for a row that attends to
    nothing. Losses that leave out labels of -100, as those of transformers do, do not change; outputs have more rows
    and columns.

    In a batch of joined rows, padding comes last, in rows of its own of at most `plan.longest` tokens, with labels of
    -100 and `seq_idx` of -1: attention kernels leave the gradients of tokens beyond the last row undefined, so all
    tokens are in a row, and positions stay below `longest`. Boundaries have one number of entries, enough for any
    batch; the rest repeat the end. `max_length` is `longest`. With `align_to`, padding belongs to the place of the last
    row, and the longest place is the total.

    A column is filled with what the collator pads it with: its tokenizer's tokens, its `pad_values`, otherwise 0.

    Args:
        collator: returns a dict with `input_ids`, tensors or arrays; or a (partial) `quadrat.flatten`.
        plan: a `ShapePlan`.

    Raises:
        TypeError: for a collator with `deferred=True`, whose batches are not tensors yet.
        ValueError: for a batch with more rows or tokens than any of the shapes, a padded batch without
            `attention_mask`, and labels that are floats, one per row, which no loss leaves out.

    Examples:
        >>> import quadrat
        >>> from quadrat.batching import FixedShapes, ShapePlan
        >>> plan = ShapePlan([(3, 8)], padded=False)
        >>> collate = FixedShapes(quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True), plan)
        >>> batch = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
        >>> batch["input_ids"].tolist(), batch["cu_seq_lens_q"].tolist(), batch["max_length_q"]
        ([[5, 6, 7, 8, 9, 0, 0, 0]], [0, 3, 5, 8, 8], 8)
        >>> FixedShapes(quadrat.flatten, plan)([[5, 6, 7], [8, 9]]).cu_seqlens.tolist()
        [0, 3, 5, 8, 8]
    """

    def __init__(self, collator: Any, plan: ShapePlan) -> None:
        if getattr(collator, "deferred", False):
            raise TypeError("a collator with deferred=True returns no tensors to fill: use deferred=False")
        self.collator, self.plan = collator, plan

    def __call__(self, features: Any) -> Any:
        """The batch of `features`, in one of the shapes."""
        batch = self.collator(features)
        named = dict(zip(batch._fields, batch, strict=True)) if hasattr(batch, "_fields") else batch  # of flatten
        (self._pad if self.plan.padded else self._join)(named)
        return type(batch)(**named) if hasattr(batch, "_fields") else batch

    def _pad(self, batch: Any) -> None:
        """Fills what has a place for each row, and of that, for each token."""
        rows, width = batch[MAIN].shape
        most, widest = self.plan.fitting(rows, width)
        if (rows, width) == (most, widest):
            return
        if "attention_mask" not in batch:
            raise ValueError("the batch has no attention_mask, so the model would take the filled tokens for tokens")
        for name, value in batch.items():
            dims: Sequence[int] = getattr(value, "shape", ())
            if len(dims) and dims[0] == rows:
                shape = (most, *(widest if size == width else size for size in dims[1:]))
                batch[name] = _filled(name, value, shape, self._fill_of(name))
        batch["attention_mask"][rows:, 0] = 1

    def _join(self, batch: dict[str, Any]) -> None:
        """Fills what has a place for each token, and where rows begin. Lengths become those of the plan."""
        main = MAIN if MAIN in batch else "values"
        lead: tuple[int, ...] = (1,) if main == MAIN else ()
        width = int(batch[main].shape[len(lead)])
        counts = {name: len(batch[name]) - 1 for name in batch if name.startswith("cu_seq")}
        if len(getattr(batch.get("labels"), "shape", ())) == 1:
            counts["labels"] = len(batch["labels"])
        most, total = self.plan.fitting(max(counts.values(), default=1), width)
        longest, widest = self.plan.longest, self.plan.shapes[-1][1]
        bounds = max(rows for rows, _ in self.plan.shapes) + 1 + -(-widest // longest)  # rows of padding included
        aligned = "padding_mask" in batch  # then bounds and lengths speak of places, and the last one ends the batch
        for name, value in batch.items():
            places = aligned and f"{name}_padded" not in batch
            if name == "labels" and name in counts:
                batch[name] = _filled(name, value, (most,), -100)
            elif name in counts:
                batch[name] = made = _filled(name, value, (bounds,), total)
                if places:
                    made[counts[name]] = total
                else:
                    steps = np.arange(1, bounds - counts[name]) * (0 if aligned else longest)
                    rows = value[-1:] + (value.new_tensor(steps) if is_tensor(value) else steps)
                    made[counts[name] + 1 :] = rows.clip(max=total)
            elif name.startswith("max_"):
                batch[name] = max(value, total if places else longest)
            elif name == "total_tokens":
                batch[name] = total
            elif tuple(getattr(value, "shape", ()))[: len(lead) + 1] == (*lead, width):
                shape = *lead, total, *value.shape[len(lead) + 1 :]
                batch[name] = made = _filled(name, value, shape, self._fill_of(name))
                if name == "position_ids":
                    steps = np.arange(total - width) % longest + self._option("position_ids_start", 0)
                    made[..., width:] = value.new_tensor(steps) if is_tensor(value) else steps

    def _option(self, name: str, default: Any) -> Any:
        """An option of the collator, or of a function that is wrapped by `functools.partial`."""
        return getattr(self.collator, "keywords", {}).get(name, getattr(self.collator, name, default))

    def _fill_of(self, name: str) -> Any:
        pads = self._option("pad_values", None) or {}
        known = {MAIN: "pad_token_id", "token_type_ids": "pad_token_type_id"}.get(name)
        own = getattr(self._option("tokenizer", None), known, None) if known else None
        if name == "values":
            own = self._option("padding_value", 0)
        return pads.get(name, _FILLS.get(name, 0) if own is None else own)


def _filled(name: str, value: Any, shape: tuple[int, ...], fill: Any) -> Any:
    """A tensor or an array of this shape that begins with `value`."""
    if name == "labels" and value.ndim == 1 and "float" in str(value.dtype):
        raise ValueError("labels are floats, one per row: no loss leaves out those of the filled rows")
    try:
        if is_kind(value.dtype):  # as the kernels pad it
            library: Any = "pt" if is_tensor(value) else "np"
            pad([()], max_length=1, padding_value=fill, dtype=value.dtype, return_tensors=library)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"column '{name}' filled with {fill!r}: {error}") from error
    made = value.new_full(shape, fill) if is_tensor(value) else np.full(shape, fill, value.dtype)
    made[tuple(map(slice, value.shape))] = value
    return made
