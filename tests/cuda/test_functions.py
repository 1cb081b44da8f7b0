"""The functions on tensors of a GPU against the CPU's, and no more waiting than they say."""

import contextlib
import functools
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import trainer_pt_utils

import quadrat
from quadrat.ops.tokens import layout_of, put, take
from support import kept_tokens, thd
from support.gpu import NEEDS_GPU, torch
from support.on_device import check_flatten, check_gather, check_mask, check_pad, check_unpad, ragged_rows

pytestmark = NEEDS_GPU


def bare(rows: Any) -> Any:
    """On the GPU, and nothing known of the offsets."""
    return quadrat.Ragged(rows.values.to("cuda"), rows.offsets.to("cuda"))


places = pytest.mark.parametrize("move", [lambda rows: rows.to("cuda"), bare])


@places
@pytest.mark.parametrize("check", [check_pad, check_mask, check_flatten, check_unpad, check_gather])
@given(rows=ragged_rows(), data=st.data())
def test_as_on_the_cpu(check: Any, move: Any, rows: Any, data: Any) -> None:
    check(rows, data, contextlib.nullcontext(move))


OFFSETS = torch.tensor([0, 2, 2, 5])


def on_gpu(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, dtype=dtype, device="cuda").requires_grad_()


@pytest.mark.parametrize("side", ["right", "left"])
def test_each_is_the_derivative_of_the_other(side: str) -> None:
    offsets = OFFSETS.to("cuda")

    def pad(values: Any, offsets: Any, width: int) -> Any:
        return quadrat.pad(quadrat.Ragged(values, offsets), max_length=width, padding_value=0.5, padding_side=side)

    def unpad(padded: Any) -> Any:
        return quadrat.unpad(padded, lengths=offsets.diff(), total=5, padding_side=side).values

    assert torch.autograd.gradcheck(lambda x: pad(x, offsets, 4), on_gpu(5, 2))
    assert torch.autograd.gradcheck(unpad, on_gpu(3, 4, 2))
    # What is cut has no part in the result.
    values = on_gpu(7)
    pad(values, offsets + 1, 2).sum().backward()
    assert values.grad.tolist() == [0, 1, 1, 1, 1, 0, 0]


def test_graphs_capture_them() -> None:
    """Nothing waits, and memory comes from torch's allocator alone."""
    offsets, values = OFFSETS.to("cuda"), torch.arange(1, 6, device="cuda")

    def batch() -> Any:
        padded = quadrat.pad(quadrat.Ragged(values, offsets), max_length=4, padding_side="left")
        mask = quadrat.attention_mask(quadrat.Ragged(values, offsets), max_length=4, padding_side="left")
        back = quadrat.unpad(padded, lengths=offsets.diff(), padding_side="left", total=5).values
        return padded, mask, back

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        batch()  # loads the kernels, which a capture does not allow
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = batch()
    offsets.copy_(torch.tensor([0, 1, 4, 5]))  # other rows, the same graph
    graph.replay()
    padded, mask, back = (output.tolist() for output in outputs)
    assert padded == [[0, 0, 0, 1], [0, 2, 3, 4], [0, 0, 0, 5]]
    assert mask == [[0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 0, 1]]
    assert back == [1, 2, 3, 4, 5]


def test_they_run_on_the_current_stream_and_device() -> None:
    values = torch.arange(1 << 20, device="cuda")
    rows = quadrat.Ragged(values, torch.tensor([0, 1 << 19, 1 << 20], device="cuda"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # whoever does not queue behind it reads what was there before
        values.add_(1)
        padded = quadrat.pad(rows, max_length=1 << 19)
    stream.synchronize()
    assert torch.equal(padded.reshape(-1), torch.arange(1, (1 << 20) + 1, device="cuda"))


def test_more_than_2_to_the_32_elements() -> None:
    rows, width = 3, 2**31 - 5
    if torch.cuda.mem_get_info()[0] < 3 * rows * width:
        pytest.skip("needs 20 GB of free GPU memory")
    values = torch.arange(256, device="cuda").to(torch.uint8).repeat(2**25)[: 3 * width - 3]
    offsets = torch.tensor([0, width, 2 * width, 3 * width - 3], device="cuda")
    padded = quadrat.pad(quadrat.Ragged(values, offsets), max_length=width, padding_value=7)
    assert torch.equal(padded.reshape(-1)[: 3 * width - 3], values)
    assert padded[2, -4:].tolist() == [(3 * width - 4) % 256, 7, 7, 7]
    back = quadrat.unpad(padded, lengths=offsets.diff(), total=3 * width - 3)
    assert torch.equal(back.values, values)


WIDTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
DTYPES = st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.bool])


