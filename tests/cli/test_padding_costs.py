"""What each way of batching costs, by `quadrat.cli.waste`, against batches that are really padded."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from transformers.trainer_pt_utils import get_length_grouped_indices

import quadrat
from quadrat.cli import waste

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=150).map(lambda found: np.array(found, dtype=np.int64))
BATCH_SIZES = st.integers(1, 9)
MULTIPLES = st.integers(1, 9)


@st.composite
def rows(draw):
    """Lengths and a permutation of them."""
    lengths = draw(LENGTHS)
    return lengths, np.array(draw(st.permutations(range(len(lengths)))), dtype=np.int64)


def batches(plan):
    return plan.to_lists()


def tokens(lengths, batch):
    """A row of ones for each row of a batch."""
    return [np.ones(lengths[row], dtype=np.int64) for row in batch]


@given(of=rows(), batch_size=BATCH_SIZES)
def test_shuffled_batches_are_the_order_cut(of, batch_size):
    _, order = of
    plan = waste.shuffled(order, batch_size)
    found = batches(plan)
    assert list(itertools.chain(*found)) == order.tolist()
    assert [len(batch) for batch in found[:-1]] == [batch_size] * (len(found) - 1)
    assert 1 <= len(found[-1]) <= batch_size


@given(lengths=LENGTHS, batch_size=BATCH_SIZES, seed=st.integers(0, 2**32))
def test_groups_by_length_as_transformers_does(lengths, batch_size, seed):
    expected = get_length_grouped_indices(lengths.tolist(), batch_size, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).numpy()
    before = order.copy()
    plan = waste.length_grouped(lengths, order, batch_size)
    assert plan.values.tolist() == expected
    assert plan.offsets.tolist() == [*range(0, len(lengths), batch_size), len(lengths)]
    assert (order == before).all()


@given(lengths=LENGTHS, max_tokens=st.integers(9, 200), multiple_of=MULTIPLES, seed=st.integers(0, 9))
def test_a_token_budget_is_that_of_the_sampler(lengths, max_tokens, multiple_of, seed):
    found = batches(waste.token_budget(lengths, max_tokens, multiple_of=multiple_of, seed=seed))
    options = {"multiple_of": multiple_of, "seed": seed, "overlong": "alone"}
    assert found == list(quadrat.TokenBudgetBatchSampler(lengths, max_tokens, **options))
    for batch in found:
        assert quadrat.pad(tokens(lengths, batch), pad_to_multiple_of=multiple_of).size <= max_tokens or len(batch) == 1


@given(of=rows(), batch_size=BATCH_SIZES, multiple_of=MULTIPLES, more=st.none() | st.integers(0, 9))
def test_padding_costs_what_really_padding_makes(of, batch_size, multiple_of, more):
    lengths, order = of
    to = None if more is None else int(lengths.max()) + more
    plan = waste.length_grouped(lengths, order, batch_size)
    made = [
        quadrat.pad(
            tokens(lengths, batch),
            pad_to_multiple_of=multiple_of,
            max_length=to and -(-to // multiple_of) * multiple_of,
        )
        for batch in batches(plan)
    ]
    cost = waste.padded(lengths, plan, multiple_of=multiple_of, to=to)
    computed = sum(batch.size for batch in made)
    assert cost == waste.Cost(
        batches=len(made),
        largest_batch=max(batch.size for batch in made),
        tokens=sum(int(batch.sum()) for batch in made),
        computed=computed,
        shapes=len({batch.shape for batch in made}),
        scores=sum(len(batch) * batch.shape[1] ** 2 for batch in made),
    )
    padding = sum(int((batch == 0).sum()) for batch in made)
    assert cost.padding == pytest.approx(padding / computed if computed else 0)
    assert cost.factor == pytest.approx(computed / cost.tokens if cost.tokens else 1)


@given(of=rows(), batch_size=BATCH_SIZES, multiple_of=MULTIPLES)
def test_flattening_costs_what_really_flattening_makes(of, batch_size, multiple_of):
    lengths, order = of
    plan = waste.shuffled(order, batch_size)
    made = [quadrat.flatten(tokens(lengths, batch), pad_to_multiple_of=multiple_of) for batch in batches(plan)]
    totals = [batch.values.size for batch in made]
    cost = waste.flattened(lengths, plan, multiple_of=multiple_of)
    assert cost == waste.Cost(
        batches=len(made),
        largest_batch=max(totals),
        tokens=sum(int(batch.values.sum()) for batch in made),
        computed=sum(totals),
        shapes=len(set(totals)),
        scores=sum(int((np.diff(batch.cu_seqlens).astype(int) ** 2).sum()) for batch in made),
    )


@given(
    lengths=LENGTHS,
    batch_size=BATCH_SIZES,
    more=st.integers(0, 9),
    max_tokens=st.integers(9, 200),
    multiple_of=MULTIPLES,
    seed=st.integers(0, 9),
)
def test_every_way_has_the_same_tokens(*, lengths, batch_size, more, max_tokens, multiple_of, seed):
    options = {"batch_size": batch_size, "max_length": max(1, int(lengths.max()) + more), "max_tokens": max_tokens}
    costs = waste.every_way(lengths, **options, multiple_of=multiple_of, seed=seed)
    fixed, dynamic, grouped, budget, flat, packed = costs.values()
    assert {cost.tokens for cost in costs.values()} == {int(lengths.sum())}
    assert fixed.batches == dynamic.batches == grouped.batches == flat.batches == -(-len(lengths) // batch_size)
    assert fixed.computed == len(lengths) * -(-options["max_length"] // multiple_of) * multiple_of
    assert fixed.computed >= max(dynamic.computed, grouped.computed, budget.computed)
    assert all(cost.padding >= 0 and cost.factor >= 1 and cost.scores >= flat.scores for cost in costs.values())
    assert waste.every_way(lengths, **options, multiple_of=multiple_of, seed=seed) == costs
    if multiple_of == 1:
        assert flat.padding == packed.padding == 0
        assert packed.largest_batch <= options["max_length"]
        assert packed.batches == len(quadrat.batching.plan_packs(lengths, options["max_length"]))
        assert flat.computed <= min(dynamic.computed, grouped.computed, budget.computed)


@given(lengths=st.lists(st.integers(0, 10**6), min_size=1, max_size=200), at_most=st.integers(1, 30))
def test_the_histogram_counts_every_row_once(lengths, at_most):
    bins = waste.histogram(np.array(lengths), at_most=at_most)
    widths = {one.last - one.first + 1 for one in bins if one.last is not None}
    assert len(widths) == 1
    assert widths.pop().bit_count() == 1
    assert len([one for one in bins if one.last is not None]) <= at_most
    assert all(one.last is not None for one in bins[:-1])
    assert all(one.last + 1 == after.first for one, after in itertools.pairwise(bins))
    for one in bins:
        last = np.inf if one.last is None else one.last
        assert one.rows == sum(one.first <= length <= last for length in lengths)
    assert sum(one.rows for one in bins) == len(lengths)


def test_one_long_row_does_not_squeeze_the_histogram():
    bins = waste.histogram(np.array([*range(64)] * 10 + [10_000]))
    assert [str(one) for one in bins] == [*(f"{first}\N{EN DASH}{first + 3}" for first in range(0, 64, 4)), "64+"]
    assert [one.rows for one in bins] == [40] * 16 + [1]
    assert str(waste.histogram(np.array([7]))[0]) == "7"


@given(lengths=LENGTHS, max_length=st.integers(1, 50))
def test_the_summary_says_what_it_says(lengths, max_length):
    found = waste.summarise(lengths, max_length)
    rows = sorted(lengths.tolist())
    assert (found["rows"], found["tokens"], found["longest"]) == (len(rows), sum(rows), rows[-1])
    assert found["mean"] == pytest.approx(sum(rows) / len(rows))
    assert sum(length <= found["p95"] for length in rows) >= 0.95 * len(rows)
    assert found["p95"] in rows
    assert sum(length < found["p95"] for length in rows) < 0.95 * len(rows)
    assert (
        sum(length <= found["median"] for length in rows)
        >= len(rows) / 2
        <= sum(row >= found["median"] for row in rows)
    )
    assert found["truncated"] == sum(length > max_length for length in rows)
    assert found["kept"] == sum(min(length, max_length) for length in rows)


@pytest.mark.parametrize(
    ("factor", "said"), [(1, "1.00"), (9.994, "9.99"), (10, "10.0"), (962.79, "963"), (4980.2, "4,980")]
)
def test_factors_have_as_many_decimals_as_say_something(factor, said):
    assert waste.times(factor) == said
