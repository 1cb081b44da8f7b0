"""Tensors whose numbers are not in memory (fake, distributed, zero, functional): no function reads at address 0."""

import os
import re

import pytest

import quadrat
from support import isolated, memoryless

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="calls that may end the process run in children")
REFUSAL = re.compile(
    r"raised TypeError: \w[\w ]* must be a dense tensor with its numbers in memory, not an? "
    r"|raised ValueError: \w[\w ]* must be on the CPU or a GPU, not on meta"
    r"|raised ValueError: values are on \w+, offsets on \w+; both must be on the CPU or on one GPU"
    r"|raised ValueError: \w+ (is|are) on meta; (it|they) must be on the CPU"
    r"|raised TypeError: row [01] is the \w+ of torch\.\w+ on \w+: rows must be "
)


@pytest.fixture(scope="module")
def outcomes():
    return isolated.run("memoryless.py")


@pytest.mark.slow
@forks
@pytest.mark.parametrize("call", memoryless.CALLS)
def test_functions_refuse_them(outcomes, call):
    for kind in memoryless.MAKERS:
        assert REFUSAL.match(outcomes[call][kind]), f"{kind}: {outcomes[call][kind]}"


@forks
@pytest.mark.parametrize("call", memoryless.OF_TORCH)
def test_what_torch_does_keeps_its_meaning_and_errors(outcomes, call):
    left_out = {"emptied"} if call in memoryless.JOINED_BY_TORCH else set()
    for kind in memoryless.MAKERS.keys() - left_out:
        told = outcomes[call][kind]
        if kind in memoryless.MEANINGS and told.startswith("gave"):
            assert told == outcomes[call][f"{kind} meant"], kind
        else:
            assert re.match("raised |gave (Fake)?Tensor$", told), f"{kind}: {told}"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors|torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", memoryless.MAKERS)
def test_a_deferred_batch_keeps_them(kind):
    tensor = memoryless.MAKERS[kind](memoryless.PADDED)
    assert quadrat.DeferredBatch({"input_ids": tensor}).to("cpu")["input_ids"] is tensor
