"""`patch_trl`: replaces names in the modules of TRL with quadrat's classes and functions."""

from __future__ import annotations

from quadrat.batching.pack_dataset import pack_dataset
from quadrat.integration.switch import Patch, Swap, Switch
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


def _swaps() -> list[Swap]:
    with needs("quadrat.patch_trl"):
        from quadrat import trl
    from trl import data_utils

    from quadrat.trl import padding

    modules = [module for module in (trl.sft, trl.dpo, trl.reward, trl.kto, trl.tpo) if module is not None]
    found = [Swap(data_utils.pack_dataset, pack_dataset), Swap(padding.Original, padding.pad)]
    for module in modules:
        twin = getattr(module, module.Original.__name__)
        found.append(Swap(module.Original, twin, (module.__name__, "Original")))
    return found


TRL = Switch(_swaps, "trl")