def batch(width: int, dtype: Any) -> tuple[Any, dict[str, Any]]:
    numbers = torch.arange(2 * width * 3, device="cuda").reshape(2, width, 3)
    return numbers.to(dtype), {"labels": torch.arange(2, device="cuda")}


@given(WIDTHS, DTYPES)
def test_concat_padded_stays_there(widths: list[int], dtype: Any) -> None:
    batches = [batch(width, dtype) for width in widths]
    tensor, named = quadrat.evaluation.concat_padded(batches)
    expected = functools.reduce(trainer_pt_utils.nested_concat, batches)
    assert tensor.is_cuda
    assert torch.equal(tensor, expected[0])
    assert torch.equal(named["labels"], expected[1]["labels"])


@given(WIDTHS, DTYPES, st.sampled_from([1, 2, 9]), st.booleans())
def test_containers(widths: list[int], dtype: Any, every: int, overwrite: bool) -> None:
    arrays = []
    for make in (trainer_pt_utils.EvalLoopContainer, quadrat.evaluation.EvalLoopContainer):
        container = make()
        for step, width in enumerate(widths, start=1):
            given_batch = batch(width, dtype)
            container.add(given_batch)
            if overwrite:
                given_batch[0].zero_()
            if step % every == 0:
                container.to_cpu_and_numpy()
        arrays.append(container.get_arrays())
    (expected, expected_named), (tensor, named) = arrays
    assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
    assert tensor.tobytes() == expected.tobytes()
    assert named["labels"].tolist() == expected_named["labels"].tolist()


@pytest.mark.parametrize("check", kept_tokens.CHECKS)
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
        kept_tokens.assert_same(layout_of(mask), kept_tokens.layout(mask))


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
    indices = layout_of(mask).indices
    tokens = take(hidden, indices, 2)
    assert torch.equal(tokens, kept_tokens.take(hidden, indices, 2))
    assert torch.equal(put(tokens, indices, (rows, width)), kept_tokens.put(tokens, indices, (rows, width)))


def waits(call: Any) -> int:
    """How often a call waits for the GPU, as torch counts it."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")  # which warns of itself, too
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing CUDA operation" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("holes", [False, True])
def test_waits_once_for_a_mask(holes: bool) -> None:
    mask = torch.tensor([[1, 1, 0, 0], [int(holes), 0, 1, 0]], device="cuda")
    hidden = torch.randn(2, 4, 3, device="cuda", requires_grad=True)

    def layer() -> None:
        indices = layout_of(mask).indices
        put(take(hidden, indices, 2), indices, (2, 4)).sum().backward()

    layer()  # loads what loads once
    mask = mask.clone()
    assert [waits(layer) for _ in range(3)] == [1, 1, 1]  # nothing is remembered of a mask
    assert waits(lambda: kept_tokens.layout(mask)) > 1


def same_on_gpu(value: Any, expected: Any) -> bool:
    return value == expected if isinstance(expected, int) else value.is_cuda and thd.same(value.cpu(), expected)


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
    expected = quadrat.align(bounds, *columns, **options)
    aligned = quadrat.align(bounds.cuda(), *(column.cuda() for column in columns), **options)
    assert all(map(same_on_gpu, aligned.values, expected.values))
    assert all(map(same_on_gpu, aligned[1:], expected[1:]))


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), names=st.sampled_from([None, "megatron", "mask"]))
@settings(max_examples=30)
def test_flatten_with_kwargs(*, lengths: Any, names: Any) -> None:
    rows = quadrat.Ragged.of_lengths(torch.arange(sum(lengths)), lengths)
    for options in (
        {"align_to": 4},
        {"align_to": 4, "pad_to_multiple_of": 16},
        {"total_length": 64},
        {"pad_to_multiple_of": 8},
    ):
        for continues in (True, False):
            asked = {**options, "kwargs_for": names, "continue_positions": continues}
            expected, flat = (quadrat.flatten(tokens, **asked) for tokens in (rows, rows.to("cuda")))
            if names is None:
                assert all(map(same_on_gpu, flat, expected))
            else:
                assert expected.keys() == flat.keys()
                assert all(value == "thd" or same_on_gpu(flat[name], value) for name, value in expected.items())
