"""A tiny model, a copy that computes padding, and a batch."""

import pytest
from transformers import LlamaForCausalLM

from support.families import DECODER, padded_batch, tiny_of, with_labels


@pytest.fixture
def model():
    return tiny_of(LlamaForCausalLM, DECODER)


@pytest.fixture
def reference():
    return tiny_of(LlamaForCausalLM, DECODER)


@pytest.fixture
def batch():
    return with_labels(padded_batch(5, 12))
