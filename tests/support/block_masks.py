"""Documents for block masks, and what two masks must have alike."""

from typing import Any

import hypothesis.strategies as st
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([16, 64, 100]), max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "causal": st.booleans(),
        "window": st.none() | st.sampled_from([1, 2, 9, 16, 1000, 2**63]),
        "block_size": st.sampled_from([1, 5, 16, 64, 128, (8, 32), (48, 7)]),
    }
)


def boundaries(lengths: list[int]) -> list[int]:
    return [sum(lengths[:row]) for row in range(len(lengths) + 1)]


def documents_of(bounds: list[int], total: int) -> torch.Tensor:
    """The number of each token's document; what follows the last one is one more."""
    lengths = [end - begin for begin, end in zip(bounds, [*bounds[1:], total], strict=True)]
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def plain_mask_mod(documents: torch.Tensor, *, causal: bool, window: int | None) -> Any:
    """What FlexAttention is told without quadrat."""

    def mask_mod(b: Any, h: Any, query: Any, key: Any) -> Any:
        seen = documents[query] == documents[key]
        if causal:
            seen = seen & (query >= key)
        if window is not None:
            seen = seen & ((query - key).abs() < min(window, 2**40))
        return seen

    return mask_mod


def made_by_torch(
    bounds: list[int], total: int, *, causal: bool, window: int | None, block_size: Any, device: str = "cpu"
) -> BlockMask:
    mask_mod = plain_mask_mod(documents_of(bounds, total).to(device), causal=causal, window=window)
    return create_block_mask(mask_mod, None, None, total, total, device=device, BLOCK_SIZE=block_size)


def assert_alike(mask: BlockMask, expected: BlockMask) -> None:
    """Equal in all but their mask_mod: shapes, dtypes, strides and every entry."""
    for name in BlockMask._TENSOR_ATTRS:
        one, other = getattr(mask, name), getattr(expected, name)
        if other is None:
            assert one is None, name
            continue
        assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device), name
        assert one.is_contiguous(), name
        assert torch.equal(one, other), name
    assert (mask.seq_lengths, mask.BLOCK_SIZE) == (expected.seq_lengths, expected.BLOCK_SIZE)
