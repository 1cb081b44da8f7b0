"""Compares torch, NumPy and the code of transformers with the tested ones. If they differ: warns once, falls back.

The code decides, not the version number: a later release with the same functions is accepted.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import linecache
import operator
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import transformers
from transformers import (
    feature_extraction_sequence_utils,
    feature_extraction_utils,
    tokenization_utils_base,
    trainer_pt_utils,
)
from transformers.data import data_collator

from quadrat import _core
from quadrat.installed.config import FINGERPRINTS, RANGES
from quadrat.installed.originals import PARTS_OF_FEATURE_PAD, PATCHED
from quadrat.ops.pad import pad
from quadrat.support.extras import is_within, version
from quadrat.support.kinds import Framework

# Triple-quoted text that begins a line: docstrings.
_TEXT = re.compile(r"""^\s*[rR]?(\"{3}|'{3}).*?\1\s*$""", re.MULTILINE | re.DOTALL)

_PAD = (
    "pad_without_fast_tokenizer_warning",
    "PreTrainedTokenizerBase.pad",
    "PreTrainedTokenizerBase._pad",
    "PreTrainedTokenizerBase._get_padding_truncation_strategies",
    "BatchEncoding.convert_to_tensors",
)
_ROWS = ("DataCollatorMixin", "_torch_collate_batch", "_numpy_collate_batch", "tolist")
_DEFAULT = ("default_data_collator", "torch_default_data_collator", "numpy_default_data_collator")

# By what imitates them: functions and classes of transformers, wherever in it they are.
IMITATED: dict[str, tuple[str, ...]] = {
    "DataCollatorWithPadding": ("DataCollatorWithPadding", *_PAD),
    "DataCollatorForSeq2Seq": ("DataCollatorForSeq2Seq", *_PAD),
    "DataCollatorForTokenClassification": ("DataCollatorForTokenClassification", "DataCollatorMixin", *_PAD),
    "DataCollatorForMultipleChoice": ("DataCollatorForMultipleChoice", "DataCollatorMixin", *_PAD),
    "DataCollatorForLanguageModeling": ("DataCollatorForLanguageModeling", *_ROWS, *_PAD),
    "DataCollatorForPermutationLanguageModeling": ("DataCollatorForPermutationLanguageModeling", *_ROWS),
    "DataCollatorForWholeWordMask": ("DataCollatorForWholeWordMask", "DataCollatorForLanguageModeling", *_ROWS),
    "DataCollatorWithFlattening": ("DataCollatorWithFlattening",),
    "default_data_collator": ("DefaultDataCollator", *_DEFAULT),
    "tokenizer_pad": _PAD[1:],
    "convert_to_tensors": _PAD[-1:],
    "feature_pad": (
        "SequenceFeatureExtractor.pad",
        *(f"SequenceFeatureExtractor.{name}" for name in PARTS_OF_FEATURE_PAD),
        *("BatchFeature.convert_to_tensors", "BatchFeature._get_is_as_tensor_fns"),
    ),
    "EvalLoopContainer": (
        *("EvalLoopContainer", "nested_concat", "torch_pad_and_concatenate", "numpy_pad_and_concatenate"),
        *("atleast_1d", "nested_numpify"),
    ),
    "LengthGroupedSampler": ("LengthGroupedSampler", "get_length_grouped_indices"),
}


def _found(name: str) -> Any:
    sequences, features = feature_extraction_sequence_utils, feature_extraction_utils
    for home in (data_collator, tokenization_utils_base, trainer_pt_utils, sequences, features):
        if hasattr(home, name.partition(".")[0]):
            return PATCHED.get(name) or operator.attrgetter(name)(home)
    return None


# The code when this module loads; guards detect patches that come later.
CODE: dict[str, Any] = {name: _found(name) for names in IMITATED.values() for name in names}
if "DataCollatorForWholeWordMask" not in PATCHED:  # that of 5.x shares its name, and quadrat has its own
    CODE["DataCollatorForWholeWordMask"] = None


# By what imitates them: how batches were found to differ from those of unknown code.
DIFFERENCES: dict[str, str] = {}
_COMPARED: set[str] = set()  # as the environment asks for when code is looked at
# What is made once in an epoch or an evaluation: comparing takes as long as transformers alone.
_NOT_COMPARED = ("EvalLoopContainer", "LengthGroupedSampler")


def trusted() -> bool:
    """True if the environment asks for compiled batches with untested versions, too."""
    return os.environ.get("QUADRAT_UNTESTED", "") not in ("", "0", "compare")


def compares(twin: str) -> bool:
    """True if batches of `twin` are compared with those of unknown code, and have not differed so far."""
    return changed(twin) is not None and twin in _COMPARED and twin not in DIFFERENCES


@functools.cache
def changed(twin: str) -> str | None:
    """The first function or class imitated by `twin` that is unknown; None if all are known, or all are trusted."""
    if not twin or trusted():
        return None
    _COMPARED.discard(twin)
    if os.environ.get("QUADRAT_UNTESTED") == "compare" and twin not in _NOT_COMPARED:
        _COMPARED.add(twin)
    if twin not in IMITATED:  # code of TRL, which is not looked at
        return twin if twin in _COMPARED else None
    name = unlike_tested(twin)
    return None if name is None or key_of(twin) in remembered().get(twin, ()) else name


def unlike_tested(twin: str) -> str | None:
    """The first function or class imitated by `twin` that differs from those of the tested versions."""
    return next((name for name in IMITATED[twin] if not _is_known(name)), None)


