"""`remove_padding` on tiny models of many families: the same at real tokens, and the same gradients."""

import pytest
import torch

from quadrat import remove_padding
from support.families import ENCODERS_TAKE_ROWS, FAMILIES, VOCABULARY, padded_batch, tiny, with_labels
from support.without_padding import assert_same, assert_same_gradients, leaves, way

# The families whose attention cannot be told of rows.
TOKEN_BY_TOKEN = {"Falcon", "MPNet", "DebertaV2", "Bloom", "Mamba2"}
if not ENCODERS_TAKE_ROWS:
    TOKEN_BY_TOKEN |= {"Bert", "Roberta", "XLMRoberta", "Electra", "DistilBert", "Albert", "ModernBert", "OPT"}
IN_FLOAT32 = {"Gemma3", "Cohere"}  # norms or logits are computed in float32 whatever the model's type
SINGLE = {"Gemma2", "Bloom"}  # in float64, what they make of padding is not a number


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, left):
    reference, model = tiny(family), tiny(family)
    if family in SINGLE:
        reference, model = reference.float(), model.float()
    plain = padded_batch(5, 12, left=left, padding=model.config.pad_token_id or 0)
    batch, mask = with_labels(plain), plain["attention_mask"]
    most, of_gradients = (1e-5, 1e-4) if family in SINGLE else (1e-11, 1e-6 if family in IN_FLOAT32 else 1e-9)
    with remove_padding(model) as removed:
        with torch.no_grad():
            assert_same(reference(**plain), model(**plain), mask, most)
            assert way(removed) == ("token by token" if family in TOKEN_BY_TOKEN else "flat")
            assert removed.removed == mask.numel() - mask.sum()
        before = removed.removed
        reference.train()
        model.train()
        expected, got = reference(**batch), model(**batch)
        assert_same(expected, got, mask, most, zeros=removed.removed > before)
        expected.loss.backward()
        got.loss.backward()
        assert_same_gradients(reference, model, of_gradients)
        assert removed.removed == 2 * before or removed.left
        model.eval()
        reference.eval()
        full = {"input_ids": torch.arange(36).view(3, 12) % VOCABULARY, "attention_mask": torch.ones(3, 12).long()}
        for (name, value), (_, other) in zip(leaves(reference(**full)), leaves(model(**full)), strict=True):
            assert torch.equal(value, other), name
