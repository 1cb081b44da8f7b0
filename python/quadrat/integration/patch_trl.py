"""`patch_trl`: replaces names in the modules of TRL with quadrat's classes and functions."""

import sys
from typing import Any

from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.model.packing_check import warn_if_rows_mix
from quadrat.support.extras import needs
from quadrat.support.wrappers import surrounded


def patch_trl() -> Patch:
    """Replace the collators and `pad` of TRL with quadrat's, in this process.

    `SFTTrainer`, `DPOTrainer`, `RewardTrainer`, `KTOTrainer` and `TPOTrainer` without `data_collator` then use
    quadrat's; all trainers and collators of TRL that pad use `quadrat.trl.pad`, also in modules that are loaded later.
    Names that were imported earlier do not change: call this before `from trl... import DataCollator...`. The patch
    is undone like that of `quadrat.patch`.

    An `SFTTrainer` that packs rows or leaves the padding out (`packing`, `padding_free`) is checked when it is made: if
    the model does not keep rows apart, the logger `quadrat` warns; see `quadrat.check_packing`.

    Raises:
        ModuleNotFoundError: when TRL is not installed.

    Examples:
        >>> import quadrat, trl.trainer.utils
        >>> with quadrat.trl.patch_trl():
        ...     trl.trainer.utils.pad is quadrat.trl.pad
        True
    """
    return Patch("trl.patch_trl", TRL)


def _swaps() -> list[Swap]:
    with needs("quadrat.trl.patch_trl"):
        from quadrat import trl
    from trl import SFTTrainer

    from quadrat.trl import padding

    trl.sft.outputs()  # tried while TRL's class still calls TRL's `pad`
    start = SFTTrainer.__init__
    swaps = [Swap(padding.Original, padding.pad)]
    swaps.append(Swap(start, surrounded(start, lambda trainer, *_, **__: trainer, _check_rows)))
    for module in filter(None, (trl.sft, trl.dpo, trl.reward, trl.kto, trl.tpo)):
        twin = getattr(module, module.Original.__name__)
        swaps.append(Swap(module.Original, twin, (module.__name__, "Original")))
    return swaps


def _check_rows(trainer: Any, error: BaseException | None) -> None:
    if error is None and getattr(trainer, "padding_free", False):
        warn_if_rows_mix(trainer.model, trainer.data_collator)


_SFT = "trl.trainer.sft_trainer"
TRL = Switch(_swaps, "trl", others=lambda: [sys.modules[_SFT].SFTTrainer] if _SFT in sys.modules else [])
