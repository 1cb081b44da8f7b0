"""Rows that begin alike share their beginnings: what is computed is as of each row alone."""

import copy
import itertools

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from quadrat import remove_padding
from support.families import DECODER, padded_batch, tiny, tiny_of

ALIKE = [[*range(3, 30), last] for last in (31, 32, 33)] + [[5, 6]]
MODELS = [("GPT2", {}), ("Starcoder2", {"sliding_window": 12}), ("Llama", {})]


class LooksAhead(LlamaForCausalLM):
    """Adds the mean over each row to its logits, so rows that begin alike differ from the start."""

    def forward(self, input_ids=None, attention_mask=None, **options):
        output = super().forward(input_ids, attention_mask, **options)
        output.logits = output.logits + output.logits.mean(1, keepdim=True)
        return output


def norm(self, hidden):
    """The norm of Llama without its rounding to float32."""
    return self.weight * hidden * (hidden.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def drawn_rows(draw, count):
    """Rows that part at drawn depths: each goes on from a beginning of another one."""
    rows = [draw.integers(3, 60, draw.integers(9, 30)).tolist()]
    while len(rows) < count:
        other = rows[draw.integers(len(rows))]
        rest = draw.integers(3, 60, draw.integers(0, 12)).tolist()
        rows.append((other[: draw.integers(len(other) + 1)] + rest)[:48] or [5])
    draw.shuffle(rows)
    return rows


def padded(rows, *, left):
    width = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), width, dtype=torch.int64)
    for number, row in enumerate(rows):
        places = slice(width - len(row), None) if left else slice(len(row))
        ids[number, places], mask[number, places] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(0)}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize(("family", "options"), MODELS)
def test_random_trees(family, options, left, monkeypatch):
    monkeypatch.setattr(LlamaRMSNorm, "forward", norm)
    draw = np.random.default_rng(left)
    model = tiny(family, **options)
    reference = copy.deepcopy(model)
    removed = remove_padding(model)
    for _ in range(50):
        rows = drawn_rows(draw, draw.integers(2, 9))
        batch = padded(rows, left=left)
        real = batch["attention_mask"].bool()
        got = model(**batch).logits[real].log_softmax(-1)
        weights = torch.from_numpy(draw.normal(size=got.shape))
        (got * weights).sum().backward()
        alone = [reference(input_ids=torch.tensor([row])).logits[0] for row in rows]
        expected = torch.cat(alone).log_softmax(-1)
        (expected * weights).sum().backward()
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
        model.zero_grad()
        reference.zero_grad()
    assert "beginnings that rows share once" in str(removed)
    assert removed.shared > removed.computed / 10


def test_rows_that_share_are_compared_before_they_are_trusted():
    model = tiny_of(LooksAhead, DECODER)
    batch = padded([*ALIKE[:3], ALIKE[0][:20]], left=False)
    real = batch["attention_mask"].bool()
    expected = model(**batch).logits
    with remove_padding(model) as removed:
        assert torch.equal(model(**batch).logits[real], expected[real])
    assert removed.shared == 0


def test_sharing_that_goes_wrong_is_found_out(monkeypatch):
    """Rows that get the tokens of others."""
    from quadrat.model.prefixes import SharedRows

    put = SharedRows.put
    monkeypatch.setattr(SharedRows, "put", lambda self, values: put(self, values.roll(1, 1)))
    model = tiny_of(LlamaForCausalLM, DECODER)
    batch = padded(ALIKE, left=False)
    real = batch["attention_mask"].bool()
    expected = model(**batch).logits
    with remove_padding(model) as removed:
        torch.testing.assert_close(model(**batch).logits[real], expected[real], rtol=0, atol=1e-9)
    assert (removed.shared, removed.removed > 0) == (0, True)


def test_dropout_in_training_shares_nothing():
    model = LlamaForCausalLM(LlamaConfig(**DECODER, attention_dropout=0.5))
    batch = padded(ALIKE, left=False)
    with remove_padding(model) as removed:
        model(**batch)
        assert removed.shared == 0
        model.eval()(**batch)
        assert removed.shared == 2 * 27


def test_labels_keep_their_loss():
    model = tiny_of(LlamaForCausalLM, DECODER)
    batch = padded(ALIKE, left=False)
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    expected = model(**batch).loss
    with remove_padding(model) as removed:
        torch.testing.assert_close(model(**batch).loss, expected)
    assert (removed.shared, removed.removed > 0) == (0, True)


def in_other_columns():
    """Rows that begin alike, each in another column, where the model gives them other positions."""
    batch = padded([[*range(3, 30), *range(30, 30 + rest)] for rest in (1, 2, 3, 9)], left=True)
    return {name: value for name, value in batch.items() if name != "position_ids"}


@pytest.mark.parametrize("batch", [padded_batch(5, 12), in_other_columns()], ids=["tokens", "positions"])
def test_rows_that_share_nothing(batch):
    model = tiny_of(LlamaForCausalLM, DECODER)
    with remove_padding(model) as removed:
        model(**batch)
    assert (removed.shared, removed.removed > 0) == (0, True)


def peak(call):
    """The largest number of bytes that a call holds at a time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    held = itertools.accumulate(
        event.nbytes() for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"
    )
    return max(held)


@pytest.mark.parametrize(("prompt", "answers", "answer"), [(128, 8, 32), (64, 2, 64), (32, 4, 128)])
def test_memory_is_no_more_than_without_sharing(prompt, answers, answer):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256}
    model = tiny_of(LlamaForCausalLM, DECODER | sizes)
    ends = range(answer - answers, answer)
    rows = [[*[5] * prompt, *(7 + (number + at) % 50 for at in range(end))] for number, end in enumerate(ends)]
    batch = padded(rows, left=False)

    def step():
        model(**batch).logits.logsumexp(-1).sum().backward()
        model.zero_grad()

    with remove_padding(model) as removed:
        step()  # compares
        shared = peak(step)
        assert removed.shared
        for hook in model._forward_pre_hooks.values():
            hook.__self__.decisions._may_share = dict.fromkeys((True, False), False)  # there is no option for it
        before = removed.shared
        apart = peak(step)
        assert removed.shared == before
    assert shared <= apart
