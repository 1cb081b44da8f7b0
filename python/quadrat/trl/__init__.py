"""TRL's collators and `pad` with quadrat's kernels: drop-in, bit-identical to the installed TRL.

Each trainer has a module here with the collator it uses: `quadrat.trl.sft.DataCollatorForLanguageModeling`,
`quadrat.trl.dpo.DataCollatorForPreference`, `quadrat.trl.reward.DataCollatorForPreference`,
`quadrat.trl.kto.DataCollatorForUnpairedPreference`, `quadrat.trl.tpo.DataCollatorForTriplePreference`. If the installed
TRL lacks one of the last two classes, or makes other outputs, None stands in place of its module. `patch_trl` makes TRL
use them all.
"""

from __future__ import annotations

import warnings
from types import ModuleType

from quadrat.support.extras import needs

with needs("quadrat.trl"):
    import trl  # noqa: F401 - before all that imports parts of it

from quadrat._names import public
from quadrat.trl import dpo, padding, reward, sft  # noqa: F401

kto: ModuleType | None
tpo: ModuleType | None
with warnings.catch_warnings():
    # Of TRL's experimental trainers, whose names are replaced whether a program uses them or not.
    warnings.filterwarnings("ignore", "You are importing from 'trl.experimental'")
    try:
        from quadrat.trl import kto
    except ImportError:
        kto = None
    try:
        from quadrat.trl import tpo
    except ImportError:
        tpo = None

__all__, __getattr__, __dir__ = public(__name__, __file__)
