"""`patch_transformers`: replaces names in the modules of transformers with quadrat's classes and functions."""

import gc
import importlib.util
import sys
from types import ModuleType

from transformers.utils.import_utils import _LazyModule

from quadrat._names import load
from quadrat.installed import originals
from quadrat.integration.patch_tokenizers import TOKENIZERS
from quadrat.integration.switch import Patch, Swap, Switch


def patch_transformers(*, datasets: bool = True, tokenizers: bool = True) -> Patch:
    """Replace the collators, samplers and `EvalLoopContainer` of transformers with quadrat's, in this process.

    `transformers.DataCollatorWithPadding` is then `quadrat.DataCollatorWithPadding`, and so for each collator that
    quadrat has, in every module of transformers, also in modules that are loaded later. A `Trainer` without
    `data_collator` uses quadrat's, and every `Trainer` gathers predictions in quadrat's container and groups rows by
    length with quadrat's samplers. Names that were imported earlier and existing collators do not change: call this
    before `from transformers import ...`, or give existing collators to `from_transformers`. The patch is undone like
    that of `quadrat.patch`.

    Args:
        datasets: whether to patch `datasets` too, if it is installed, see `patch_datasets`.
        tokenizers: whether to patch the padding and conversion of tokenizers too, see `patch_tokenizers`.

    Examples:
        >>> import quadrat, transformers
        >>> with quadrat.patch_transformers():
        ...     transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        True
    """
    switches = [TRANSFORMERS]
    if tokenizers:
        switches.append(TOKENIZERS)
    if datasets and importlib.util.find_spec("datasets") is not None:
        from quadrat.integration.patch_datasets import DATASETS

        switches.append(DATASETS)
    return Patch("patch_transformers", *switches)


def _lazy_modules() -> list[ModuleType]:
    """Those of transformers in use: when Trainer is loaded, its `__init__` runs again and replaces the first one."""
    found = [one for one in gc.get_referrers(_LazyModule) if type(one) is _LazyModule]
    # `gc.get_referrers` does not see objects after `gc.freeze`.
    names = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))
    return found + [value for own in names for value in list(own.values()) if type(value) is _LazyModule]


def _swaps() -> list[Swap]:
    # All are loaded before any is swapped, so that they derive from the originals.
    found = [(original, load(name)) for name, original in originals.PATCHED.items()]
    return [Swap(original, twin, (originals.__name__, original.__qualname__)) for original, twin in found]


TRANSFORMERS = Switch(_swaps, "transformers", others=_lazy_modules)
