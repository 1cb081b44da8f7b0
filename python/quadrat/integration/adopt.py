"""`from_transformers`: makes a collator of transformers quadrat's."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

from quadrat._names import load
from quadrat.installed.originals import ORIGINALS
from quadrat.planning.plan_cache import Remembering


def from_transformers(collator: Any) -> Any:
    """Convert a transformers collator to quadrat's class of the same name.

    Args:
        collator: an instance of one of the transformers collator classes, or `transformers.default_data_collator`.

    Returns:
        An instance of the quadrat class of the same name. It holds the same objects as `collator`: the
        options, the tokenizer, and a generator in its current state. Options that only quadrat has get their defaults.
        A collator of quadrat is returned unchanged.

    Raises:
        TypeError: for a class of your own derived from a transformers collator, a class instead of an instance, a
            collator that quadrat does not have, and for anything else.

    Examples:
        >>> import quadrat
        >>> from transformers import DataCollatorWithFlattening
        >>> collator = quadrat.from_transformers(DataCollatorWithFlattening(separator_id=-1))
        >>> isinstance(collator, quadrat.DataCollatorWithFlattening), collator.separator_id
        (True, -1)
    """
    found = {name: load(name) for name in ORIGINALS}
    if isinstance(collator, Remembering) or any(collator is twin for twin in found.values()):
        return collator
    for name, original in ORIGINALS.items():
        if collator is original and not inspect.isclass(original):
            return found[name]
        if type(collator) is original:
            twin = object.__new__(found[name])
            twin.__setstate__(vars(collator))
            return twin
    _refuse(collator)


def _refuse(collator: Any) -> NoReturn:
    names = {original: name for name, original in ORIGINALS.items()}
    cls = collator if inspect.isclass(collator) else type(collator)
    base = next((names[one] for one in cls.__mro__ if one in names), None)
    if base is None:
        raise TypeError(f"{collator!r} is no collator that from_transformers knows: {', '.join(ORIGINALS)}")
    if cls is ORIGINALS[base]:
        raise TypeError(f"from_transformers takes an instance: use the class quadrat.{base} in place of {base}")
    if cls.__name__ == "DataCollatorForWholeWordMask" and cls.__module__.startswith("transformers."):
        raise TypeError(
            "this DataCollatorForWholeWordMask, unlike that of transformers 4, is a DataCollatorForLanguageModeling "
            "with whole_word_mask=True: use quadrat.DataCollatorForLanguageModeling(whole_word_mask=True) instead"
        )
    if cls.__module__.startswith("transformers."):
        raise TypeError(f"quadrat has no twin of transformers.{cls.__name__}: use it as it is")
    raise TypeError(
        f"{cls.__name__} is derived from transformers.{base} and may do its work in another way: "
        f"derive it from quadrat.{base} instead"
    )
