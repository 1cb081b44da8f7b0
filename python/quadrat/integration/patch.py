"""`patch_transformers`: replaces names in the modules of transformers with quadrat's classes and functions."""

from __future__ import annotations

import gc
import importlib.util
import sys
from types import ModuleType
from typing import Any

from transformers.utils.import_utils import _LazyModule

from quadrat._names import load
from quadrat.installed import originals
from quadrat.installed.originals import HOMES, PATCHED
from quadrat.integration.patch_attention import ATTENTION
from quadrat.integration.patch_tokenizers import TOKENIZERS
from quadrat.integration.switch import Patch, Switch


def patch_transformers(*, datasets: bool = True, tokenizers: bool = True, attention: bool = True) -> Patch:
    """Replace the collators, samplers and `EvalLoopContainer` of transformers with quadrat's, in this process.

    `transformers.DataCollatorWithPadding` is then `quadrat.DataCollatorWithPadding`, and so for each collator that
    quadrat has, in every module of transformers, also in modules that are loaded later. A `Trainer` without
    `data_collator` uses quadrat's, and every `Trainer` gathers predictions in quadrat's container and groups rows by
    length with quadrat's samplers. Names that were imported earlier and existing collators do not change: call this
    before `from transformers import ...`, or give existing collators to `from_transformers`.

    Args:
        datasets: whether to patch `datasets` too, if it is installed, see `patch_datasets`.
        tokenizers: whether to patch the padding and conversion of tokenizers too, see `patch_tokenizers`.
        attention: whether models with flash attention remove padding with the functions of `quadrat.bert_padding`,
            which read a mask once instead of in each layer.

    Returns:
        A context manager, which undoes the patch at the end of its block; `.undo()` undoes it at any time.
        With several patches, undoing the last one restores transformers.

    Examples:
        >>> import quadrat, transformers
        >>> with quadrat.patch_transformers():
        ...     transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        True
        >>> transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        False
    """
    switches = [TRANSFORMERS, *((TOKENIZERS,) if tokenizers else ()), *((ATTENTION,) if attention else ())]
    if datasets and importlib.util.find_spec("datasets") is not None:
        from quadrat.integration.patch_datasets import DATASETS

        switches.append(DATASETS)
    return Patch("patch_transformers", *switches)


# What each module of transformers had under these names before it was patched.
_before: dict[ModuleType, dict[str, Any]] = {}


def _loaded() -> list[ModuleType]:
    # transformers runs its __init__ a second time when Trainer is loaded: the lazy module that a first
    # `import transformers` led to is in use, but no longer in sys.modules.
    lazy = [one for one in gc.get_referrers(_LazyModule) if type(one) is _LazyModule]
    # `gc.get_referrers` does not see objects after `gc.freeze`.
    names = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))
    lazy += [value for own in names for value in list(own.values()) if type(value) is _LazyModule]
    named = [*sys.modules.copy().items(), *((one.__name__, one) for one in lazy)]
    ours = (one for name, one in named if name.partition(".")[0] == "transformers" and isinstance(one, ModuleType))
    return list(dict.fromkeys(ours))


def _swap() -> None:
    # Load them now, so that they derive from the originals.
    found = {name: load(name) for name in PATCHED}
    for module in _loaded():
        own = vars(module)  # not getattr, which a lazy module would answer by loading things
        _before[module] = {name: own[name] for name in found if name in own}
        for name, twin in found.items():
            if own.get(name) is PATCHED[name]:
                setattr(module, name, twin)
    for original in PATCHED.values():
        original.__module__ = originals.__name__


def _restore() -> None:
    found = {name: load(name) for name in PATCHED}
    for module in {**_before, **dict.fromkeys(_loaded())}:
        own = vars(module)
        # A module loaded in between has what it took from the originals' homes; a lazy one looks there again.
        new = module not in _before and not isinstance(module, _LazyModule)
        before = PATCHED if new else _before.get(module, {})
        for name, twin in found.items():
            if own.get(name) is not twin:
                continue
            if name in before:
                setattr(module, name, before[name])
            else:
                delattr(module, name)
    for name, original in PATCHED.items():
        original.__module__ = HOMES[name]
    _before.clear()


TRANSFORMERS = Switch(_swap, _restore)
