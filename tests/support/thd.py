"""Padded sequences and their slices in plain PyTorch, one sequence after the other, and what to give them."""

from typing import Any

import hypothesis.strategies as st
import torch

LENGTHS = st.lists(st.integers(0, 30) | st.sampled_from([63, 64, 65]), max_size=7)
DTYPES = st.sampled_from([torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16, torch.bool])
MULTIPLES = st.sampled_from([1, 2, 4, 6, 16])


def boundaries(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([sum(lengths[:row]) for row in range(len(lengths) + 1)], dtype=torch.int32)


def rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def pad_sequences(values: Any, bounds: torch.Tensor, multiple: int, fill: Any) -> torch.Tensor:
    rows = [values[:0]]
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        pad = rounded(end - begin, multiple) - (end - begin)
        rows += [values[begin:end], torch.full((pad, *values.shape[1:]), fill, dtype=values.dtype)]
    return torch.cat(rows)


def padded_boundaries(bounds: torch.Tensor, multiple: int) -> torch.Tensor:
    return boundaries([rounded(length, multiple) for length in bounds.diff().tolist()]).long()


def a_column(total: int, dtype: torch.dtype, trailing: tuple[int, ...] = ()) -> torch.Tensor:
    return torch.randint(0, 2 if dtype == torch.bool else 100, (total, *trailing)).to(dtype)


def same(value: Any, other: Any) -> bool:
    """Equal to the last bit, with dtype, shape and device."""
    return value.dtype == other.dtype and value.device == other.device and torch.equal(value, other)
