"""Compares torch, NumPy and the code of transformers with the tested ones. If they differ: warns once, falls back.

The code decides, not the version number: a later release with the same functions is accepted.
"""

import functools
import operator
import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import tokenization_utils_base
from transformers.data import data_collator

from quadrat import _core
from quadrat.installed import originals
from quadrat.installed.config import FINGERPRINTS, RANGES
from quadrat.installed.fingerprints import fingerprint
from quadrat.installed.originals import module_of
from quadrat.ops.pad import pad
from quadrat.support.extras import is_within, version
from quadrat.support.kinds import Framework


@dataclass(frozen=True, eq=False)
class Imitation:
    """One replaced function or class: its source, its options, its error rules.

    It is an attribute of the class that imitates the thing. That class calls the reference, makes the batches, and says
    which batches are quadrat's own.
    """

    name: str
    # Functions and classes whose code it stands for, see `code_of`; () of what is quadrat's own.
    reference: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()  # options besides the fields of the class; those of sets are compared by content
    unguarded: tuple[str, ...] = ()  # fields that make no difference to a plan
    compares: bool = True  # whether unknown code may be compared; not what is made once in an epoch or an evaluation
    # How a batch comes from features, as errors explain it: "padded", "stacked", "joined", "masked" or "choices".
    form: str = "padded"
    labels: Any = None  # the `Role` of a column of labels; None: a label per row

    def __post_init__(self) -> None:
        if self.name:
            TABLE[self.name] = self

    @property
    def library(self) -> str:
        """The library whose code it stands for."""
        return library_of(self.name)


def imitation_of(subject: Any) -> Imitation:
    """The imitation of a collator or of a function; that of batches without padding has no reference."""
    row: Imitation = subject._imitates
    return TABLE[PADDING_FREE] if getattr(subject, "padding_free", False) else row


PADDING_FREE = "padding_free"
NOTHING = Imitation("")  # of what has no row
TABLE: dict[str, Imitation] = {}  # of all modules that are loaded; see quadrat.integration.table
CODE: dict[str, Any] = {}  # by name; None where this version has none. Guards detect patches that come later.
BROKEN: dict[str, str] = {}  # names of code that does not import -> the error


def library_of(name: str) -> str:
    """The library of a row, or of a function or class."""
    return "TRL" if name.startswith("trl.") else "transformers"


def code_of(*names: str, home: str | None = None) -> tuple[str, ...]:
    """The names, for a row; and their code to `CODE`. home: a module of transformers; None: one that always loads."""
    loaded = (data_collator, tokenization_utils_base) if home is None else (module_of(home),)
    for name in names:
        if isinstance(loaded[0], str):
            BROKEN[name] = f"transformers.{home} does not import: {loaded[0]}"
            continue
        home_module = next((module for module in loaded if hasattr(module, name.partition(".")[0])), None)
        CODE.setdefault(name, originals.METHODS.get(name) or originals.PATCHED.get(name))
        if CODE[name] is None and home_module is not None:
            CODE[name] = operator.attrgetter(name)(home_module)
    return names


def code_of_trl(*codes: Any) -> tuple[str, ...]:
    """As `code_of`, for functions and classes of TRL, by their full names."""
    by_name = {f"{code.__module__}.{code.__qualname__}": code for code in codes}
    for name, code in by_name.items():
        CODE.setdefault(name, code)
    return tuple(by_name)


# Code that several rows stand for.
PADDING = code_of(
    "pad_without_fast_tokenizer_warning",
    "PreTrainedTokenizerBase.pad",
    "PreTrainedTokenizerBase._pad",
    "PreTrainedTokenizerBase._get_padding_truncation_strategies",
    "BatchEncoding.convert_to_tensors",
)
BARE_ROWS = code_of("DataCollatorMixin", "_torch_collate_batch", "_numpy_collate_batch", "tolist")

# By the name of a row: how batches were found to differ from those of unknown code.
DIFFERENCES: dict[str, str] = {}
_COMPARED: set[str] = set()  # as the environment asks for when code is looked at


def trusted() -> bool:
    """True if the environment asks for compiled batches with untested versions, too."""
    return os.environ.get("QUADRAT_UNTESTED", "") not in ("", "0", "compare")


def compares(row: Imitation) -> bool:
    """True if batches of a row are compared with those of unknown code, and have not differed so far."""
    return changed(row) is not None and row.name in _COMPARED and row.name not in DIFFERENCES


@functools.cache
def changed(row: Imitation) -> str | None:
    """The first function or class of a row's reference that is unknown; None if all are known, or all are trusted."""
    _COMPARED.discard(row.name)
    name = next((name for name in row.reference if name in BROKEN), None)
    if name is not None or trusted():
        return name
    if os.environ.get("QUADRAT_UNTESTED") == "compare" and row.compares:
        _COMPARED.add(row.name)
    return next((name for name in row.reference if not is_known(name)), None)


def unknown(row: Imitation) -> str | None:
    """The reason to leave batches to the reference, as a warning says once; None if the code is known, or compared."""
    if row.name in DIFFERENCES:
        return DIFFERENCES[row.name]
    name = changed(row)
    if name is None or compares(row):
        return None
    _warn_of(name)
    return BROKEN.get(name) or f"{name} of {library_of(name)} {version(library_of(name).lower())} is unknown"


def is_known(name: str) -> bool:
    """True if a function or class, by its name in a row, is one that quadrat was tested with."""
    code = CODE.get(name)
    if name in BROKEN or code is None:
        return name not in BROKEN
    own_fingerprint = fingerprint(code)
    if own_fingerprint is None:  # there is no source to look at: by the number after all
        package = library_of(name).lower()
        return is_within(RANGES[package], version(package))
    return own_fingerprint in FINGERPRINTS.get(name, ())


@functools.cache
def _warn_of(name: str) -> None:
    library = library_of(name)
    if name in BROKEN:
        warnings.warn(f"quadrat leaves `{name}` to {library}: {BROKEN[name]}.", stacklevel=2)
        return
    oldest, newest = RANGES[library.lower()]
    warnings.warn(
        f"quadrat {_core.__version__} does not know `{name}` of {library} {version(library.lower())}; it was tested "
        f"with {oldest} to {newest}. What depends on it is left to {library}: the results are right, but not faster. "
        "Upgrade quadrat; or set QUADRAT_UNTESTED=compare in the environment to compare the first batches with those "
        f"of {library} and compile the others, or QUADRAT_UNTESTED=1 to compile all.",
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
    verdict, maker = ("right", "quadrat") if works else ("wrong", "transformers")
    warnings.warn(
        f"quadrat {_core.__version__} was not tested with {' and '.join(untested)}, but with {ranges}. "
        f"A test batch was {verdict}, so {maker} makes the batches. "
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
        batches = [pad(rows, return_tensors=framework) for rows in forms]
        floats = pad([[0.5], [1.5, -2.0]], return_tensors=framework)
        return (
            all(batch.tolist() == expected and str(batch.dtype).endswith("int64") for batch in batches)
            and floats.tolist() == [[0.5, 0.0], [1.5, -2.0]]
            and all(batch.sum() == 2 for batch in batches)
        )
    except Exception:  # an interface of another shape
        return False
