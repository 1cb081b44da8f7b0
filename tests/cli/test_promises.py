"""What `quadrat run` promises of an option is what the option does, of the batches that it changes."""

from types import MethodType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from transformers import Trainer, TrainingArguments
from transformers.pipelines.base import no_collate_fn

import quadrat
from quadrat.cli.promises import Promise, option_for, promised
from quadrat.cli.waits import Waits
from support import standins
from support.command import reported
from support.streams import Torch

TRAIN = """
import random
from datasets import Dataset
from transformers import BertForSequenceClassification, DataCollatorWithPadding, Trainer
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny

draw = random.Random(0)
def rows(count):
    lengths = [min(90, int(draw.lognormvariate(2.5, 0.9)) + 1) for _ in range(count)]
    return Dataset.from_list([{"input_ids": [1] * length, "labels": length % 2} for length in lengths])
args = arguments("out", per_device_train_batch_size=8, num_train_epochs=2, eval_strategy="epoch", logging_strategy="no")
model, collator = tiny(BertForSequenceClassification), DataCollatorWithPadding(make_tokenizer(), pad_to_multiple_of=4)
Trainer(model, args, train_dataset=rows(300), eval_dataset=rows(61), data_collator=collator).train()
"""


@pytest.mark.slow
def test_an_option_does_what_was_promised(tmp_path):
    done, before = reported(tmp_path, TRAIN)
    (promise,) = (Promise(**one) for one in before["promises"])
    assert f"padding; {promise}\n" in done.stderr
    _, after = reported(tmp_path, TRAIN, options=promise.option.split())
    saved = promise.computed - promise.computed_with
    assert before["computed"] - after["computed"] == pytest.approx(saved, rel=0.03)
    assert after["promises"] == []


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=40), size=st.integers(1, 9), passes=st.integers(1, 3))
def test_what_is_not_known_is_not_estimated(lengths, size, passes):
    computed = passes * sum(len(batch) * max(batch) for batch in BatchSampler(lengths, size, False))
    sums = {"computed": computed, "sized": passes * -(-len(lengths) // size), "unknown": 0, "cut": 0}
    counts = {"lengths": dict(zip(*np.unique(lengths * passes, return_counts=True), strict=True))}
    counts |= {"rows": {min(size, len(lengths)): 1}, "passes": {"": passes}}
    found = promised("training", "--max-tokens", counts | {"sums": sums})
    assert (found.loop, found.computed) == ("training", computed)
    assert found.share == max(0, 1 - found.computed_with / computed)
    for unknown in ({"unknown": 1}, {"computed": 0}, {"cut": computed}):
        assert isinstance(promised("training", "--max-tokens", counts | {"sums": sums | unknown}), str)
    assert isinstance(promised("training", "quadrat.batching.by_length", counts | {"sums": sums}), str)


class OwnLoader(Trainer):
    def get_train_dataloader(self):
        return super().get_train_dataloader()


def test_which_option_changes_the_batches_of_a_loader(tmp_path):
    rows = [{"input_ids": [5] * (1 + row)} for row in range(8)]
    pad = quadrat.DataCollatorWithPadding(standins.encoder_tokenizer())

    def option(trainer=None, evaluates=False, rows=rows, **options):
        def evaluation_loop(self):
            return option_for(iter(DataLoader(rows, **options)))

        def train(self):
            return option_for(iter(DataLoader(rows, **options)))

        return MethodType(evaluation_loop if evaluates else train, trainer)()

    assert option("script", shuffle=True, collate_fn=pad) == "--max-tokens"
    assert option("script", sampler=RandomSampler(rows), collate_fn=list) == "quadrat.batch_by_tokens"
    assert option("script", collate_fn=pad) == "quadrat.batching.by_length"
    assert option("script", rows=Torch([])) == "quadrat.BatchedStream"
    by_tokens = quadrat.TokenBudgetBatchSampler(quadrat.lengths(rows), 16)
    batches = {"rows": quadrat.data.BatchedDataset(rows, by_tokens), "batch_size": 1}
    for together in ({"batch_sampler": by_tokens}, batches):
        assert option("script", **together) == "rows of similar length are together already"
    args = TrainingArguments(tmp_path, report_to="none", use_cpu=True)
    usual, own = (
        cls(torch.nn.Linear(1, 1), args, train_dataset=rows, data_collator=pad) for cls in (Trainer, OwnLoader)
    )
    assert option(usual) == option(usual, collate_fn=list) == "--max-tokens"
    assert option(usual, evaluates=True) == option(own, evaluates=True) == "an evaluation keeps its rows in order"
    assert option(own).startswith("OwnLoader chooses rows in its own way")
    assert option(usual, rows=Torch([])) == "quadrat.BatchedStream"
    waits = Waits()
    assert waits.start(iter(DataLoader(rows, collate_fn=no_collate_fn))) is None  # a pipeline's inputs
    assert waits.start(iter(DataLoader(rows))) is not None
