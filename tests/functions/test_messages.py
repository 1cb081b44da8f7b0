"""Messages of likely mistakes say what to give instead, in numbers that can be read."""

import datasets
import pytest
import torch

import quadrat

DATASET = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]]})


@pytest.mark.parametrize(
    ("error", "call", "words"),
    [
        (
            TypeError,
            lambda: quadrat.TokenBudgetBatchSampler(DATASET, 16),
            r"of a dataset, give quadrat.lengths\(dataset\)",
        ),
        (TypeError, lambda: quadrat.plan_packs(DATASET, 16), r"give quadrat.lengths\(dataset\)"),
        (
            ValueError,
            lambda: quadrat.varlen.document_block_mask([0, 5, 3]),
            "offsets must rise from 0; they run",
        ),
        (ValueError, lambda: quadrat.TokenBudgetBatchSampler([1], 0), r"max_tokens must be from 1 to 2\*\*61, not 0"),
        (ValueError, lambda: quadrat.TokenBudgetBatchSampler([1], 1, seed=-1), r"from 0 to 2\*\*64 - 1, not -1"),
        (TypeError, lambda: quadrat.pad(["abc"]), "row 0 is the str 'abc': .* CPU tensors of a known dtype$"),
        (TypeError, lambda: quadrat.without_padding(5), "compute_metrics must be a function, not 5"),
        (
            TypeError,
            lambda: quadrat.bert_padding.pad_input(torch.ones(2, 3), torch.tensor([0, 1]), 2.0, 2),
            "batch must be an int, not 2.0",
        ),
    ],
)
def test_messages(error, call, words):
    with pytest.raises(error, match=words):
        call()


def test_reprs():
    sampler = quadrat.TokenBudgetBatchSampler([1, 2], 8)
    assert repr(sampler) == "TokenBudgetBatchSampler(rows=2, max_tokens=8, world_size=1, rank=0, epoch=0)"
    assert repr(quadrat.BatchedDataset(DATASET, sampler)) == "BatchedDataset(rows=2, columns=None, epoch=0)"
    patch = quadrat.patch_transformers()
    assert repr(patch) == "<quadrat.patch_transformers(): in force>"
    patch.undo()
    assert repr(patch) == "<quadrat.patch_transformers(): undone>"
