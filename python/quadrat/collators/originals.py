"""What the installed transformers has and quadrat has a twin of, as it is without `patch_transformers`.

While transformers is patched they have no other address, so this is where pickles look for them.
"""

from __future__ import annotations

from typing import Any

from transformers import trainer_pt_utils
from transformers.data import data_collator

import quadrat


def masks_words_as_4(cls: Any) -> bool:
    """Whether a class named `DataCollatorForWholeWordMask` is that of 4.x, not the other one that early 5.x have."""
    return hasattr(cls, "_whole_word_mask") and hasattr(cls, "_shuffle")


# Collators: whatever quadrat exports from its own under a name that transformers has too, for the same thing.
ORIGINALS: dict[str, Any] = {
    name: getattr(data_collator, name)
    for name, home in quadrat._HOMES.items()
    if home.startswith("quadrat.collators.")
    and hasattr(data_collator, name)
    and (name != "DataCollatorForWholeWordMask" or masks_words_as_4(data_collator.DataCollatorForWholeWordMask))
}
# What `patch_transformers` swaps, and where each is at home.
PATCHED: dict[str, Any] = {**ORIGINALS, "EvalLoopContainer": trainer_pt_utils.EvalLoopContainer}
HOMES = {name: original.__module__ for name, original in PATCHED.items()}
globals().update(PATCHED)


def twins(originals: dict[str, Any]) -> dict[str, Any]:
    """Name -> quadrat's class or function, for each of the originals."""
    return {name: getattr(quadrat, name) for name in originals}
