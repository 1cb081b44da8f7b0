"""TRL's collators and `pad` with quadrat's kernels: drop-in, bit-identical to the installed TRL.

Each trainer has a module here with the collator it uses, in place of that in the trainer's own module: `sft`, `dpo`,
`reward`, `kto` and `tpo`. Options are those of the installed TRL; docstrings list those of TRL 1.16. If the installed
TRL lacks a class of the last two, or makes other outputs, None stands in place of its module. `patch_trl` makes TRL use
them all.
"""

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
