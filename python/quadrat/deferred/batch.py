"""The deferred batch: ragged columns in one buffer, from which the target device makes the padded batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat import _core
from quadrat.deferred.layout import NO_PARTS, UINT8, DeferredPlan, Masking, Parts, elements, make, view
from quadrat.ops._philox import PhiloxOptions, RowBounds, ids_of_bits, labels_of_places
from quadrat.ragged.display import table
from quadrat.support import gpu
from quadrat.support.columns import HOLD, JOIN, LABELS, LONGEST, PAD, STACK
from quadrat.support.extras import needs
from quadrat.support.kinds import INT64, KINDS, torch_dtype, torch_kinds, torch_module
from quadrat.support.memory import address_of, interop
from quadrat.support.tensors import is_stored, is_tensor, moved

if TYPE_CHECKING:
    import torch

_IDS = (PAD, STACK, JOIN)  # the actions that may make the ids that labels come from


class DeferredBatch(Mapping[str, Any]):
    """A batch that is padded later, on its device; collators with `deferred=True` return it.

    The rows of all columns lie in one buffer, which is pinned, sent between processes and copied to a device as a
    whole. `to(device)` makes the batch there, with the container, keys, dtypes and values that the collator gives
    without `deferred`. Until then it is a mapping: `batch["labels"]` makes this one column on the CPU, and keeps it.

    Args:
        tensors: a finished batch, a dict or `BatchEncoding`; its CPU tensors are copied to one buffer.

    Examples:
        >>> import quadrat
        >>> collator = quadrat.DataCollatorWithFlattening(deferred=True)
        >>> batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])  # a DeferredBatch
        >>> batch.to("cpu")["input_ids"]  # or .to("cuda")
        tensor([[5, 6, 7, 8, 9]])
    """

    def __new__(cls, tensors: Mapping[str, Any]) -> DeferredBatch:
        """A `DeferredBatch` that makes a container of the same type as `tensors`."""
        with needs("DeferredBatch", "transformers"):
            from transformers import BatchEncoding

        return object.__new__(_DeferredEncoding if isinstance(tensors, BatchEncoding) else cls)

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        with needs("DeferredBatch", "transformers"):
            import torch

        steps, layout, held, size = [], [], {}, 0
        for name, value in tensors.items():
            plain = type(value) is torch.Tensor and is_stored(value) and value.is_contiguous()
            if (kind := torch_kinds().get(value.dtype) if plain else None) is None:
                held[name] = value
                steps.append((name, 0, HOLD, 0))
                layout.append(NO_PARTS)
            else:
                steps.append((name, 0, STACK, kind))
                layout.append(NO_PARTS._replace(values=size, total=value.numel(), shape=tuple(value.shape)))
                size += -(-value.nbytes // _core.ALIGNMENT) * _core.ALIGNMENT
        buffer = torch.empty(size, dtype=torch.uint8, device="cpu")
        for (name, _, action, kind), place in zip(steps, layout, strict=True):
            if action == STACK:
                view(buffer, place, kind).copy_(tensors[name])
        self._fill(buffer, DeferredPlan(tuple(steps), tuple(layout), 0, ()), held)  # no column has ragged rows

    def _fill(self, buffer: torch.Tensor, plan: DeferredPlan, held: dict[str, Any]) -> None:
        self._buffer, self._plan, self._held = buffer, plan, held
        self._columns: dict[str, Any] = {}

    @classmethod
    def _of(cls, buffer: torch.Tensor, plan: DeferredPlan, held: dict[str, Any]) -> DeferredBatch:
        batch: DeferredBatch = object.__new__(cls)
        batch._fill(buffer, plan, held)
        return batch

    def to(self, device: Any, non_blocking: bool = False) -> dict[str, Any]:
        """The batch on a device.

        On the CPU these are the tensors that the collator gives without `deferred`, made anew at each call. On a CUDA
        device the buffer is copied once, on the current stream, without waiting for it if it is pinned and
        `non_blocking` is set, and the outputs are made there; for other devices, and if quadrat was built without CUDA,
        they are made on the CPU and copied one by one.

        Args:
            device: a `torch.device`, a string, or the number of an accelerator.
            non_blocking: as for `torch.Tensor.to`.

        Returns:
            A `BatchEncoding` or dict, as the collator without `deferred`.
        """
        device = torch_module().device(device)
        if device.type == "cuda" and gpu.available():
            outputs = make(self._plan, self._buffer.to(device, non_blocking=non_blocking))
            return self._wrapped(outputs | moved(self._held, device, non_blocking))  # type: ignore[no-any-return]
        outputs = self._on_host() | self._held
        return self._wrapped(outputs if device.type == "cpu" else moved(outputs, device, non_blocking))  # type: ignore[no-any-return]

    def pin_memory(self, device: Any = None) -> DeferredBatch:
        """The same batch in page-locked memory, as `DataLoader(pin_memory=True)` asks for."""
        held = {name: value.pin_memory() if is_tensor(value) else value for name, value in self._held.items()}
        return self._of(self._buffer.pin_memory(), self._plan, held)

    def is_pinned(self) -> bool:
        """True if the buffer is in page-locked memory."""
        return bool(self._buffer.is_pinned())

    @property
    def device(self) -> torch.device:
        """Where the buffer is: the CPU."""
        return self._buffer.device

    @property
    def nbytes(self) -> int:
        """The bytes that are sent to a device."""
        return sum(int(value.nbytes) for value in (self._buffer, *self._held.values()) if is_tensor(value))

    def __getitem__(self, name: str) -> Any:
        """One column on the CPU, made when first asked for."""
        if name in self._held:
            return self._held[name]
        if name not in self._columns:
            if name not in self._names:
                raise KeyError(name)
            self._columns = self._on_host(name) | self._columns
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        columns = (f"{name} {shape} {kind}".rstrip() for name, shape, kind in self._described())
        return f"DeferredBatch({', '.join(columns)}; {self._size()})"

    def _repr_html_(self) -> str:
        return table(f"DeferredBatch: {self._size()}", ("column", "shape", "dtype"), self._described())

    def _described(self) -> list[tuple[str, str, str]]:
        shapes = {}
        for (name, _, _, kind), place in zip(self._plan.steps, self._plan.layout, strict=True):
            shapes[name] = (name, str(list(place.shape)), KINDS[kind]) if place.shape else (name, "", "")
        return list(shapes.values())

    def _size(self) -> str:
        return f"{self.nbytes} bytes{', pinned' if self.is_pinned() else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        """The buffer and the plan; columns that have been made stay behind."""
        buffer: Any = self._buffer
        if 0 < buffer.nbytes <= _core.MOST_IN_MESSAGE:
            buffer = buffer.numpy().tobytes()
        return _restored, (type(self), buffer, tuple(self._plan), self._held)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step[0] for step in self._plan.steps))  # a later step overwrites an earlier one

    def _wrapped(self, outputs: dict[str, Any]) -> Any:
        return {name: outputs[name] for name in self._names}

    def _on_host(self, name: str | None = None) -> dict[str, Any]:
        """The outputs, or just one, as the collator makes them without `deferred`: by the same call, of other rows."""
        plan = self._plan if name is None else _part(self._plan, name)
        outputs: dict[str, Any] = {}
        steps, fills, columns = [], {}, _core.Columns()
        known: dict[tuple[int, int, int], int] = {}  # the columns, by their parts
        ids: dict[int, tuple[str, Parts, int]] = {}  # by column of the decision; with that of `columns`
        masked: tuple[str, int] | None = None
        for (output, source, action, kind), place in zip(plan.steps, plan.layout, strict=True):
            if place.offsets < 0 and place.values >= 0:
                outputs[output] = view(self._buffer, place, kind).clone()
            elif action in (HOLD, LONGEST):
                outputs[output] = None if action == HOLD else place.total
            elif action == LABELS and plan.masking is not None:
                masked = output, source
            elif action == LABELS:
                steps.append((output, ids[source][2], LABELS, kind))
                fills[output] = _core.CausalLabels(place.total)
            else:
                if (parts := (place.offsets, place.values, kind)) not in known:
                    known[parts] = len(known)
                    self._add_to(columns, place, kind)
                if action in _IDS and kind == INT64:
                    ids[source] = output, place, known[parts]
                steps.append((output, known[parts], action, kind))
                fills[output] = place.fill
        if steps:
            outputs |= columns.run(tuple(steps), fills, interop(), True, plan.options)
        if plan.masking is not None and masked is not None:
            labels, source = masked
            name, place, _ = ids[source]
            outputs[labels] = self._mask(plan.masking, place, outputs[name])
        return outputs

    def _add_to(self, columns: _core.Columns, place: Parts, kind: int) -> None:
        base = address_of(self._buffer)
        # Rows without values are looked at for their lengths only.
        values, size = (0, 1 << 60) if place.values < 0 else (base + place.values, place.total)
        tokens = size // math.prod(place.trailing)
        columns.add_ragged(values, kind, tokens, base + place.offsets, self._plan.rows, place.trailing)

    def _mask(self, masking: Masking, place: Parts, ids: Any) -> Any:
        """Masks padded ids in place, as the collator does without `deferred`; returns the labels."""
        rows, (_, width), left = self._plan.rows, place.shape, bool(self._plan.options[2])

        def numbers(at: int, count: int) -> Any:
            return elements(self._buffer, NO_PARTS._replace(values=at, total=count), INT64).numpy()

        flags, special_ids = None, []
        if masking.words < 0:
            special_ids = ids_of_bits(numbers(masking.members, masking.members_size))
        else:
            words, columns = np.empty(place.shape, np.uint8), _core.Columns()
            self._add_to(columns, place._replace(values=masking.words), UINT8)
            columns.pad(0, address_of(words), UINT8, width, left, _core.WORDS.NONE)
            flags = (words == _core.WORDS.NONE).view(np.uint8)
        places = RowBounds(np.diff(numbers(place.offsets, rows + 1)), rows, width, left=left, flat=False)
        labeller = _core.PhiloxLabels(PhiloxOptions(*masking.options), special_ids)
        return labels_of_places(labeller, ids, places, (numbers(masking.keys, rows), flags, None))


class _DeferredEncoding(DeferredBatch):
    """One that becomes a `BatchEncoding`: a type, because accelerate makes batches again as `type(batch)(columns)`."""

    def _wrapped(self, outputs: dict[str, Any]) -> Any:
        from transformers import BatchEncoding

        return BatchEncoding(super()._wrapped(outputs))


def _part(plan: DeferredPlan, name: str) -> DeferredPlan:
    """The plan of one output, and of those that it is made with: labels and the ids they come from."""
    wanted = next(step for step in reversed(plan.steps) if step[0] == name)
    labels = next((step for step in plan.steps if step[2] == LABELS), None)
    both = [step for step in plan.steps if step is labels or (labels and step[1] == labels[1] and step[2] in _IDS)]
    with_both = wanted is labels or (plan.masking is not None and wanted in both)
    kept = [i for i, step in enumerate(plan.steps) if step is wanted or (with_both and step in both)]
    return plan._replace(steps=tuple(plan.steps[i] for i in kept), layout=tuple(plan.layout[i] for i in kept))


def _restored(cls: type[DeferredBatch], buffer: Any, plan: tuple[Any, ...], held: dict[str, Any]) -> DeferredBatch:
    if isinstance(buffer, bytes):
        buffer = torch_module().frombuffer(bytearray(buffer), dtype=torch_dtype(UINT8))
    steps, layout, rows, options, masking = plan
    places, masking = tuple(Parts(*place) for place in layout), None if masking is None else Masking(*masking)
    return cls._of(buffer, DeferredPlan(steps, places, rows, options, masking), held)


def deferred_batch(buffer: torch.Tensor, *plan: Any) -> DeferredBatch:
    """The factory for `_core.Columns.run` and `_core.Recipe`, see csrc/bindings/plan/execute.hpp."""
    *parts, wrapped = plan
    return _restored(_DeferredEncoding if wrapped else DeferredBatch, buffer, tuple(parts), {})
