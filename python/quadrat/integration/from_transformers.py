"""`from_transformers`: converts a collator of transformers to quadrat's class."""

# In this project's own check the classes of transformers are all one type.
# mypy: disable-error-code="overload-cannot-match"

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from quadrat._names import load
from quadrat.installed.originals import ORIGINALS
from quadrat.planning.diagnosis.values import kind_of
from quadrat.planning.remembering import Remembering

if TYPE_CHECKING:
    from transformers.data import data_collator as theirs

    import quadrat


@overload
def from_transformers(collator: theirs.DataCollatorForLanguageModeling) -> quadrat.DataCollatorForLanguageModeling: ...
@overload
def from_transformers(collator: theirs.DataCollatorForMultipleChoice) -> quadrat.DataCollatorForMultipleChoice: ...
@overload
def from_transformers(
    collator: theirs.DataCollatorForPermutationLanguageModeling,
) -> quadrat.DataCollatorForPermutationLanguageModeling: ...
@overload
def from_transformers(collator: theirs.DataCollatorForSeq2Seq) -> quadrat.DataCollatorForSeq2Seq: ...
@overload
def from_transformers(
    collator: theirs.DataCollatorForTokenClassification,
) -> quadrat.DataCollatorForTokenClassification: ...
@overload
def from_transformers(collator: theirs.DataCollatorWithFlattening) -> quadrat.DataCollatorWithFlattening: ...
@overload
def from_transformers(collator: theirs.DataCollatorWithPadding) -> quadrat.DataCollatorWithPadding: ...
@overload
def from_transformers(collator: theirs.DefaultDataCollator) -> quadrat.DefaultDataCollator: ...
@overload
def from_transformers(collator: Any) -> Callable[..., dict[str, Any]]: ...


def from_transformers(collator: Any) -> Any:
    """Convert a transformers collator to quadrat's class of the same name.

    Args:
        collator: an instance of one of the transformers collator classes, or `transformers.default_data_collator`.

    Returns:
        An instance of the quadrat class of the same name. It holds the same objects as `collator`: the
        options, the tokenizer, and a generator in its current state. Options that only quadrat has get their defaults.
        A collator of quadrat is returned unchanged.

    Raises:
        TypeError: for your own class derived from a transformers collator, a class instead of an instance, a collator
            that quadrat does not have, and for anything else.

    Examples:
        >>> import quadrat
        >>> from transformers import DataCollatorWithFlattening
        >>> collator = quadrat.from_transformers(DataCollatorWithFlattening(separator_id=-1))
        >>> isinstance(collator, quadrat.DataCollatorWithFlattening), collator.separator_id
        (True, -1)
    """
    if isinstance(collator, Remembering) or any(collator is load(name) for name in ORIGINALS):
        return collator
    if collator is ORIGINALS["default_data_collator"]:
        return load("default_data_collator")
    names = {original: name for name, original in ORIGINALS.items()}
    if (name := names.get(type(collator))) is not None:
        twin = object.__new__(load(name))
        twin.__setstate__(vars(collator))
        return twin
    cls = collator if inspect.isclass(collator) else type(collator)
    base = next((names[ancestor] for ancestor in cls.__mro__ if ancestor in names), None)
    if base is None:
        raise TypeError(f"{kind_of(collator)} is not a collator that from_transformers knows: {', '.join(ORIGINALS)}")
    if cls is ORIGINALS[base]:
        raise TypeError(f"from_transformers takes an instance: use the class quadrat.{base} instead of {base}")
    if cls.__name__ == "DataCollatorForWholeWordMask" and cls.__module__.startswith("transformers."):
        raise TypeError(
            "this DataCollatorForWholeWordMask, unlike that of transformers 4, is a DataCollatorForLanguageModeling "
            "with whole_word_mask=True: use quadrat.DataCollatorForWholeWordMask, which is one too"
        )
    if cls.__module__.startswith("transformers."):
        raise TypeError(f"quadrat has no replacement for transformers.{cls.__name__}: use it as it is")
    raise TypeError(
        f"{cls.__name__} is derived from transformers.{base} and may override its behaviour: "
        f"derive it from quadrat.{base} instead"
    )
