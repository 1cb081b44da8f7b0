"""document_block_mask against create_block_mask: every tensor, and what attention makes of it."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

import quadrat
from quadrat.varlen import block_mask

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")
from support.block_masks import LENGTHS, OPTIONS, assert_alike, boundaries, made_by_torch  # noqa: E402

EXTRA = st.just(0) | st.integers(1, 70)


@given(lengths=LENGTHS, extra=EXTRA, options=OPTIONS)
def test_as_torch_makes_it(*, lengths, extra, options):
    """Of boundaries in any form; and the way of a GPU, on the CPU."""
    bounds = boundaries(lengths)
    total = bounds[-1] + extra
    assume(total > 0)  # torch's own fails without a token
    forms = bounds, np.array(bounds, np.int32), torch.tensor(bounds, dtype=torch.int32)
    masks = [quadrat.varlen.document_block_mask(form, total_length=total, **options) for form in forms]
    if not extra:
        masks.append(quadrat.varlen.document_block_mask(bounds, **options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_mask, "_on_cpu", block_mask._on_device)
        masks.append(quadrat.varlen.document_block_mask(bounds, total_length=total, **options))
    expected, tokens = made_by_torch(bounds, total, **options), torch.arange(total)
    pairs = (0, 0, tokens[:, None], tokens[None, :])
    for mask in masks:
        assert_alike(mask, expected)
        assert torch.equal(mask.mask_mod(*pairs), expected.mask_mod(*pairs))


def test_long_documents_and_edge_blocks():
    bounds = [0, 3, 3, 700, 1500, 1501, 1999]
    for options in ({}, {"causal": False}, {"window": 200}, {"window": 1, "causal": False}):
        asked = {"causal": True, "window": None, "block_size": 128, **options}
        assert_alike(quadrat.varlen.document_block_mask(bounds, **options), made_by_torch(bounds, 1999, **asked))


def test_without_a_token():
    mask = quadrat.varlen.document_block_mask([0, 0])
    assert mask.shape == (1, 1, 0, 0)
    assert mask.kv_indices.shape == (1, 1, 0, 0)
    assert_alike(quadrat.varlen.document_block_mask(torch.tensor([0])), mask)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_stays_within_documents():
    bounds = [0, 10, 10, 45, 100]
    query, key, value = torch.randn(3, 1, 2, 100, 16, generator=torch.Generator().manual_seed(0))
    mask = quadrat.varlen.document_block_mask(bounds, block_size=16)
    made = flex.flex_attention(query, key, value, block_mask=mask)
    for begin, end in itertools.pairwise(bounds):
        alone = [one[:, :, begin:end] for one in (query, key, value)]
        expected = torch.nn.functional.scaled_dot_product_attention(*alone, is_causal=True)
        torch.testing.assert_close(made[:, :, begin:end], expected)


@pytest.mark.parametrize("options", [{}, {"causal": False}, {"window": 20}, {"window": 20, "causal": False}])
def test_the_next_batch_recompiles_nothing(options):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    attention = torch.compile(flex.flex_attention, backend=counter, fullgraph=True)
    query = torch.randn(1, 2, 64, 16)
    for bounds in ([0, 10, 64], [0, 64], [0, 3, 3, 9, 64], [0, 1, 2, 40, 41, 64], [0, 50]):
        mask = quadrat.varlen.document_block_mask(bounds, block_size=16, total_length=64, **options)
        attention(query, query, query, block_mask=mask)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("bounds", "options", "error", "words"),
    [
        ([1, 2], {}, ValueError, "begin with 0, not with 1"),
        ([0, 2, 1], {}, ValueError, r"must not decrease, but offsets\[1\] is 2 and offsets\[2\] is 1"),
        ([[0, 2]], {}, ValueError, "must be integers"),
        ([], {}, ValueError, "must be integers"),
        ([0.0, 2.0], {}, ValueError, "must be integers"),
        ([0, 2], {"window": 0}, ValueError, "window must be positive, not 0"),
        ([0, 2], {"window": 1.5}, TypeError, "window must be an int"),
        ([0, 2], {"block_size": 0}, ValueError, "block_size must be a positive int, or two of them, not 0"),
        ([0, 2], {"block_size": (1, 2, 3)}, ValueError, "block_size must be a positive int, or two of them"),
        ([0, 2], {"block_size": "128"}, TypeError, "block_size must be an int"),
        ([0, 2], {"total_length": 1}, ValueError, "total_length=1 is below the 2 tokens of the documents"),
        ([0, 2], {"total_length": 2.0}, TypeError, "total_length must be an int"),
        ([0, 2**32], {"block_size": 1}, ValueError, "more blocks of"),
    ],
)
def test_refuses(bounds, options, error, words):
    with pytest.raises(error, match=words):
        quadrat.varlen.document_block_mask(bounds, **options)
