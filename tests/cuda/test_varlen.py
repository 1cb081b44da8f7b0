"""quadrat.bert_padding and unpad_many on a GPU: against the oracles, and how often they wait for it."""

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quadrat
from quadrat import bert_padding
from support import flash
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own, while it traces
@pytest.mark.parametrize("name", ["take_tokens", "put_tokens", "mask_layout"])
def test_operators_pass_the_checks_of_torch(name: str) -> None:
    import quadrat.ops.library  # noqa: F401

    indices = torch.tensor([4, 0], device="cuda")
    arguments = {
        "take_tokens": (torch.randn(5, 3, device="cuda", dtype=torch.float64).requires_grad_(), indices),
        "put_tokens": (torch.randn(2, 3, device="cuda", dtype=torch.float64).requires_grad_(), indices, 6),
        "mask_layout": (torch.tensor([[1, 0, 1], [0, 0, 0]], device="cuda"),),
    }
    operator = getattr(torch.ops.quadrat, name).default
    assert set(torch.library.opcheck(operator, arguments[name]).values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiles_whole() -> None:
    def model(hidden: Any, mask: Any) -> Any:
        tokens, indices, bounds, longest, _ = bert_padding.unpad_input(hidden.sin(), mask)
        return bert_padding.pad_input(tokens.square(), indices, *mask.shape), bounds, longest + 1

    hidden = torch.randn(2, 3, 2, device="cuda", requires_grad=True)
    for mask in (torch.tensor([[1, 1, 0], [0, 1, 0]], device="cuda"), torch.ones(2, 3, device="cuda").long()):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        got, expected = compiled(hidden, mask), model(hidden, mask)
        flash.assert_same(got, expected)
        assert torch.equal(*(torch.autograd.grad(out[0].sum(), hidden)[0] for out in (got, expected)))


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_mask_that_is_written_to(seed: int) -> None:
    mask = torch.zeros(5, 40, device="cuda").long()
    hidden = torch.arange(200, device="cuda").reshape(5, 40)
    for step in range(5):
        mask.bernoulli_(0.5, generator=torch.Generator("cuda").manual_seed(seed + step))
        flash.assert_same(bert_padding.unpad_input(hidden, mask), flash.unpad_input(hidden, mask))
