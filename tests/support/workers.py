"""What workers of a DataLoader are given to collate with; importable, so that spawned ones find it."""

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from support import samples


class Collate:
    """Collates the sample of a name with the collator of that name; has those of the installed transformers."""

    def __init__(self, module: Any, framework: str = "pt") -> None:
        self.collators = {
            name: samples.make(module, name, return_tensors=framework)
            for name in samples.CLASSES
            if framework == "pt" or samples.source_of(name) == framework
        }

    def __call__(self, name: str) -> Any:
        return self.collators[name](samples.batch(name))


class Observed:
    """The batch of another, and what it is made of where it was made: `observe` of it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, features: Any) -> tuple[Any, dict[str, Any]]:
        batch = self.collate(features)
        return batch, observe(batch)


def observe(batch: Any) -> dict[str, Any]:
    tensors = tensors_of(batch)
    return {
        "shared": {segment_of(tensor)[1] != "0" for tensor in tensors},
        "storages": len({tensor.untyped_storage()._cdata for tensor in tensors}),
        "segments": {segment_of(tensor) for tensor in tensors},
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def tensors_of(batch: Any) -> list[torch.Tensor]:
    return [value for value in batch.values() if isinstance(value, torch.Tensor) and value.numel()]


def segment_of(tensor: torch.Tensor) -> tuple[str, str]:
    """Device and inode of what the kernel has mapped where the storage of a tensor is; inode 0: nothing but memory."""
    address = tensor.untyped_storage().data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            extent, _, _, device, inode = line.split()[:5]
            first, last = (int(end, 16) for end in extent.split("-"))
            if first <= address < last:
                return device, inode
    raise AssertionError("no mapping holds the tensor")


class Kills:
    """Makes a batch, then ends the process that made it, as a system short of memory would."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, features: Any) -> Any:
        kept = self.collate(features)
        os.kill(os.getpid(), signal.SIGKILL)
        return kept


def by_name(worker: int) -> None:
    torch.multiprocessing.set_sharing_strategy("file_system")


def load(items: list[Any], collate: Callable[[Any], Any], workers: int, method: str = "fork", **options: Any) -> Any:
    """A loader that gives `collate` one item after the other, and the same seeds to its workers each time."""
    torch.manual_seed(0)
    if workers:
        options = {"multiprocessing_context": method, "timeout": 300, **options}
    return DataLoader(items, batch_size=None, collate_fn=collate, num_workers=workers, **options)  # type: ignore[arg-type]
