"""The parts of a deferred batch's outputs, and how a device makes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from quadrat import _core
from quadrat.support import gpu
from quadrat.support.columns import BOUNDS, JOIN, LABELS, LONGEST, MASK, PAD, POSITIONS, SEQUENCES, SHIFT, STACK, Step
from quadrat.support.gpu import FlatColumn, PadColumn
from quadrat.support.kinds import INT64, ITEM_SIZES, KINDS, bits_of, torch_dtype
from quadrat.support.memory import address_of

if TYPE_CHECKING:
    import torch

UINT8 = KINDS.index("uint8")


class Parts(NamedTuple):
    """Where the parts of one output lie in the buffer, in bytes, as csrc/bindings/plan/execute.hpp has it."""

    offsets: int  # of the rows, int64 [rows + 1], or -1
    values: int  # of the rows, or -1; without offsets they are the output
    total: int  # values, in elements; or the length of the longest row; or the id that causal labels ignore
    fill: Any  # of the gaps
    shape: tuple[int, ...]  # of the output

    @property
    def trailing(self) -> tuple[int, ...]:
        """The dimensions of a token."""
        return self.shape[2:]


NO_PARTS = Parts(-1, -1, 0, None, ())


class Masking(NamedTuple):
    """How ids are masked once they are padded, as csrc/bindings/plan/execute.hpp has it; the places are in bytes."""

    options: tuple[int, int, float, float, float, int, int]  # as `quadrat.ops._philox.PhiloxOptions` names them
    keys: int  # of the rows, uint64 [rows]
    words: int  # what each token is, uint8 [total], or -1
    members: int  # the ids that are special, as a bit each, uint64, or -1
    members_size: int


class DeferredPlan(NamedTuple):
    """The outputs, and their parts."""

    steps: tuple[Step, ...]  # as for `_core.Columns.run`
    layout: tuple[Parts, ...]  # a place for each step
    rows: int
    options: tuple[Any, ...]  # the fields of `BatchLayout`
    masking: Masking | None = None  # of the ids that labels come from


def make(plan: DeferredPlan, buffer: torch.Tensor) -> dict[str, Any]:
    """The outputs of a plan, made on the device of the buffer, which is aligned to 64 bytes."""
    launches = _Launches(plan, buffer)
    outputs: dict[str, Any] = {}
    for (name, source, action, kind), place in zip(plan.steps, plan.layout, strict=True):
        if place.offsets < 0 and place.values >= 0:
            outputs[name] = view(buffer, place, kind)
        elif not place.shape:
            outputs[name] = place.total if action == LONGEST else None
        else:
            outputs[name] = buffer.new_empty(place.shape, dtype=torch_dtype(kind))
        add = launches.add_flat if action in _SOURCES else launches.add_padded
        add(source, action, kind, place, outputs[name])
    launches.launch()
    ignored = plan.options[-1] if plan.options else None
    if ignored is not None and "labels" in outputs:
        outputs["labels"].masked_fill_(outputs["labels"] == ignored, -100)
    return outputs


# What each action is to flatten_columns.
_SOURCES = {
    JOIN: _core.FLAT_CONTENTS.VALUES,
    SHIFT: _core.FLAT_CONTENTS.SEPARATED,
    POSITIONS: _core.FLAT_CONTENTS.POSITIONS,
    SEQUENCES: _core.FLAT_CONTENTS.SEQUENCES,
    BOUNDS: _core.FLAT_CONTENTS.BOUNDS,
}


class _Launches:
    def __init__(self, plan: DeferredPlan, buffer: torch.Tensor) -> None:
        self.plan, self.device, self.base = plan, buffer.device, address_of(buffer)
        self._columns: list[PadColumn] = []
        self._ids: dict[int, tuple[Parts, Any]] = {}  # by column
        self._labels: list[tuple[int, int, int, int]] = []
        self._masked: tuple[int, Any] | None = None
        self._flat: dict[int, list[FlatColumn]] = {}  # by their offsets
        self._sizes: dict[int, int] = {}

    def add_padded(self, source: int, action: int, kind: int, place: Parts, out: Any) -> None:
        if action in (PAD, STACK) and kind == INT64:
            self._ids[source] = place, out
        if action == LABELS and place.values < 0:
            if self.plan.masking is not None:
                self._masked = source, out
            else:
                self._labels.append((address_of(self._ids[source][1]), out.numel(), place.total, address_of(out)))
        elif place.offsets >= 0 and out.numel() > 0:
            mask = action == MASK
            values = (0, 0) if mask else (self.base + place.values, place.total)
            bits, fill = bits_of(1, kind) if mask else 0, 0 if place.fill is None else bits_of(place.fill, kind)
            offsets, width, left = self.base + place.offsets, place.shape[1], bool(self.plan.options[2])
            item, inner = ITEM_SIZES[kind], math.prod(place.trailing)
            self._columns.append(PadColumn(*values, offsets, width, left, item, inner, bits, fill, address_of(out)))

    def launch(self) -> None:
        masking = self.plan.masking
        if masking is None or self._masked is None or self._masked[1].numel() == 0:
            gpu.pad_columns(self._columns, self.plan.rows, self.device)
        else:
            source, masked = self._masked
            self._mask(masking, *self._ids[source], masked)
        for labels in self._labels:
            gpu.launch("causal_labels", self.device, *labels)
        for at, columns in self._flat.items():
            gpu.flatten_columns(columns, self.base + at, self.plan.rows, self._sizes.get(at, 0), self.device)

    def _mask(self, masking: Masking, place: Parts, ids: Any, labels: Any) -> None:
        """All that is padded, and ids masked while they are padded; in place where it is stored what each token is."""
        unmasked = next(column for column in self._columns if column.out == address_of(ids))
        pads, words, members = masking.words < 0, 0, (0, 0)
        source, mask = (0, 0, 0), None
        if pads:
            # An attention mask has no values, and is int64 where the bits of its ones are 1.
            like = unmasked._replace(values=0, values_size=0, one=1, fill=0)
            mask = next((column for column in self._columns if column._replace(out=unmasked.out) == like), None)
            members = (self.base + masking.members, masking.members_size) if masking.members_size else members
            source = unmasked.values, unmasked.values_size, 0 if place.fill is None else int(place.fill)
            self._columns = [column for column in self._columns if column not in (unmasked, mask)]
        else:
            padded = ids.new_empty(place.shape, dtype=torch_dtype(UINT8))
            self.add_padded(-1, PAD, UINT8, place._replace(values=masking.words, fill=_core.WORDS.NONE), padded)
            words = address_of(padded)
        gpu.pad_columns(self._columns, self.plan.rows, self.device)
        gpu.launch(
            "philox_mask", self.device, masking.options, self.base + masking.keys, unmasked.offsets, self.plan.rows,
            unmasked.width, unmasked.left, False, words, *members, unmasked.out, address_of(labels), ids.numel(), pads,
            *source, 0 if mask is None else mask.out,
        )  # fmt: skip

    def add_flat(self, source: int, action: int, kind: int, place: Parts, out: Any) -> None:
        if place.offsets < 0 or out.numel() == 0:
            return
        separator, start = self.plan.options[3:5]
        gap = {SHIFT: separator, SEQUENCES: -1}.get(action, place.fill)
        fill = 0 if gap is None else bits_of(gap, kind)
        value = bits_of(start, kind) if action == POSITIONS else 0
        if action != BOUNDS:
            self._sizes[place.offsets] = out.numel()
        values = (0, 0) if place.values < 0 else (self.base + place.values, place.total)
        column = FlatColumn(_SOURCES[action], *values, 1, ITEM_SIZES[kind], value, fill, address_of(out))
        self._flat.setdefault(place.offsets, []).append(column)


def elements(buffer: torch.Tensor, place: Parts, kind: int) -> torch.Tensor:
    """The values of a place, one after the other: memory of the buffer."""
    end = place.values + place.total * ITEM_SIZES[kind]
    return buffer[place.values : end].view(torch_dtype(kind))


def view(buffer: torch.Tensor, place: Parts, kind: int) -> torch.Tensor:
    """An output that lies in the buffer as it is."""
    return elements(buffer, place, kind).view(place.shape)
