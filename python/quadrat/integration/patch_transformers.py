"""`patch_transformers`: replaces names in the modules of transformers with quadrat's classes and functions."""

import functools
import gc
import importlib.util
import logging
import sys
from types import ModuleType
from typing import Any

from transformers.utils.import_utils import _LazyModule

from quadrat._names import load
from quadrat.installed import imitated, originals
from quadrat.integration.patch_tokenizers import TOKENIZERS
from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.planning.feature_pad import FeaturePadOptions, feature_pad


def patch_transformers(*, datasets: bool = True, tokenizers: bool = True, feature_extractors: bool = True) -> Patch:
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
        feature_extractors: whether to patch `feature_extractor.pad(...)` too, which feature extractors also call
            themselves; classes that override `pad`, `_pad` or `_truncate` do not change.

    Examples:
        >>> import quadrat, transformers
        >>> with quadrat.patch_transformers():
        ...     transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        True
    """
    switches = switches_of(feature_extractors=feature_extractors)
    if tokenizers:
        switches.append(TOKENIZERS)
    if datasets and importlib.util.find_spec("datasets") is not None:
        from quadrat.integration.patch_datasets import DATASETS

        switches.append(DATASETS)
    return Patch("patch_transformers", *switches)


def switches_of(*, feature_extractors: bool) -> list[Switch]:
    """The patch of transformers itself, a part of `patch_transformers`."""
    asked = {TRANSFORMERS: True, FEATURE_EXTRACTORS: feature_extractors}
    if feature_extractors and originals.FEATURE_PAD is None:  # those who want them know
        logging.getLogger("quadrat").info("%s", imitated.BROKEN["SequenceFeatureExtractor.pad"])
        asked[FEATURE_EXTRACTORS] = False
    return [switch for switch, wanted in asked.items() if wanted]


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


@functools.wraps(originals.FEATURE_PAD)
def _pad(  # noqa: PLR0917 - as in transformers
    self: Any,
    processed_features: Any,
    padding: Any = True,
    max_length: Any = None,
    truncation: Any = False,
    pad_to_multiple_of: Any = None,
    return_attention_mask: Any = None,
    return_tensors: Any = None,
) -> Any:
    sizes = padding, max_length, truncation, pad_to_multiple_of
    return feature_pad(self, processed_features, FeaturePadOptions(*sizes, return_attention_mask, return_tensors))


_pad._quadrat_replaces = originals.FEATURE_PAD  # type: ignore[attr-defined]
TRANSFORMERS = Switch(_swaps, "transformers", others=_lazy_modules)
FEATURE_EXTRACTORS = Switch(lambda: [Swap(originals.FEATURE_PAD, _pad)], others=lambda: [originals.FEATURE_EXTRACTOR])
