"""Tensors that torch tracks go by way of quadrat's operators, which know their derivatives."""

import sys
from typing import Any

from quadrat.support.tensors import is_tensor, recording


def tracked(array: Any) -> bool:
    """True if torch keeps track of what is done to an array, for its gradient or to do it again."""
    if not is_tensor(array) or not (array.requires_grad or recording()):
        return False
    return recording() or sys.modules["torch"].is_grad_enabled()


def operators() -> Any:
    """`torch.ops.quadrat`, registered. Raises ImportError for a torch that is too old."""
    import torch

    import quadrat.ops.library  # noqa: F401 - registers them

    return torch.ops.quadrat