def key_of(twin: str) -> str | None:
    """A key of all code that `twin` imitates, and this version of quadrat; None where some has no source."""
    found = ["" if (code := CODE[name]) is None else fingerprint(code) for name in IMITATED[twin]]
    return None if None in found else hashlib.sha256(repr((_core.__version__, found)).encode()).hexdigest()[:32]


def _remembered_in() -> Path:
    usual = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    return Path(usual or Path.home() / ".cache") / "quadrat" / "known.json"


def remembered() -> dict[str, list[str]]:
    """Keys of code that `quadrat verify --remember` found to agree, by what imitates it; none without such a file."""
    try:
        known = json.loads(_remembered_in().read_text(encoding="utf-8"))
        return {str(name): [str(one) for one in keys] for name, keys in known.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def remember(keys: dict[str, str]) -> Path:
    """Adds keys to the file of the user. Raises OSError."""
    known, file = remembered(), _remembered_in()
    for name, one in keys.items():
        known[name] = sorted({*known.get(name, ()), one})
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(known, indent=1), encoding="utf-8")
    part.replace(file)  # whole, for processes that read it meanwhile
    return file


def unknown(twin: str) -> str | None:
    """The reason to leave batches to the reference, as a warning says once; None if the code is known, or compared."""
    if twin in DIFFERENCES:
        return DIFFERENCES[twin]
    name = changed(twin)
    if name is None or compares(twin):
        return None
    _warn_of(name)
    return f"{name} of transformers {transformers.__version__} is unknown"


def _is_known(name: str) -> bool:
    code = CODE[name]
    if code is None:
        return True
    found = fingerprint(code)
    if found is None:  # there is no source to look at: by the number after all
        return is_within(RANGES["transformers"], version("transformers"))
    return found in FINGERPRINTS.get(name, ())


@functools.cache
def _warn_of(changed: str) -> None:
    oldest, newest = RANGES["transformers"]
    warnings.warn(
        f"quadrat {_core.__version__} does not know `{changed}` of transformers {transformers.__version__}; it was "
        f"tested with {oldest} to {newest}. What depends on it is left to transformers: the results are right, but not "
        "faster. Upgrade quadrat; or set QUADRAT_UNTESTED=compare in the environment to compare the first batches with "
        "those of transformers and compile the others, or QUADRAT_UNTESTED=1 to compile all.",
        stacklevel=2,
    )


def broken(framework: Framework) -> str | None:
    """Why quadrat makes no batches: with this untested torch or NumPy, a simple batch is wrong; else None."""
    return _broken("pt" if framework == "pt" and "torch" in sys.modules else "np")


@functools.cache
def _broken(framework: Framework) -> str | None:
    names = ("numpy", "torch") if framework == "pt" else ("numpy",)
    untested = [f"{name} {version(name)}" for name in names if not is_within(RANGES[name], version(name))]
    if not untested or trusted():
        return None
    works = _makes_batches(framework)
    ranges = ", ".join(f"{name} {' to '.join(RANGES[name])}" for name in names)
    found, maker = ("right", "quadrat") if works else ("wrong", "transformers")
    warnings.warn(
        f"quadrat {_core.__version__} was not tested with {' and '.join(untested)}, but with {ranges}. "
        f"A test batch was {found}, so {maker} makes the batches. "
        "Upgrade quadrat, or set QUADRAT_UNTESTED=1 in the environment to use quadrat's code without this test.",
        stacklevel=2,
    )
    return None if works else f"{' and '.join(untested)} would get wrong batches"


def _makes_batches(framework: Framework) -> bool:
    """True if rows in all forms are read and written as they are."""
    expected = [[1, 2, 3], [-4, 0, 0]]
    forms: list[Any] = [[[1, 2, 3], [-4]], [np.array([1, 2, 3]), np.array([-4])]]
    if framework == "pt":
        import torch

        forms.append([torch.tensor([1, 2, 3]), torch.tensor([-4])])
    try:
        made = [pad(rows, return_tensors=framework) for rows in forms]
        floats = pad([[0.5], [1.5, -2.0]], return_tensors=framework)
        return (
            all(batch.tolist() == expected and str(batch.dtype).endswith("int64") for batch in made)
            and floats.tolist() == [[0.5, 0.0], [1.5, -2.0]]
            and all(batch.sum() == 2 for batch in made)
        )
    except Exception:  # an interface of another shape
        return False


def fingerprint(thing: Any) -> str | None:
    """A fingerprint of a function, or of all that a class defines, the same on each Python; None without a source."""
    digest = hashlib.sha256()
    for function in functions_of(thing):
        lines = source_of(function)
        if not lines:
            return None
        digest.update(_TEXT.sub("", "\n".join(lines)).encode())
    return digest.hexdigest()[:16]


def functions_of(thing: Any) -> Iterator[FunctionType]:
    """The functions that a class defines; a function itself. Not what `dataclass` and the compiler of Python make."""
    for value in vars(thing).copy().values() if inspect.isclass(thing) else (thing,):
        for part in (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),):
            if not inspect.isfunction(part) or part.__module__ == "dataclasses":
                continue
            if part.__name__ in ("__repr__", "__annotate__"):  # in 3.14, annotations are in a function
                continue
            if not part.__code__.co_filename.startswith("<"):
                yield part


def source_of(function: FunctionType) -> list[str]:
    """As `inspect.getsource`, which is several times slower: the lines that hold code, none if there is no source."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    found: list[str] = []
    begun, outside = False, 0
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if not found:
            outside = indent
        if begun and indent <= outside and not text.startswith(")"):  # the end of a signature
            break
        begun = begun or text.startswith(("def ", "async def "))
        found.append(line.rstrip())
    return found
