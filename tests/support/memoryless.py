"""Tensors that say they are on the CPU and have no numbers there, and calls of quadrat's functions with them.

Run as a script, it prints what became of each call, as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import quadrat
from support.isolated import told

Maker = Callable[[torch.Tensor], torch.Tensor]


class Wrapper(torch.Tensor):
    """A tensor around another, as distributed ones are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        wrapper: Any = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride()
        )
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def inner(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapper) else value

        args, kwargs = torch.utils._pytree.tree_map(inner, (args, kwargs or {}))
        return function(*args, **kwargs)


def _inside_of(transform: Any, tensor: torch.Tensor) -> torch.Tensor:
    seen: list[torch.Tensor] = []

    def function(inner: torch.Tensor) -> torch.Tensor:
        seen.append(inner)
        return (inner * 1).sum()

    transform(function)(tensor)
    return seen[0]


def _emptied(tensor: torch.Tensor) -> torch.Tensor:
    emptied = tensor.clone()
    emptied.untyped_storage().resize_(0)
    return emptied


MAKERS: dict[str, Maker] = {
    "fake": lambda tensor: FakeTensorMode().from_tensor(tensor),
    "wrapper": Wrapper,
    "zero": lambda tensor: torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype),
    "meta": lambda tensor: tensor.to("meta"),
    "functional": torch._to_functional_tensor,
    "vmap": lambda tensor: _inside_of(torch.func.vmap, torch.stack([tensor, tensor])),
    "grad": lambda tensor: _inside_of(torch.func.grad, tensor.float()),
    "functionalized": lambda tensor: _inside_of(torch.func.functionalize, tensor),
    "nested": lambda tensor: torch.nested.nested_tensor([tensor, tensor]),
    "jagged": lambda tensor: torch.nested.nested_tensor([tensor, tensor], layout=torch.jagged),
    "sparse": torch.Tensor.to_sparse,
    "mkldnn": lambda tensor: tensor.float().to_mkldnn(),
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor.float(), 1.0, 0, torch.quint8),
    "emptied": _emptied,
}
# Those on which torch's own operations work, and what they are then.
MEANINGS: dict[str, Maker] = {
    "zero": torch.zeros_like,
    "grad": torch.Tensor.float,
    **dict.fromkeys(["wrapper", "functional", "functionalized"], torch.clone),
}

VALUES, OFFSETS, LENGTHS = torch.arange(3), torch.tensor([0, 2, 3]), torch.tensor([2, 1])
PADDED, WIDE = torch.tensor([[1, 2], [3, 0]]), torch.ones(1, 3, dtype=torch.int64)
PAIRS = torch.tensor([[[0, 1], [1, 2]], [[0, 1], [0, 0]]])
MASKING: dict[str, Any] = {"mask_token_id": 3, "vocab_size": 99}
PHILOX: dict[str, Any] = {**MASKING, "rng": "philox"}


def _ragged(make: Maker) -> quadrat.Ragged:
    return quadrat.Ragged(make(VALUES), OFFSETS)


# None of them can take such a tensor.
CALLS: dict[str, Callable[[Maker], Any]] = {
    "Ragged": _ragged,
    "Ragged of offsets": lambda make: quadrat.Ragged(VALUES, make(OFFSETS)),
    "Ragged of floats": lambda make: quadrat.Ragged(make(VALUES.float()), OFFSETS),
    "of_lengths": lambda make: quadrat.Ragged.of_lengths(VALUES, make(LENGTHS)),
    "from_rows": lambda make: quadrat.Ragged.from_rows([VALUES, make(VALUES)]),
    "index": lambda make: quadrat.Ragged(VALUES, OFFSETS)[make(torch.tensor([1, 0]))],
    "index by booleans": lambda make: quadrat.Ragged(VALUES, OFFSETS)[make(torch.tensor([True, False]))],
    "pad": lambda make: quadrat.pad([make(VALUES), VALUES]),
    "pad floats": lambda make: quadrat.pad([VALUES.float(), make(VALUES.float())]),
    "flatten": lambda make: quadrat.flatten([make(VALUES)]),
    "attention_mask": lambda make: quadrat.attention_mask([make(VALUES)]),
    "attention_mask of lengths": lambda make: quadrat.attention_mask(make(LENGTHS)),
    "unpad": lambda make: quadrat.unpad(make(PADDED), lengths=LENGTHS),
    "unpad by a list": lambda make: quadrat.unpad(make(PADDED), lengths=[2, 1]),
    "unpad floats": lambda make: quadrat.unpad(make(PADDED.float()), lengths=LENGTHS),
    "unpad by a mask": lambda make: quadrat.unpad(make(PADDED), mask=PADDED != 0),
    "lengths of unpad": lambda make: quadrat.unpad(PADDED, lengths=make(LENGTHS)),
    "mask of unpad": lambda make: quadrat.unpad(PADDED, mask=make(PADDED != 0)),
    "mask of ints of unpad": lambda make: quadrat.unpad(PADDED, mask=make(PADDED)),
    "mask_tokens": lambda make: quadrat.mask_tokens(make(PADDED), **MASKING),
    "mask_tokens by counter": lambda make: quadrat.mask_tokens(make(PADDED), **PHILOX),
    "special_tokens_mask": lambda make: quadrat.mask_tokens(PADDED, special_tokens_mask=make(PADDED), **MASKING),
    "special_tokens_mask by counter": lambda make: quadrat.mask_tokens(
        PADDED, special_tokens_mask=make(PADDED), **PHILOX
    ),
    "offset_mapping": lambda make: quadrat.mask_tokens(PADDED, offset_mapping=make(PAIRS), **MASKING),
    "row_keys": lambda make: quadrat.mask_tokens(PADDED, row_keys=make(LENGTHS), **PHILOX),
    "lengths of mask_tokens": lambda make: quadrat.mask_tokens(PADDED, lengths=make(LENGTHS), **PHILOX),
}

# Those that torch itself does, or its dispatcher: with its results and errors.
OF_TORCH: dict[str, Callable[[Maker], Any]] = {
    "concat_padded": lambda make: quadrat.evaluation.concat_padded([make(PADDED), WIDE]),
    "concat_padded second": lambda make: quadrat.evaluation.concat_padded([WIDE, make(PADDED)]),
}


def numbers(result: Any) -> str:
    """What a result says, numbers included where it has any."""
    if not isinstance(result, torch.Tensor):
        return str(result)
    if torch._is_functional_tensor(result):
        torch._sync(result)
        result = torch._from_functional_tensor(result)
    result = result.inner if isinstance(result, Wrapper) else result
    plain = type(result) is torch.Tensor and result.is_cpu and result.layout is torch.strided
    return f"{result.dtype} {(result * 1).tolist()}" if plain else type(result).__name__


def main() -> None:
    """Prints {call: {kind of tensor: what became of it}}; "meant": with the plain tensor that it stands for."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for make in MAKERS.values():  # what that imports takes seconds, and would in each child
        make(VALUES)
    outcomes: dict[str, dict[str, str]] = {}
    for name, call in {**CALLS, **OF_TORCH}.items():
        outcomes[name] = {
            kind: told(lambda call=call, make=make: numbers(call(make)))
            for kind, make in MAKERS.items()
            if kind != "emptied" or name not in OF_TORCH  # which reads such memory at address 0
        }
        for kind, meaning in MEANINGS.items():
            outcomes[name][f"{kind} meant"] = told(lambda call=call, make=meaning: numbers(call(make)))
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
