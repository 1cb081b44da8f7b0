"""Functions of attention without padding on a GPU: what they give on the CPU, and no more waiting than they say."""

import warnings
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import quadrat
from quadrat import bert_padding
from support import block_masks, flash, thd
from support.gpu import NEEDS_GPU, torch
from support.varlen import CHECKS

pytestmark = NEEDS_GPU


@pytest.mark.parametrize("check", CHECKS)
@given(data=st.data())
def test_as_the_oracles(check: Any, data: Any) -> None:
    check(data, "cuda")


@pytest.mark.parametrize("shape", [(1, 1), (7, 1023), (7, 1024), (7, 1025), (3, 70_000), (5000, 129), (70_000, 5)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.9, 1.0])
def test_masks_of_many_segments(shape: tuple[int, int], dtype: Any, share: float) -> None:
    """Warps that wait for each other: ten times over, that they may come in another order."""
    generator = torch.Generator("cuda").manual_seed(0)
    for _ in range(10):
        mask = (torch.rand(shape, generator=generator, device="cuda") < share).to(dtype)
        hidden = torch.arange(mask.numel(), device="cuda").reshape(shape)
        flash.assert_same(bert_padding.unpad_input(hidden, mask), flash.unpad_input(hidden, mask))


@pytest.mark.parametrize("token", [1, 2, 3, 8, 12, 100, 768, 1000])
@pytest.mark.parametrize("side", ["right", "left", "holes"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
def test_large_batches(token: int, side: str, dtype: Any) -> None:
    rows, width = 300, 257
    lengths = torch.randint(0, width + 1, (rows,), device="cuda")
    places = torch.arange(width, device="cuda")
    mask = places < lengths[:, None] if side == "right" else places >= width - lengths[:, None]
    mask = torch.rand(rows, width, device="cuda") < 0.7 if side == "holes" else mask
    hidden = (torch.rand(rows, width, token, device="cuda") * 200).to(dtype)
    got, expected = bert_padding.unpad_input(hidden, mask), flash.unpad_input(hidden, mask)
    flash.assert_same(got, expected)
    back = flash.pad_input(expected[0], expected[1], rows, width)
    assert torch.equal(bert_padding.pad_input(got[0], got[1], rows, width), back)
    assert torch.equal(bert_padding.pad_input(got[0], got[1].clone(), rows, width), back)


def waits(call: Any) -> int:
    """How often a call waits for the GPU, as torch counts it."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(one.message) for one in caught)


@pytest.mark.parametrize("holes", [False, True])
def test_waits_once_for_a_mask(holes: bool) -> None:
    mask = torch.tensor([[1, 1, 0, 0], [int(holes), 0, 1, 0]], device="cuda")
    hidden = torch.randn(2, 4, 3, device="cuda", requires_grad=True)

    def layer() -> None:
        tokens, indices, *_ = bert_padding.unpad_input(hidden, mask)
        bert_padding.pad_input(tokens, indices, 2, 4).sum().backward()

    layer()  # loads what loads once
    mask = mask.clone()
    assert waits(layer) == 1
    assert [waits(layer) for _ in range(3)] == [0, 0, 0]
    mask = mask.clone()
    assert waits(lambda: quadrat.varlen.unpad_many(mask, hidden, mask, mask.float())) == 1
    assert waits(lambda: bert_padding.unpad_input_for_concatenated_sequences(hidden, mask)) == 1
    assert waits(lambda: flash.unpad_input(hidden, mask)) > 1


flex = pytest.importorskip("torch.nn.attention.flex_attention")


def same_on_gpu(one: Any, other: Any) -> bool:
    return one == other if isinstance(other, int) else one.is_cuda and thd.same(one.cpu(), other)


@given(
    lengths=block_masks.LENGTHS, extra=st.just(0) | st.integers(1, 70), options=block_masks.OPTIONS, here=st.booleans()
)
@settings(max_examples=50)
def test_block_masks(*, lengths: Any, extra: int, options: Any, here: bool) -> None:
    bounds = block_masks.boundaries(lengths)
    total = bounds[-1] + extra
    assume(total > 0)
    given_bounds = torch.tensor(bounds, dtype=torch.int32, device="cpu" if here else "cuda")
    length = total if extra else None
    mask = quadrat.varlen.document_block_mask(given_bounds, total_length=length, device="cuda", **options)
    block_masks.assert_alike(mask, block_masks.made_by_torch(bounds, total, device="cuda", **options))
    on_cpu = quadrat.varlen.document_block_mask(given_bounds, total_length=length, device="cpu", **options)
    block_masks.assert_alike(mask.to("cpu"), on_cpu)


def test_nothing_waits_where_the_total_is_known() -> None:
    bounds = torch.tensor([0, 100, 300], device="cuda")
    values = torch.arange(300, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        quadrat.varlen.document_block_mask(bounds, total_length=300)
        quadrat.varlen.context_parallel_slice(bounds, values, cp_size=2, cp_rank=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("options", [{}, {"window": 100}, {"causal": False}])
def test_compiled_attention(options: Any) -> None:
    """The fused kernel, forward and backward, for three batches and one compilation."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    attention = torch.compile(flex.flex_attention, fullgraph=True)
    generator = torch.Generator("cuda").manual_seed(0)
    for bounds in ([0, 100, 400, 512], [0, 512], [0, 1, 1, 300, 512]):
        inputs = torch.randn(3, 1, 2, 512, 64, device="cuda", generator=generator).requires_grad_()
        mask = quadrat.varlen.document_block_mask(torch.tensor(bounds, device="cuda"), **options)
        made = attention(*inputs, block_mask=mask)
        tokens = torch.arange(512, device="cuda")
        seen = mask.mask_mod(0, 0, tokens[:, None], tokens[None, :])
        expected = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=seen)
        torch.testing.assert_close(made, expected, atol=2e-2, rtol=2e-2)
        weights = torch.randn(made.shape, device="cuda", generator=generator)
        gradients = [torch.autograd.grad((one * weights).sum(), inputs)[0] for one in (made, expected)]
        torch.testing.assert_close(*gradients, atol=5e-2, rtol=5e-2)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@given(lengths=thd.LENGTHS, multiple=thd.MULTIPLES, dtype=thd.DTYPES, continues=st.booleans(), rest=st.integers(0, 2))
@settings(max_examples=50)
def test_align(*, lengths: Any, multiple: int, dtype: Any, continues: bool, rest: int) -> None:
    bounds = thd.boundaries(lengths)
    columns = [thd.a_column(int(bounds[-1]), dtype, trailing) for trailing in ((), (3,))]
    total = int(thd.padded_boundaries(bounds, multiple)[-1]) + rest * multiple if lengths and rest else None
    options = {
        "pad_to_multiple_of": multiple,
        "total_length": total,
        "padding_value": 1,
        "continue_positions": continues,
    }
    expected = quadrat.varlen.align(bounds, *columns, **options)
    made = quadrat.varlen.align(bounds.cuda(), *(column.cuda() for column in columns), **options)
    assert all(map(same_on_gpu, made.values, expected.values))
    assert all(map(same_on_gpu, made[1:], expected[1:]))


@given(lengths=thd.LENGTHS, size=st.integers(1, 4), dtype=thd.DTYPES, data=st.data())
@settings(max_examples=50)
def test_context_parallel(*, lengths: Any, size: int, dtype: Any, data: Any) -> None:
    rank = data.draw(st.integers(0, size - 1))
    bounds = thd.boundaries(lengths)
    column = thd.a_column(int(bounds[-1]), dtype)
    padded = quadrat.varlen.align(bounds, column, pad_to_multiple_of=2 * size)
    group = {"cp_size": size, "cp_rank": rank}
    expected = quadrat.varlen.context_parallel_slice(padded.cu_seqlens_padded, padded.values[0], **group)
    made = quadrat.varlen.context_parallel_slice(padded.cu_seqlens_padded.cuda(), padded.values[0].cuda(), **group)
    assert same_on_gpu(made, expected)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), names=st.sampled_from([None, "megatron", "mask"]))
@settings(max_examples=30)
def test_flatten(*, lengths: Any, names: Any) -> None:
    rows = quadrat.Ragged.of_lengths(torch.arange(sum(lengths)), lengths)
    for options in (
        {"align_to": 4},
        {"align_to": 4, "pad_to_multiple_of": 16},
        {"total_length": 64},
        {"pad_to_multiple_of": 8},
    ):
        for continues in (True, False):
            asked = {**options, "kwargs_for": names, "continue_positions": continues}
            expected, made = (quadrat.flatten(one, **asked) for one in (rows, rows.to("cuda")))
            if names is None:
                assert all(map(same_on_gpu, made, expected))
            else:
                assert expected.keys() == made.keys()
                assert all(one == "thd" or same_on_gpu(made[name], one) for name, one in expected.items())
