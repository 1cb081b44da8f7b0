"""pad_columns, flatten_columns and unpad on a GPU: offsets that lie, and columns by the dozen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

_cuda = pytest.importorskip("quadrat._cuda", reason="needs a GPU")
torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(_cuda.device_count() == 0, reason="needs a GPU"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a torch with CUDA"),
]

from quadrat.ops import _device  # noqa: E402

INT64 = np.iinfo(np.int64)
CANARY, MARGIN = 0xA5, 64
HOSTILE = (
    st.integers(-3, 40)
    | st.sampled_from([INT64.min, INT64.max, 2**31, 2**32 + 5, -(2**40)])
    | st.integers(INT64.min, INT64.max)
)


class Guarded:
    """Device memory between margins of canary bytes, filled with them itself."""

    def __init__(self, size: int) -> None:
        self.bytes = torch.full((2 * MARGIN + size,), CANARY, dtype=torch.uint8, device="cuda")
        self.address = self.bytes.data_ptr() + MARGIN

    def result(self) -> set[int]:
        """The bytes there are; checks the margins."""
        host = self.bytes.cpu().numpy()
        assert (host[:MARGIN] == CANARY).all()
        assert (host[len(host) - MARGIN :] == CANARY).all()
        return set(host[MARGIN : len(host) - MARGIN].tolist())


def where() -> tuple[int, int]:
    """The device and stream that torch works on."""
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream


@given(
    st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)  # fmt: skip
def test_hostile_offsets_change_nothing_outside(
    offsets: list[int], size: int, width: int, item: int, left: bool
) -> None:
    source, rows = torch.tensor(offsets, device="cuda"), len(offsets) - 1
    values = torch.full((max(size * item, 8),), 0x5A, dtype=torch.uint8, device="cuda")
    out = Guarded(rows * width * item)
    column = (values.data_ptr(), size, source.data_ptr(), width, left, item, 1, 0, 0, out.address)
    _cuda.pad_columns([column], rows, *where())
    # Every element is written, and what is not padding comes from the values.
    assert out.result() <= {0, 0x5A}
    total = size if rows else 0
    padded = torch.full((max(rows * width * item, 8),), 0x5A, dtype=torch.uint8, device="cuda")
    flat = Guarded(total * item)
    place = padded.data_ptr(), source.data_ptr(), rows, width, left, item, 1
    _cuda.unpad(*place, flat.address, total, *where())
    assert flat.result() <= {0, 0x5A, CANARY}
    for kind in (_device.VALUES, _device.SEPARATED):
        flat = Guarded(total * item)
        column = (kind, values.data_ptr(), size, 1, item, 0, 0, flat.address)
        _cuda.flatten_columns([column], source.data_ptr(), rows, total, *where())
        assert flat.result() <= {0, 0x5A, CANARY}


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_more_columns_than_a_launch_takes(count: int) -> None:
    dtypes = [torch.int64, torch.bool, torch.bfloat16, torch.int32]
    lengths = torch.tensor([3, 0, 5, 2])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to("cuda")
    columns = []
    for i in range(count):
        dtype = dtypes[i % 4]
        values = None if i % 5 == 4 else torch.full((10, 1 + i % 3), 1, device="cuda").to(dtype)
        out = torch.full((4, 5 + i, *(() if values is None else values.shape[1:])), 9, device="cuda").to(dtype)
        columns.append(_device.Column(values, offsets, 5 + i, i % 2 == 1, 0, out))
    _device.pad_columns(columns)
    for i, column in enumerate(columns):
        places = torch.arange(5 + i)
        kept = places >= 5 + i - lengths[:, None] if i % 2 else places < lengths[:, None]
        shown = column.out.cpu().reshape(4, 5 + i, -1)
        assert torch.equal(shown, kept[:, :, None].expand_as(shown).to(shown.dtype)), i
