"""What tests of the kernels on a GPU do alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

_cuda = pytest.importorskip("quadrat._cuda", reason="needs a GPU")
torch = pytest.importorskip("torch", reason="needs torch")

NEEDS_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(_cuda.device_count() == 0, reason="needs a GPU"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a torch with CUDA"),
]
DEVICE = "cuda"
CANARY = 0xA5
MARGIN = 64


class Guarded:
    """Device memory between margins of canary bytes, filled with them itself."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.size = int(np.prod(shape, dtype=np.int64))
        size = 2 * MARGIN + self.size * self.dtype.itemsize
        self.bytes = torch.full((size,), CANARY, dtype=torch.uint8, device=DEVICE)
        self.address = self.bytes.data_ptr() + MARGIN

    def before(self) -> np.ndarray:
        return np.full(self.size * self.dtype.itemsize, CANARY, np.uint8).view(self.dtype).reshape(self.shape)

    def result(self) -> np.ndarray:
        """The elements; checks the margins."""
        host = self.bytes.cpu().numpy()
        assert (host[:MARGIN] == CANARY).all()
        assert (host[len(host) - MARGIN :] == CANARY).all()
        return host[MARGIN : len(host) - MARGIN].view(self.dtype).reshape(self.shape)


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
