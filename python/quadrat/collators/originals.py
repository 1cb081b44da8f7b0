"""The collators of the installed transformers that quadrat has twins of, as they are without `patch_transformers`.

While transformers is patched they have no other address, so this is where pickles look for them.
"""

from __future__ import annotations

from typing import Any

from transformers.data import data_collator

import quadrat

# Whatever quadrat exports from its collators under a name that transformers has too.
ORIGINALS: dict[str, Any] = {
    name: getattr(data_collator, name)
    for name, home in quadrat._HOMES.items()
    if home.startswith("quadrat.collators.") and hasattr(data_collator, name)
}
globals().update(ORIGINALS)


def twins() -> dict[str, Any]:
    """Name -> quadrat's class or function, for each of the originals."""
    return {name: getattr(quadrat, name) for name in ORIGINALS}
