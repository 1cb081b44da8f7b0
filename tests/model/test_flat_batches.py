"""Flat batches that come with boundaries are computed row by row, without FlashAttention."""

import copy

import pytest
import torch
from transformers import DataCollatorWithFlattening, LlamaForCausalLM

from quadrat import remove_padding
from support.families import DECODER, tiny_of

ROWS = [list(range(3, 3 + length)) for length in (5, 9, 3)]
FLAT = DataCollatorWithFlattening(return_flash_attn_kwargs=True)


class ReadsOtherRows(LlamaForCausalLM):
    """Adds the mean over a flat batch to its logits."""

    def forward(self, input_ids=None, **options):
        output = super().forward(input_ids, **options)
        if len(input_ids) == 1:
            output.logits = output.logits + output.logits.mean(1, keepdim=True)
        return output


def flat_batch(rest=0):
    """ROWS as one row, with padding behind them."""
    batch = FLAT([{"input_ids": row} for row in ROWS])
    ends = {
        "input_ids": torch.zeros(1, rest),
        "position_ids": torch.arange(rest)[None],
        "labels": torch.full((1, rest), -100),
    }
    return batch | {name: torch.cat([batch[name], end.long()], 1) for name, end in ends.items()}


@pytest.mark.parametrize("rest", [0, 4])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_rows_are_computed_apart(attention, rest):
    # The softmax of eager attention is computed in float32, whatever the model's type.
    dtype, most = (torch.float64, 1e-9) if attention == "sdpa" else (torch.float32, 1e-5)
    model = tiny_of(LlamaForCausalLM, DECODER).to(dtype)
    model.set_attn_implementation(attention)
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed:
        output = model(**flat_batch(rest))
        output.loss.backward()
    assert "by their boundaries" in str(removed)
    alone = [reference(input_ids=torch.tensor([row]), labels=torch.tensor([row])) for row in ROWS]
    logits = torch.cat([each.logits for each in alone], 1)
    torch.testing.assert_close(output.logits[:, : logits.shape[1]], logits, rtol=0, atol=most)
    targets = [len(row) - 1 for row in ROWS]
    loss = sum(each.loss * count for each, count in zip(alone, targets, strict=True)) / sum(targets)
    torch.testing.assert_close(output.loss, loss, rtol=1e-6, atol=0)
    loss.backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=most)


def test_a_model_that_reads_other_rows_is_left_alone():
    model = tiny_of(ReadsOtherRows, DECODER)
    batch = flat_batch()
    expected = model(**batch).logits
    with remove_padding(model) as removed:
        assert torch.equal(model(**batch).logits, expected)
    assert "stays as it is for batches of this form" in str(removed.left)


def test_flat_batches_without_boundaries_stay_as_they_are():
    model = tiny_of(LlamaForCausalLM, DECODER)
    batch = {name: value for name, value in flat_batch().items() if name in ("input_ids", "position_ids")}
    expected = model(**batch).logits
    with remove_padding(model):
        assert torch.equal(model(**batch).logits, expected)
