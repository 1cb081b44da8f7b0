"""Random trees of rows in a Qwen2 that computes in float64 throughout: rows share what each would compute alone."""

import copy

import numpy as np
import pytest
import torch
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from quadrat import remove_padding
from support.families import DECODER, tiny_of

BATCHES = 75  # for each of four ways to draw them: 300 trees


def norm(self, hidden):
    """The norm of Qwen2 without its rounding to float32."""
    return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def drawn_tree(draw):
    """Between 2 and 8 rows, each of which leaves another one at a drawn depth, in any order."""
    rows = [draw.integers(3, 60, draw.integers(12, 30)).tolist()]
    for _ in range(draw.integers(1, 8)):
        other = rows[draw.integers(len(rows))]
        answer = draw.integers(3, 60, draw.integers(1, 10)).tolist()
        rows.append((other[: draw.integers(len(other) + 1)] + answer)[:48])
    draw.shuffle(rows)
    return rows


def padded(rows, draw, *, left):
    """Ids, mask and positions `[rows, width]`, int64; up to four columns hold no token."""
    width = max(map(len, rows)) + int(draw.integers(0, 5))
    ids, mask = torch.zeros(2, len(rows), width, dtype=torch.int64)
    for number, row in enumerate(rows):
        start = width - len(row) if left else 0
        ids[number, start : start + len(row)] = torch.tensor(row)
        mask[number, start : start + len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(0)}


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_log_probabilities_and_gradients(left, training, monkeypatch):
    monkeypatch.setattr(Qwen2RMSNorm, "forward", norm)
    draw = np.random.default_rng([left, training])
    model = tiny_of("Qwen2ForCausalLM", DECODER).train(training)
    reference = copy.deepcopy(model)
    removed = remove_padding(model)
    batches_that_share = 0
    for _ in range(BATCHES):
        rows, before = drawn_tree(draw), removed.shared
        batch = padded(rows, draw, left=left)
        got = model(**batch).logits[batch["attention_mask"].bool()].log_softmax(-1)
        batches_that_share += removed.shared > before
        alone = torch.cat([reference(input_ids=torch.tensor([row])).logits[0] for row in rows]).log_softmax(-1)
        torch.testing.assert_close(got, alone, rtol=0, atol=1e-9)
        weights = torch.from_numpy(draw.normal(size=got.shape)) / len(got)
        (got * weights).sum().backward()
        (alone * weights).sum().backward()
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-9)
        model.zero_grad()
        reference.zero_grad()
    assert batches_that_share > BATCHES / 2
    assert "beginnings that rows share once" in str(removed)
    assert not removed.left
