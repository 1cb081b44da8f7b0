"""Models that read padding, or other rows, are found out before their results are used."""

import copy

import pytest
import torch
from transformers import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    LlamaForCausalLM,
    LlamaModel,
    SwitchTransformersEncoderModel,
)

from quadrat import remove_padding
from support.families import DECODER, ENCODER, padded_batch, tiny_of
from support.without_padding import assert_same, leaves


class _Mixing(LlamaForCausalLM):
    """Adds the mean over the width to the logits of some batches."""

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **options):
        output = super().forward(input_ids, attention_mask, position_ids, **options)
        positions = torch.arange(input_ids.shape[1]) if position_ids is None else position_ids
        if self.mixes(attention_mask, positions):
            output.logits = output.logits + output.logits.mean(1, keepdim=True)
        return output

    def mixes(self, mask, positions):
        raise NotImplementedError


class LongRows(_Mixing):
    def mixes(self, mask, positions):
        return (positions * mask).max() >= 50


class PaddingOnTheLeft(_Mixing):
    def mixes(self, mask, positions):
        return not mask[:, 0].all()


class ThreeRows(_Mixing):
    def mixes(self, mask, positions):
        return len(mask) == 3


class Wide(_Mixing):
    def mixes(self, mask, positions):
        return positions.max() >= 50


class RaisesWithoutPadding(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, **options):
        if len(input_ids) == 1:
            raise ValueError("one row is too few")
        return super().forward(input_ids, attention_mask, **options)


class _Forgetful(LlamaModel):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **_):
        return super().forward(input_ids, attention_mask, position_ids, use_cache=False)


class PassesNothingOn(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model = _Forgetful(config)


class MeanOfAllColumns(BertModel):
    def __init__(self, config):
        super().__init__(config)
        self.pooler = None

    def forward(self, *args, **options):
        output = super().forward(*args, **options)
        output.pooler_output = output.last_hidden_state.mean(1)
        return output


class _MeanPooler(torch.nn.Module):
    def forward(self, hidden):
        return hidden.mean(1)


class PoolerOfAllColumns(BertModel):
    def __init__(self, config):
        super().__init__(config)
        self.pooler = _MeanPooler()


BATCHES = [(5, 12, False), (5, 12, True), (3, 12, False), (4, 60, False), (4, 60, True), (5, 12, False)]
# The models that stay as they are for a batch, by its place above.
LEFT = {LongRows: {3, 4}, Wide: {3, 4}, PaddingOnTheLeft: {1, 4}, ThreeRows: {2}}


def batch_of(rows, width, left):
    batch = padded_batch(rows, width, left=left)
    batch["attention_mask"][1] = torch.arange(width) < 2
    if left:
        batch["attention_mask"][1] = batch["attention_mask"][1].flip(0)
    return batch


@pytest.mark.parametrize("cls", LEFT)
def test_found_out_before_results_are_used(cls):
    model = tiny_of(cls, DECODER)
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed, torch.no_grad():
        for place, batch in enumerate(batch_of(*layout) for layout in BATCHES):
            before = removed.removed
            assert_same(reference(**batch), model(**batch), batch["attention_mask"])
            assert (removed.removed == before) == (place in LEFT[cls]), place
    assert removed.left


def test_long_rows_of_a_batch_as_wide_as_those_before():
    """Rows of 55 tokens in a batch of 60 columns are proven although rows of 40 tokens in 60 columns were."""
    model = tiny_of(LongRows, DECODER)
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed, torch.no_grad():
        for longest in (40, 55):
            mask = (torch.arange(60) < torch.tensor([[longest], [7], [20]])).long()
            batch, before = {"input_ids": mask * 9, "attention_mask": mask}, removed.removed
            assert_same(reference(**batch), model(**batch), mask)
            assert (removed.removed > before) == (longest == 40)


@pytest.mark.parametrize("cls", [RaisesWithoutPadding, PassesNothingOn, MeanOfAllColumns, PoolerOfAllColumns])
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_models_that_do_not_work_without_padding(cls, left):
    bert = issubclass(cls, BertModel)
    model = tiny_of(cls, ENCODER if bert else DECODER)
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed, torch.no_grad():
        for rows in (5, 5, 3):
            batch = padded_batch(rows, 12, left=left)
            assert_same(reference(**batch), model(**batch), batch["attention_mask"])
    assert not bert or (removed.left and not removed.removed)


class Raises(LlamaForCausalLM):
    """Raises what it is told, once, after its backbone has run."""

    errors = ()

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **options):
        output = super().forward(input_ids, attention_mask, position_ids, **options)
        if self.errors and len(output.logits) == 1:
            raise self.errors.pop()
        return output


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("proven", [False, True])
def test_the_call_after_an_error_is_right(error, proven):
    model = tiny_of(Raises, DECODER)
    reference = copy.deepcopy(model)
    batch = padded_batch(5, 12)
    with remove_padding(model) as removed, torch.no_grad():
        if proven:
            model(**batch)
        model.errors = [error]
        if proven or isinstance(error, KeyboardInterrupt):
            with pytest.raises(type(error)):
                model(**batch)
        for other in (batch, padded_batch(4, 9, left=True), padded_batch(5, 12, seed=3)):
            before = removed.removed
            assert_same(reference(**other), model(**other), other["attention_mask"])
            assert removed.removed > before


