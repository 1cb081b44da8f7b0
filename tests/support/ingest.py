"""What the tests of reading features share."""

from typing import Any

import numpy as np
import torch

from quadrat import _core
from quadrat.support import memory

KINDS = _core.kinds
INT64 = KINDS.index("int64")


def interops() -> dict[str, Any]:
    """By name: tensors read through torch's exchange API where torch has it, and by `describe_tensor`."""
    arguments = (np.ndarray, None, torch.Tensor)
    callbacks = (memory.describe_tensor, memory._make_tensor)
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    return {
        "exchange": _core.Interop(memory.Libraries(*arguments, exchange, *callbacks)),
        "fallback": _core.Interop(memory.Libraries(*arguments, None, *callbacks)),
    }


def columns_of(rows: Any, interop: Any) -> Any:
    columns = _core.Columns()
    columns.add_values(rows, interop)
    return columns


def flat(columns: Any, index: int, guarded: Any, kind: str = "int64") -> list[Any]:
    """The numbers of a column, and that nothing is written beside them."""
    total = columns.describe(index)[5]
    out = guarded(kind, total)
    assert columns.flatten(index, out.address, KINDS.index(kind), total) is None
    assert out.intact()
    return out.array.tolist()


def move(row: Any) -> None:
    """Puts the numbers of an array or a tensor elsewhere, and others where they were."""
    if isinstance(row, torch.Tensor):
        with torch._C.DisableTorchFunction():
            copy = row.clone()
            row.fill_(1)
            row.set_(copy)
    else:
        state = row.__reduce__()[2]
        row.fill(1)
        row.__setstate__(state)
