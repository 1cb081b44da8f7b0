"""Checks of `quadrat.ops.tokens`: what a mask keeps is taken out of a batch and put back, on whatever device."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional

from quadrat.ops import tokens
from support.masks import masks

TRAILING = st.sampled_from([(), (1,), (3,), (2, 5), (8,)])
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])


def layout(mask: Any) -> tuple[Any, ...]:
    """The oracle of `layout_of`."""
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten()).flatten()
    cu_seqlens = functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return indices, cu_seqlens, lengths, int(lengths.max()) if len(lengths) else 0


def take(values: Any, indices: Any, lead: int = 1) -> Any:
    """The oracle of `take`."""
    return values.reshape(-1, *values.shape[lead:])[indices.long()]


def put(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """The oracle of `put`."""
    out = values.new_zeros((torch.Size(shape).numel(), *values.shape[1:]))
    return out.index_put((indices.long(),), values).reshape(*shape, *values.shape[1:])


def assert_same(got: Any, expected: Any) -> None:
    """The same values, dtypes, shapes and Python types."""
    for mine, theirs in zip(got, expected, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(theirs, torch.Tensor):
            assert (mine.dtype, mine.shape, mine.device) == (theirs.dtype, theirs.shape, theirs.device)
            assert torch.equal(mine, theirs)
        else:
            assert mine == theirs


def _hidden(mask: Any, trailing: tuple[int, ...], dtype: Any, contiguous: bool, device: str) -> Any:
    shape = (*mask.shape, *trailing)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 10
    hidden = drawn.to(dtype).to(device)
    return hidden if contiguous else hidden.transpose(0, 1).contiguous().transpose(0, 1)


def check_take_and_put(data: Any, device: str) -> None:
    mask = torch.from_numpy(data.draw(masks(st.sampled_from([1, 1, 1, 1, 2])))).to(device)
    hidden = _hidden(mask, data.draw(TRAILING), data.draw(DTYPES), data.draw(st.booleans()), device)
    result = tokens.layout_of(mask)
    assert_same(result, layout(mask))
    taken = tokens.take(hidden, result.indices, 2)
    assert_same([taken], [take(hidden, result.indices, 2)])
    shape = tuple(mask.shape)
    assert_same([tokens.put(taken, result.indices, shape)], [put(taken, result.indices, shape)])


def check_gradients(data: Any, device: str) -> None:
    mask = torch.from_numpy(data.draw(masks(widest=12))).to(device)
    hidden = _hidden(mask, (2,), torch.float64, data.draw(st.booleans()), device)
    indices, results = layout(mask)[0], []
    for taking, putting in ((tokens.take, tokens.put), (take, put)):
        leaf = hidden.detach().clone().requires_grad_()
        padded = putting(taking(leaf, indices, 2).sin() * 2, indices, tuple(mask.shape))
        (first,) = torch.autograd.grad(padded.square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        results.append((padded, first, second))
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine, theirs)


CHECKS = [check_take_and_put, check_gradients]