def test_question_answering_is_left_alone_with_its_loss():
    """Its loss is a softmax over the width: what the model makes of padding counts."""
    model = tiny_of(BertForQuestionAnswering, ENCODER)
    reference = copy.deepcopy(model)
    batch = padded_batch(5, 12) | {"start_positions": torch.zeros(5).long(), "end_positions": torch.zeros(5).long()}
    with remove_padding(model) as removed:
        for (name, value), (_, other) in zip(leaves(reference(**batch)), leaves(model(**batch)), strict=True):
            assert torch.equal(value, other), name
    assert not removed.removed
    assert removed.left


LITTLE, MUCH = [60] * 31 + [59], [60] * 30 + [20, 10]


def batch_of_lengths(lengths, *, left=False):
    """Rows of these lengths, with ids at padding that models do not take for padding."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 90, mask.shape, generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": mask.flip(1) if left else mask}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("at_padding", [False, True])
def test_labels_that_padding_predicts_count_however_few_they_are(left, at_padding):
    """A batch with one such label among 1,900 has the same loss but for rounding; the next one has not."""
    model = tiny_of(LlamaForCausalLM, DECODER).float()
    reference = copy.deepcopy(model)
    with remove_padding(model), torch.no_grad():
        for lengths in (LITTLE, MUCH):
            batch = batch_of_lengths(lengths, left=left)
            labels = batch["input_ids"].masked_fill((batch["attention_mask"] == 0) & (not at_padding), -100)
            assert_same(reference(**batch, labels=labels), model(**batch, labels=labels), batch["attention_mask"], 2e-6)


def test_much_padding_is_proven_although_little_was():
    """One place of padding among 1,920 hardly changes the loss of question answering."""
    model = tiny_of(BertForQuestionAnswering, ENCODER).float()
    reference = copy.deepcopy(model)
    answers = {"start_positions": torch.arange(32) % 10, "end_positions": torch.arange(32) % 10}
    with remove_padding(model) as removed:
        for lengths in (LITTLE, MUCH):
            batch = batch_of_lengths(lengths) | answers
            assert_same(reference(**batch), model(**batch), batch["attention_mask"], 2e-5)
    assert removed.left


def test_scores_of_rows_without_tokens():
    """Scores as wide as the batch are not outputs of tokens, which have no value at padding."""
    model = tiny_of(BertForSequenceClassification, ENCODER)
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed, torch.no_grad():
        for lengths in ([2, 1, 0], [1, 0, 0]):
            batch = batch_of_lengths(lengths)
            assert_same(reference(**batch), model(**batch), batch["attention_mask"], scores=True)
    assert removed.left


def test_experts_that_are_full():
    """An expert takes 16 tokens of a row: those of several rows, side by side, may be more."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_sparse_encoder_layers": 2, "num_heads": 4}
    model = tiny_of(SwitchTransformersEncoderModel, sizes | {"num_experts": 2, "expert_capacity": 16})
    reference = copy.deepcopy(model)
    with remove_padding(model) as removed, torch.no_grad():
        for lengths in ([20, 1, 1, 1], [20, 19, 18, 20]):
            batch = batch_of_lengths(lengths)
            assert_same(reference(**batch), model(**batch), batch["attention_mask"])
    assert removed.removed
