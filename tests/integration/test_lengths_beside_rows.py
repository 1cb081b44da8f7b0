"""A length for each row, or an error that names both numbers."""

import datasets
import pytest
import torch

import quadrat
from integration.test_batch_by_tokens import lengths, rows
from support.trainer import trainer_of


@pytest.mark.parametrize("count", [2, 95, 97])
def test_lengths_of_another_number_of_rows(tmp_path, count):
    """They would train on a part of the rows."""
    data, other = rows(), [5] * count
    table = datasets.Dataset.from_list(data)
    sampler = quadrat.TokenBudgetBatchSampler(other, 64)
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    pad = {"collator": quadrat.pad}
    for call in (
        lambda: quadrat.batch_by_tokens(trainer_of(tmp_path, data), lengths=other),
        lambda: quadrat.batch_by_tokens(trainer_of(tmp_path, table), 512, lengths=other),
        lambda: quadrat.batch_by_tokens(loader, lengths=other),
        lambda: quadrat.data.BatchedDataset(data, sampler),
        lambda: quadrat.PackedDataset(data, 64, lengths=other),
        lambda: quadrat.PackedDataset(data, 64, counts=other, max_count=64),
        lambda: quadrat.batching.plan_packs(lengths(), 64, counts=other, max_count=64),
        lambda: quadrat.batching.LengthGroupedSampler(4, table, other),
        lambda: quadrat.batching.by_length(data, lengths=other, **pad),
        lambda: quadrat.batching.map_by_length(len, data, lengths=other, **pad),
        lambda: quadrat.lengths(data, weights=other),
        lambda: quadrat.unpad(torch.zeros(96, 64), lengths=other),
    ):
        with pytest.raises(ValueError, match=rf"(?=.*\b{count}\b).*\b96\b"):
            call()
    grown = data[:2]
    batches = quadrat.data.BatchedDataset(grown, quadrat.TokenBudgetBatchSampler([5, 5], 64))
    grown += data[2:]
    with pytest.raises(ValueError, match="the sampler has 2 rows, but the dataset has 96"):
        batches[0]
