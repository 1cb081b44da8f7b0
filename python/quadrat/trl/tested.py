"""The code of TRL's online trainers that has to be the tested one: rows of the table of what is imitated."""

import inspect
import warnings
from typing import Any

from trl.trainer import grpo_trainer, rloo_trainer

from quadrat.installed import imitated
from quadrat.installed.imitated import BROKEN, TABLE, Row, code_of_trl

_MODULES = {"GRPOTrainer": grpo_trainer, "RLOOTrainer": rloo_trainer}
# What makes a pass, whose results are 0 at masked places; and what makes micro-batches, and a loss of them.
_NAMES = {
    "passes": ("_get_per_token_logps_and_entropies", "add_fused_lm_head"),
    "micro_batches": ("_prepare_inputs", "compute_loss", "_compute_loss", "shuffle_sequence_dict", "split_tensor_dict"),
}


def _code(trainer: type, module: Any, name: str) -> Any:
    """A method of a trainer, or a function that its module takes from TRL; None where there is none."""
    return getattr(trainer, name, None) or getattr(module, name, None)


def _code_of(trainer: str, part: str) -> dict[str, Any]:
    module = _MODULES[trainer]
    found = {name: _code(getattr(module, trainer), module, name) for name in _NAMES[part]}
    missing = [f"trl.{name}" for name, code in found.items() if code is None]
    BROKEN.update(dict.fromkeys(missing, "this version of TRL has no such function"))
    code = code_of_trl(*(inspect.unwrap(one) for one in found.values() if one is not None))
    Row(f"trl.{trainer}.{part}", (*missing, *code), compares=False)
    return found


_CODE = {(trainer, part): _code_of(trainer, part) for trainer in _MODULES for part in _NAMES}


def unlike_tested(trainer: type, part: str) -> str | None:
    """Why the code of a trainer, for passes or for micro-batches, is not known, after a warning; None if it is."""
    if imitated.trusted():
        return None
    base = next(one.__name__ for one in trainer.__mro__ if one.__name__ in _MODULES)
    for name, code in _CODE[base, part].items():
        if _code(trainer, _MODULES[base], name) is not code:
            why = f"`{name}` of {trainer.__name__} is not that of TRL"
            warnings.warn(f"{why}: what depends on it stays as it is", stacklevel=2)
            return why
    return imitated.unknown(TABLE[f"trl.{base}.{part}"])
