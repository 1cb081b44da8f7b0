"""What tests of the kernels on a GPU do alike."""

from typing import Any

import numpy as np
import pytest

from support.guarded import MARGIN, Guarded

_cuda = pytest.importorskip("quadrat._cuda", reason="needs a GPU")
torch = pytest.importorskip("torch", reason="needs torch")

NEEDS_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(_cuda.device_count() == 0, reason="needs a GPU"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a torch with CUDA"),
]
DEVICE = "cuda"


class GuardedOnDevice(Guarded):
    """Device memory between such margins; `result` brings it here."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        super().__init__(dtype, shape)
        self.dtype, self.size = self.array.dtype, self.array.size
        self._on_device = torch.from_numpy(self.block).to(DEVICE)
        self.address = self._on_device.data_ptr() + MARGIN

    def before(self) -> np.ndarray:
        return Guarded(self.array.dtype, self.array.shape).array

    def result(self) -> np.ndarray:
        """The elements; checks the margins."""
        self.block[:] = self._on_device.cpu().numpy()
        assert self.intact()
        return self.array.copy()


class Memory:
    """Copies of arrays on the device, which live as long as this."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []

    def address(self, array: np.ndarray) -> int:
        signed = array.view(f"i{array.itemsize}") if array.dtype.kind == "u" and array.itemsize > 1 else array
        self._tensors.append(torch.from_numpy(signed).to(DEVICE))
        return self._tensors[-1].data_ptr()


def where() -> tuple[int, int]:
    """The device and stream that torch works on."""
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
