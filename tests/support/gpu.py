"""What tests of the kernels on a GPU do alike."""

import weakref
from typing import Any

import numpy as np
import pytest

from support.guarded import Guarded

_cuda = pytest.importorskip("quadrat._cuda", reason="needs a GPU")
torch = pytest.importorskip("torch", reason="needs torch")

NEEDS_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(_cuda.device_count() == 0, reason="needs a GPU"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a torch with CUDA"),
]
DEVICE = "cuda"


# How many parameters each kernel has; the emulation's next ones say which blocks run, a GPU's where.
_PARAMETERS = {
    **{"pad_columns": 2, "flatten_columns": 4, "unpad": 9, "causal_labels": 4},
    **{"row_keys": 8, "philox_mask": 18, "mask_layout": 8, "take_tokens": 6},
}
_WORD = 64  # what a copy lies as far beyond a multiple of as its original


class OnDevice:
    """The kernels of a GPU in the place of their emulation: memory that they are given goes there, and back again."""

    def __init__(self) -> None:
        self._blocks: list[weakref.ref[np.ndarray]] = []

    def guarded(self, dtype: Any, shape: int | tuple[int, ...]) -> Guarded:
        array = Guarded(dtype, shape)
        self.address(array.block)
        return array

    def address(self, array: np.ndarray) -> int:
        self._blocks.append(weakref.ref(array))
        return array.ctypes.data

    def __getattr__(self, kernel: str) -> Any:
        def call(*arguments: Any, max_blocks: int = 0, **named: Any) -> None:
            arrays = [array for block in self._blocks if (array := block()) is not None and array.nbytes]
            copies = []
            for array in arrays:
                shift = array.ctypes.data % _WORD
                copy = torch.empty(shift + array.nbytes, dtype=torch.uint8, device=DEVICE)[shift:]
                copies.append(copy.copy_(torch.from_numpy(array.reshape(-1).view(np.uint8))))

            def there(value: Any) -> Any:
                if type(value) in (list, tuple):
                    return type(value)(map(there, value))
                for array, copy in zip(arrays, copies, strict=True):
                    if type(value) is int and 0 <= (place := value - array.ctypes.data) < array.nbytes:
                        return copy.data_ptr() + place
                return value

            named = {name: there(value) for name, value in named.items()}
            device, stream = where()
            getattr(_cuda, kernel)(*there(arguments[: _PARAMETERS[kernel]]), **named, device=device, stream=stream)
            for array, copy in zip(arrays, copies, strict=True):
                array.reshape(-1).view(np.uint8)[:] = copy.cpu().numpy()

        return call


def where() -> tuple[int, int]:
    """The device and stream that torch works on."""
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
