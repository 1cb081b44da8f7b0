"""`patch_transformers` and `patch_tokenizers`: quadrat's classes and functions in place of those of transformers."""

import functools
import gc
import importlib.util
import sys
from types import ModuleType
from typing import Any

from transformers import BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.import_utils import _LazyModule

from quadrat._names import load
from quadrat.installed import originals
from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.planning.conversion import convert_to_tensors
from quadrat.tokenizers.pad import pad_or_fall_back


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
    referrers = [module for module in gc.get_referrers(_LazyModule) if type(module) is _LazyModule]
    # `gc.get_referrers` does not see objects after `gc.freeze`.
    names = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))
    return referrers + [value for part in names for value in list(part.values()) if type(value) is _LazyModule]


def _swaps() -> list[Swap]:
    # All are loaded before any is swapped, so that they derive from the originals.
    twins = [(original, load(name)) for name, original in originals.PATCHED.items()]
    return [Swap(original, twin, (originals.__name__, original.__qualname__)) for original, twin in twins]


TRANSFORMERS = Switch(_swaps, "transformers", others=_lazy_modules)


def patch_tokenizers() -> Patch:
    """Make the tokenizers of transformers pad and convert with quadrat, in this process.

    `tokenizer.pad(...)` and `tokenizer(texts, padding=True, return_tensors="pt")` then use `tokenizer_pad` and
    `convert_to_tensors`. Results and errors do not change, and tokenizers that were made earlier are patched too.
    Classes that override `pad`, and subclasses of `BatchEncoding` that override `convert_to_tensors`, do not change.
    The patch is undone like that of `quadrat.patch`.

    Examples:
        >>> import quadrat
        >>> from transformers import PreTrainedTokenizerBase
        >>> before = PreTrainedTokenizerBase.pad
        >>> with quadrat.tokenizers.patch_tokenizers():
        ...     PreTrainedTokenizerBase.pad is before
        False
    """
    return Patch("tokenizers.patch_tokenizers", TOKENIZERS)


@functools.wraps(originals.PAD)
def _pad(  # noqa: PLR0917 - as in transformers
    self: Any,
    encoded_inputs: Any,
    padding: Any = True,
    max_length: Any = None,
    pad_to_multiple_of: Any = None,
    padding_side: Any = None,
    return_attention_mask: Any = None,
    return_tensors: Any = None,
    verbose: Any = True,
) -> Any:
    options = padding, max_length, pad_to_multiple_of, padding_side, return_attention_mask, verbose
    return pad_or_fall_back(self, encoded_inputs, options, return_tensors)


_pad._quadrat_replaces = originals.PAD  # type: ignore[attr-defined]


@functools.wraps(originals.CONVERT_TO_TENSORS)
def _convert_to_tensors(self: Any, tensor_type: Any = None, prepend_batch_axis: Any = False) -> Any:
    return convert_to_tensors(self, tensor_type, prepend_batch_axis)


TOKENIZERS = Switch(
    lambda: [Swap(originals.PAD, _pad), Swap(originals.CONVERT_TO_TENSORS, _convert_to_tensors)],
    others=lambda: [PreTrainedTokenizerBase, BatchEncoding],
)
