"""The classes and functions of the installed transformers that quadrat replaces, as they are without a patch.

quadrat's collators derive from these, and while transformers is patched, pickles find the original classes here.
"""

import functools
import importlib
from types import ModuleType
from typing import Any

import transformers
from transformers.data import data_collator
from transformers.data.data_collator import (
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForPermutationLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from transformers.tokenization_utils_base import BatchEncoding, PreTrainedTokenizerBase

# Names that every supported version has.
__all__ = [
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DefaultDataCollator",
    "default_data_collator",
]

if "whole_word_mask" not in DataCollatorForLanguageModeling.__dataclass_fields__:
    raise ImportError(
        f"quadrat's collators need transformers 4.57 or later, and {transformers.__version__} is installed: "
        "install a later one with `pip install 'quadrat[transformers]'`"
    )


PADS_LABELS = (DataCollatorForSeq2Seq, DataCollatorForTokenClassification)
ORIGINALS: dict[str, Any] = {name: globals()[name] for name in __all__}
_words = getattr(data_collator, "DataCollatorForWholeWordMask", None)
if hasattr(_words, "_shuffle"):  # that of 4.x: early 5.x have another one of this name
    ORIGINALS["DataCollatorForWholeWordMask"] = _words


@functools.cache
def module_of(name: str) -> ModuleType | str:
    """A module of transformers that is imported to look at it; the error where a library that it needs is broken."""
    try:
        return importlib.import_module(f"transformers.{name}")
    except Exception as error:
        return f"{type(error).__name__}: {error}"


OF_TRAINER = ("EvalLoopContainer", "LengthGroupedSampler")  # not every version has both
# What `patch_transformers` replaces, and the module where each is defined.
PATCHED: dict[str, Any] = ORIGINALS | {
    name: getattr(module_of("trainer_pt_utils"), name)
    for name in OF_TRAINER
    if hasattr(module_of("trainer_pt_utils"), name)
}
# What `patch_tokenizers` replaces.
PAD = PreTrainedTokenizerBase.pad
CONVERT_TO_TENSORS = BatchEncoding.convert_to_tensors
# Methods by their names, as they are without a patch.
METHODS: dict[str, Any] = {"PreTrainedTokenizerBase.pad": PAD, "BatchEncoding.convert_to_tensors": CONVERT_TO_TENSORS}
globals().update(PATCHED)


def is_of(method: Any, original: Any) -> bool:
    """True if a method is one of these originals, or what a patch puts in its place."""
    return original is not None and original in (method, getattr(method, "_quadrat_replaces", None))
