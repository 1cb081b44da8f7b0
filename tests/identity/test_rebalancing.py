"""BatchRebalanceSampler == that of the installed transformers, where it has one: batches, attributes and errors."""

import numpy as np
import pytest
import torch
import transformers.trainer
from hypothesis import given
from hypothesis import strategies as st
from transformers import trainer_pt_utils

import quadrat
from quadrat.batching import samplers
from quadrat.installed import originals
from support.samplers import MANY, ODD, attributes, outcome

rebalance = pytest.mark.skipif(
    not hasattr(trainer_pt_utils, "BatchRebalanceSampler"), reason="the installed transformers has no such sampler"
)


def batches_of(cls, lengths, sizes, options):
    sampler = cls(lengths, *sizes, **options)
    found = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        before = torch.get_rng_state()
        found += [len(sampler), outcome(lambda: list(sampler))]
        assert torch.equal(torch.get_rng_state(), before)
    return found, attributes(sampler)


@rebalance
@MANY
@given(
    st.lists(st.integers(0, 5) | st.integers(1, 700) | st.just(9000), max_size=80) | ODD,
    st.integers(0, 6),
    st.integers(0, 5),
    st.data(),
)
def test_rebalanced_batches(lengths, dp_size, grad_accum, data):
    size = data.draw(st.integers(max(dp_size * grad_accum - 1, 0), 40))
    options = {
        "shuffle": data.draw(st.booleans()), "seed": data.draw(st.integers(0, 2**40)),
        "rank": data.draw(st.integers(0, max(dp_size - 1, 0))), "drop_last": data.draw(st.booleans()),
    }  # fmt: skip
    classes = originals.BatchRebalanceSampler, quadrat.batching.BatchRebalanceSampler
    expected, got = [outcome(batches_of, cls, lengths, (size, dp_size, grad_accum), options) for cls in classes]
    assert got == expected


@rebalance
@pytest.mark.parametrize(("rows", "dp_size", "grad_accum"), [(2048, 16, 8), (1000, 8, 4), (700, 7, 13)])
def test_many_rows_rebalanced(rows, dp_size, grad_accum):
    lengths = np.random.default_rng(rows).lognormal(5, 1, rows).clip(1, 2048).astype(int).tolist()
    classes = originals.BatchRebalanceSampler, quadrat.batching.BatchRebalanceSampler
    expected, got = [batches_of(cls, lengths, (rows, dp_size, grad_accum), {}) for cls in classes]
    assert got == expected


@rebalance
def test_rebalances_as_a_subclass_says():
    lengths = torch.randint(1, 500, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    found = []
    for cls in (originals.BatchRebalanceSampler, quadrat.batching.BatchRebalanceSampler):

        class Linear(cls):
            QUADRATIC_COST_COEF = 0

        class Flat(cls):
            def _cost(self, bs, max_len):
                return bs * max_len

        class Steep(cls):
            QUADRATIC_COST_COEF = 0.5

        found.append([batches_of(each, lengths, (50, 2, 4), {}) for each in (cls, Linear, Flat, Steep)])
    assert found[1] == found[0]
    assert found[0][0] != found[0][3]


@rebalance
def test_the_search_is_compiled():
    assert samplers._searches_alike()
    rows = list(range(64))
    for lengths in (rows, np.array(rows)):
        sampler = quadrat.batching.BatchRebalanceSampler(lengths, 64, 4, 2)
        assert samplers._balanced(sampler, rows, sampler.lengths) is not None


@rebalance
def test_trainer_knows_samplers_that_were_made_before():
    before = trainer_pt_utils.BatchRebalanceSampler([1, 2], 2, 1, 1)
    with quadrat.patch_transformers():
        assert isinstance(before, transformers.trainer.BatchRebalanceSampler)
        inside = transformers.trainer.BatchRebalanceSampler([1, 2], 2, 1, 1)
    assert isinstance(inside, trainer_pt_utils.BatchRebalanceSampler)
    assert type(inside) is quadrat.batching.BatchRebalanceSampler
    assert not isinstance([], quadrat.batching.BatchRebalanceSampler)


def test_where_there_is_nothing_to_rebalance_with():
    if not hasattr(trainer_pt_utils, "BatchRebalanceSampler"):
        with pytest.raises(NotImplementedError, match="install a later one"):
            quadrat.batching.BatchRebalanceSampler([1, 2], 2, 1, 1)
