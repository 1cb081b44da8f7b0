"""Checks of `quadrat.bert_padding`, on whatever device they are given."""

from typing import Any

import torch
from hypothesis import strategies as st

from quadrat import bert_padding
from support import flash
from support.masks import masks

TRAILING = st.sampled_from([(), (1,), (3,), (2, 5), (8,)])
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])


def _hidden(mask: Any, trailing: tuple[int, ...], dtype: Any, contiguous: bool, device: str) -> Any:
    shape = (*mask.shape, *trailing)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 10
    hidden = drawn.to(dtype).to(device)
    return hidden if contiguous else hidden.transpose(0, 1).contiguous().transpose(0, 1)


def check_unpad_and_pad(data: Any, device: str) -> None:
    mask = torch.from_numpy(data.draw(masks(st.sampled_from([1, 1, 1, 1, 2])))).to(device)
    hidden = _hidden(mask, data.draw(TRAILING), data.draw(DTYPES), data.draw(st.booleans()), device)
    expected = flash.unpad_input(hidden, mask)
    got = bert_padding.unpad_input(hidden, mask)
    flash.assert_same(got, expected)
    flash.assert_same(bert_padding.unpad_input(hidden, mask, return_seqused=False), expected[:4])
    rows, width = mask.shape
    back = bert_padding.pad_input(got[0], got[1], rows, width)
    expected_back = flash.pad_input(expected[0], expected[1], rows, width)
    assert torch.equal(back, expected_back)
    unmarked = got[1].clone()
    assert torch.equal(bert_padding.pad_input(got[0], unmarked, rows, width), expected_back)
    assert torch.equal(bert_padding.index_first_axis(hidden.reshape(-1, *hidden.shape[2:]), unmarked), expected[0])


def check_unused(data: Any, device: str) -> None:
    mask = torch.from_numpy(data.draw(masks())).to(device)
    unused = ((torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.3).to(device) & (mask == 0)).to(
        mask.dtype
    )
    if data.draw(st.booleans()):  # the two overlap
        unused = unused | mask
    hidden = _hidden(mask, (3,), torch.float32, True, device)
    if len(mask):
        flash.assert_same(bert_padding.unpad_input(hidden, mask, unused), flash.unpad_input(hidden, mask, unused))


def check_concatenated(data: Any, device: str) -> None:
    rows = data.draw(st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=5))
    width = max(sum(row) for row in rows) + data.draw(st.integers(0, 3))
    lengths = torch.zeros(len(rows), width, dtype=data.draw(st.sampled_from([torch.int64, torch.int32])))
    for row, found in enumerate(rows):
        lengths[row, : len(found)] = torch.tensor(found, dtype=lengths.dtype)
    lengths = lengths.to(device)
    hidden = _hidden(lengths, (2,), torch.float32, True, device)
    flash.assert_same(
        bert_padding.unpad_input_for_concatenated_sequences(hidden, lengths),
        flash.unpad_input_for_concatenated_sequences(hidden, lengths),
    )


def check_gradients(data: Any, device: str) -> None:
    mask = torch.from_numpy(data.draw(masks(widest=12))).to(device)
    rows, width = mask.shape
    hidden = _hidden(mask, (2,), torch.float64, data.draw(st.booleans()), device)
    results = []
    for module in (bert_padding, flash):
        leaf = hidden.detach().clone().requires_grad_()
        tokens, indices, *_ = module.unpad_input(leaf, mask)  # type: ignore[attr-defined]
        padded = module.pad_input(tokens.sin() * 2, indices, rows, width)  # type: ignore[attr-defined]
        (first,) = torch.autograd.grad(padded.square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        results.append((padded, first, second))
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine, theirs)


CHECKS = [check_unpad_and_pad, check_unused, check_concatenated, check_gradients]
