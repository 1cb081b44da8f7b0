"""The code of TRL's online trainers that quadrat was tested with."""

from __future__ import annotations

import inspect
import sys
import warnings

from quadrat.installed.imitated import fingerprint, trusted

TESTED: dict[str, tuple[str, ...]] = {
    "_get_per_token_logps_and_entropies": ("c284a708be138fc9",),
    "add_fused_lm_head": ("84e322606593064c",),
    "_prepare_inputs": ("1d3ae280df01e0d6",),
    "compute_loss": ("57891fd9d1fb955a", "972b050788aee759"),
    "_compute_loss": ("f3523b2026dcdd1f", "c1566e04f6b8e8d5"),
    "shuffle_sequence_dict": ("b72dbdbc48a8fdad",),
    "split_tensor_dict": ("e37fbd20ba79e0c8",),
}


def unlike_tested(trainer: type, names: tuple[str, ...]) -> str | None:
    """Why a trainer's methods, and the functions of TRL that they call, are not known, and warns; None if all are."""
    if trusted():
        return None
    base = next(one for one in trainer.__mro__ if one.__module__.startswith("trl.trainer."))
    for name in names:
        code = getattr(trainer, name, None) or getattr(sys.modules[base.__module__], name, None)
        if code is None or fingerprint(inspect.unwrap(code)) not in TESTED[name]:
            why = f"`{name}` of {trainer.__name__} is not the one that was tested"
            warnings.warn(f"{why}: what depends on it is left to TRL", stacklevel=2)
            return why
    return None
