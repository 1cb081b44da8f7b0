"""`patch_trl`: replaces names in the modules of TRL with quadrat's classes and functions."""

from __future__ import annotations

import functools
import sys
from typing import Any

from quadrat.batching.pack_dataset import pack_dataset
from quadrat.integration.switch import Patch, Switch
from quadrat.support.extras import needs


def patch_trl() -> Patch:
    """Replace the collators, `pad` and `pack_dataset` of TRL with quadrat's, in this process.

    `SFTTrainer`, `DPOTrainer`, `RewardTrainer`, `KTOTrainer` and `TPOTrainer` without `data_collator` then use
    quadrat's; all trainers and collators of TRL that pad use `quadrat.trl.pad`, also in modules that are loaded later.
    Names that were imported earlier do not change: call this before `from trl... import DataCollator...`.

    Returns:
        A context manager, which undoes the patch at the end of its block; `.undo()` undoes it at any time. With
        several patches, undoing the last one restores TRL.

    Raises:
        ModuleNotFoundError: when TRL is not installed.

    Examples:
        >>> import quadrat, trl.trainer.utils
        >>> with quadrat.patch_trl():
        ...     trl.trainer.utils.pad is quadrat.trl.pad
        True
    """
    return Patch("patch_trl", TRL)


@functools.cache
def _modules() -> list[Any]:
    """The modules of quadrat with a collator each; they load TRL, which not everybody has."""
    with needs("quadrat.patch_trl"):
        from quadrat import trl
    return [module for module in (trl.sft, trl.dpo, trl.reward, trl.kto, trl.tpo) if module is not None]


@functools.cache
def _twins() -> list[tuple[Any, Any]]:
    """What TRL has, and what quadrat has in its place."""
    modules = _modules()
    from trl import data_utils

    from quadrat.trl import padding

    collators = [(module.Original, getattr(module, module.Original.__name__)) for module in modules]
    return [(data_utils.pack_dataset, pack_dataset), (padding.Original, padding.pad), *collators]


@functools.cache
def _addresses() -> dict[Any, tuple[str, str]]:
    """Where TRL's collators are at home."""
    return {module.Original: (module.Original.__module__, module.Original.__qualname__) for module in _modules()}


def _put(places: list[tuple[Any, Any]]) -> None:
    """In each module of TRL, the second of each pair where the first is."""
    found = {id(old): new for old, new in places}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trl":
            own = getattr(module, "__dict__", {})  # not getattr, which a lazy module would answer by loading things
            for key, value in list(own.items()):
                if id(value) in found:
                    setattr(module, key, found[id(value)])


def _swap() -> None:
    _addresses()  # before they change
    _put(_twins())
    for module in _modules():  # where pickles find the originals meanwhile
        module.Original.__module__, module.Original.__qualname__ = module.__name__, "Original"


def _restore() -> None:
    _put([(twin, original) for original, twin in _twins()])
    for original, address in _addresses().items():
        original.__module__, original.__qualname__ = address


TRL = Switch(_swap, _restore)
