"""quadrat.TokenBudgetBatchSampler: what its docstring promises."""

import math
import pickle

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from quadrat import TokenBudgetBatchSampler
from quadrat.batching import LengthGroupedSampler, token_budget
from quadrat.batching.token_budget import usual_sampler


@st.composite
def cases(draw):
    """Lengths, a budget that allows each of them, and other options; the ranks are 1 to 5, the rows as many or more."""
    lengths = draw(st.just([0] * 5) | st.lists(st.integers(0, 30) | st.integers(0, 3), min_size=1, max_size=60))
    multiple_of = draw(st.integers(1, 8))
    options = {
        "max_tokens": max(-(-max(lengths) // multiple_of) * multiple_of, multiple_of) + draw(st.integers(0, 200)),
        "padded": draw(st.booleans()),
        "max_batch_size": draw(st.none() | st.integers(1, 9)),
        "multiple_of": multiple_of,
        "window": draw(st.none() | st.integers(1, 70)),
        "world_size": draw(st.integers(1, min(5, len(lengths)))),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
        "drop_last": draw(st.booleans()),
        "attention": draw(st.none() | st.floats(0.5, 100.0)),
    }
    return lengths, options


def all_ranks(lengths, options, epoch=0):
    """The batches of each rank; None where there are too few to drop some."""
    samplers = [TokenBudgetBatchSampler(lengths, **options, rank=rank) for rank in range(options["world_size"])]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    try:
        return [list(sampler) for sampler in samplers]
    except ValueError as error:
        assert options["drop_last"]
        assert "drop_last=True would drop them all" in str(error)  # noqa: PT017
        return None


def cost_of(lengths, batch, options):
    multiple_of, sizes = options["multiple_of"], [lengths[row] for row in batch]
    rows, tokens = (len(sizes), max(sizes)) if options["padded"] else (1, sum(sizes))
    if (crossover := options.get("attention")) is None:
        return rows * -(-tokens // multiple_of) * multiple_of
    if options["padded"]:
        return rows * row_cost(-(-tokens // multiple_of) * multiple_of, crossover)
    return sum(row_cost(size, crossover) for size in sizes)


def row_cost(width, crossover):
    return round(width * (1 + width / crossover))


def limit_of(lengths, options):
    """The cost that the budget stands for: that of its tokens in rows of median width."""
    if (crossover := options.get("attention")) is None:
        return options["max_tokens"]
    multiple_of = options["multiple_of"] if options["padded"] else 1
    median = sorted(-(-length // multiple_of) * multiple_of for length in lengths)[(len(lengths) - 1) // 2]
    return round(options["max_tokens"] * (1 + median / crossover))


@given(cases(), st.integers(0, 3))
def test_each_row_once_within_the_budget_and_as_many_batches_on_each_rank(case, epoch):
    lengths, options = case
    ranks = all_ranks(lengths, options, epoch)
    if ranks is None:
        return
    assert len({len(batches) for batches in ranks}) == 1
    batches = [batch for share in ranks for batch in share]
    limit = limit_of(lengths, options)
    assert all(cost_of(lengths, batch, options) <= limit for batch in batches if len(batch) != 1)
    assert all(batch and max(lengths[row] for row in batch) <= options["max_tokens"] for batch in batches)
    assert max(map(len, batches)) <= (options["max_batch_size"] or len(lengths))
    rows = [row for batch in batches for row in batch]
    if options["drop_last"]:
        assert len(set(rows)) == len(rows)
    elif len(rows) > len(lengths):
        assert set(rows) == set(range(len(lengths)))
        assert all(len(batch) == 1 for batch in batches)
        assert len(rows) - len(lengths) < options["world_size"]
    else:
        assert sorted(rows) == list(range(len(lengths)))


@given(cases(), st.integers(0, 3))
def test_seed_and_epoch_alone_say_what_comes(case, epoch):
    lengths, options = case
    ranks = all_ranks(np.array(lengths, np.uint8), options, epoch)
    assert ranks == all_ranks(torch.tensor(lengths), options, epoch)
    if ranks is None:
        return
    used = TokenBudgetBatchSampler(lengths, **options)
    for other in (7, epoch, epoch):
        used.set_epoch(other)
        if options["drop_last"]:
            try:
                list(used)
            except ValueError:
                continue
        else:
            list(used)
    assert list(used) == ranks[0]
    assert len(used) == len(ranks[0])
    assert list(pickle.loads(pickle.dumps(used))) == ranks[0]
    together = TokenBudgetBatchSampler(lengths, **options, rank=None)
    together.set_epoch(epoch)
    assert list(together) == [batch for step in zip(*ranks, strict=True) for batch in step]
    assert len(together) == sum(map(len, ranks))


@given(cases(), st.integers(0, 3), st.booleans(), st.data())
def test_goes_on_where_a_state_was_taken(case, epoch, told, data):
    lengths, options = case
    if all_ranks(lengths, options, epoch) is None:
        return
    sampler, other = (TokenBudgetBatchSampler(lengths, **options) for _ in range(2))
    sampler.set_epoch(epoch)
    batches = list(sampler)
    taken = data.draw(st.integers(0, len(batches)))
    running = iter(sampler)
    assert [next(running) for _ in range(taken)] == batches[:taken]
    state = sampler.state_dict()
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    if told:
        other.set_epoch(epoch)  # as trainers do, also in an epoch that is resumed
    assert other.state_dict() == state
    assert list(other) == batches[taken:] == list(running)
    assert other.state_dict() == sampler.state_dict()
    assert list(other) == batches, "the next time, from the beginning"
    other.load_state_dict(state)
    other.set_epoch(epoch + 1)
    assert other.state_dict()["batch"] == 0


@given(cases(), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_epochs_have_as_many_batches(case, epochs):
    lengths, options = case
    sampler = TokenBudgetBatchSampler(lengths, **options)
    if all_ranks(lengths, options) is None:
        return
    for epoch in epochs:
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == len(sampler) == len(TokenBudgetBatchSampler(lengths, **options))
        assert sampler.batches().to_lists() == list(sampler)
        assert sampler.batches(3).to_lists() == all_ranks(lengths, options, 3)[0]
        assert sampler.epoch == epoch


def test_an_order_that_takes_more_batches_is_drawn_again(monkeypatch):
    """Without batches to spare, which epochs of these lengths need."""
    lengths = np.random.default_rng(0).choice([10, 90, 400], 3000)
    monkeypatch.setattr(token_budget.math, "sqrt", lambda _: 0)
    sampler = TokenBudgetBatchSampler(lengths, 1000, window=30)
    taken = [len(sampler._batched(epoch, 0)[1]) for epoch in range(20)]
    assert max(taken) > taken[0]
    for epoch in (taken.index(max(taken)), taken.index(min(taken))):
        batches = sampler.batches(epoch).to_lists()
        assert len(batches) == taken[0]
        assert sorted(row for batch in batches for row in batch) == list(range(3000))
        assert max(cost_of(lengths, batch, {"multiple_of": 1, "padded": True}) for batch in batches) <= 1000
    monkeypatch.setattr(token_budget, "_TRIES", 1)  # and where no other order is tried, rows are those of epoch 0
    assert sorted(map(sorted, sampler.batches(taken.index(max(taken))).to_lists())) == sorted(
        map(sorted, sampler.batches(0).to_lists())
    )


def test_a_state_of_another_sampler():
    state = TokenBudgetBatchSampler([1, 2, 3], 10, seed=1).state_dict()
    sampler = TokenBudgetBatchSampler([1, 2, 4], 10)
    message = (
        r"another sampler: lengths is '3 numbers, 7 in all, checksum \w+' here and '3 .*, 6 in all, .*' in the state; "
        "seed is 0 here and 1 in the state"
    )
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(state)
    with pytest.raises(ValueError, match=r"another sampler: lengths is '3 .*' here and '3 .*' in the state$"):
        TokenBudgetBatchSampler([1, 3, 2], 10).load_state_dict(TokenBudgetBatchSampler([1, 2, 3], 10).state_dict())
    with pytest.raises(KeyError, match="budget_tokens"):
        sampler.load_state_dict({"epoch": 1, "batch": 0, "lengths": sampler.state_dict()["lengths"]})
    own_state = sampler.state_dict()
    with pytest.raises(ValueError, match="batch must be from 0"):
        sampler.load_state_dict({**own_state, "batch": -1})
    assert sampler.state_dict() == own_state


def realistic(rows=20000):
    return np.clip(np.random.default_rng(0).lognormal(5, 0.9, rows), 1, 1024).astype(np.int64)


@pytest.mark.parametrize("padded", [True, False])
def test_batches_are_full(padded):
    """Little padding, little room left, costs of a step that are alike: what it is for."""
    lengths, options = realistic(), {"max_tokens": 16384, "padded": padded, "world_size": 8, "multiple_of": 8}
    ranks = all_ranks(lengths, options)
    costs = np.array([[cost_of(lengths, batch, options) for batch in share] for share in ranks])
    assert lengths.sum() / costs.sum() > 0.95
    assert costs.mean() / 16384 > 0.9
    alike = np.sort(costs.min(0) / costs.max(0))
    assert alike[2] > 0.9, "of all steps but the one with the last batch, which holds what is left, and one with halves"
    assert costs.sum(1).min() / costs.sum(1).max() > 0.95


DRAWN = {
    "same": lambda draw, mean, rows: np.full(rows, mean),
    "narrow": lambda draw, mean, rows: draw.integers(max(mean - 1, 0), mean + 2, rows),
    "uniform": lambda draw, mean, rows: draw.integers(0, 2 * mean + 1, rows),
    "geometric": lambda draw, mean, rows: draw.geometric(1 / (mean + 1), rows),
    "lognormal": lambda draw, mean, rows: draw.lognormal(math.log(mean), 1.3, rows).astype(int),
    "two": lambda draw, mean, rows: draw.choice([mean, 2 * mean - 1], rows),
    "one long": lambda draw, mean, rows: np.append(draw.integers(0, 2 * mean + 1, rows - 1), 1000 * mean),
}


@given(
    st.sampled_from([*DRAWN]), st.integers(1, 400), st.integers(1, 20) | st.integers(1, 300),
    st.integers(3, 400) | st.integers(3, 20_000), st.integers(1, 3), st.booleans(), st.sampled_from([1, 8]),
)  # fmt: skip
def test_a_usual_budget_keeps_the_number_of_steps(drawn, mean, batch_size, rows, ranks, padded, multiple):  # noqa: PLR0917
    lengths = DRAWN[drawn](np.random.default_rng(mean), mean, rows)
    options = {"padded": padded, "multiple_of": multiple, "world_size": ranks, "rank": 0}
    sampler = usual_sampler(lengths, batch_size, **options)
    before = math.ceil(rows / batch_size / ranks)
    assert abs(len(sampler) - before) <= before / 20
    assert sampler.max_tokens >= max(-(-lengths.max() // multiple) * multiple, batch_size * lengths.mean())
    assert sampler.max_batch_size is None or sampler.max_batch_size >= batch_size
    numbers = sampler.max_tokens, sampler.max_batch_size
    assert list(TokenBudgetBatchSampler(lengths, numbers[0], max_batch_size=numbers[1], **options)) == list(sampler)


def test_a_usual_budget_of_many_rows(monkeypatch):
    assert usual_sampler([100, 300], 32).max_tokens == 6400  # of few, a batch of mean length
    lengths = DRAWN["lognormal"](np.random.default_rng(0), 11, 200_000)
    monkeypatch.setattr(token_budget, "_COUNTED", 1 << 14)  # steps are counted for some of the rows alone
    assert len(usual_sampler(lengths, 8)) == pytest.approx(25_000, rel=0.05)


def test_epochs_and_seeds_differ():
    lengths = realistic(3000)
    sampler = TokenBudgetBatchSampler(lengths, 4096)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(TokenBudgetBatchSampler(lengths, 4096, seed=1)) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    longest = [max(lengths[batch]) for batch in first]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2, "no order of lengths is left"


def rows_of(ranks):
    return [sorted(row for batch in share for row in batch) for share in ranks]


def test_a_row_above_the_budget():
    with pytest.raises(ValueError, match="row 2 has 60 tokens, more than max_tokens=20 allow; overlong='alone'"):
        TokenBudgetBatchSampler([5, 50, 60, 7], 20)
    with pytest.raises(
        ValueError, match="row 2 has 18 tokens, more than max_tokens=20 allow with multiple_of=16; over"
    ):
        TokenBudgetBatchSampler([5, 3, 18, 7], 20, multiple_of=16)
    for padded in (True, False):
        batches = list(TokenBudgetBatchSampler([5, 50, 3, 60, 7], 20, overlong="alone", padded=padded))
        assert [1] in batches
        assert [3] in batches
        assert rows_of([batches]) == [[0, 1, 2, 3, 4]]
    assert sorted(TokenBudgetBatchSampler([9, 9], 3, overlong="alone")) == [[0], [1]]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([], 4), {}, ValueError, "lengths are empty: there are no rows to batch"),
        (([3, -2], 4), {}, ValueError, "row 1 has the negative length -2"),
        (([3], 0), {}, ValueError, r"max_tokens must be from 1 to 2\*\*61, not 0"),
        (([3], 4.5), {}, TypeError, "max_tokens must be an int, not 4.5"),
        (([3], 4), {"max_batch_size": 0}, ValueError, "max_batch_size must be from 1 to"),
        (([3], 4), {"multiple_of": 0}, ValueError, "multiple_of must be from 1 to"),
        (([3], 4), {"multiple_of": 8}, ValueError, "multiple_of=8 is above max_tokens=4"),
        (([3], 4), {"window": 0}, ValueError, "window must be from 1 to"),
        (([3], 4), {"world_size": 0}, ValueError, "world_size must be from 1 to"),
        (([3], 4), {"world_size": 2}, ValueError, "world_size=2 is above the number of rows, 1"),
        (([3, 3], 4), {"world_size": 2, "rank": 2}, ValueError, "rank must be from 0 to 1, not 2"),
        (([3], 4), {"seed": -1}, ValueError, r"seed must be from 0 to 2\*\*64 - 1, not -1"),
        (([3], 4), {"overlong": "drop"}, ValueError, "overlong must be one of 'error', 'alone', not 'drop'"),
    ],
)
def test_says_what_is_wrong(arguments, options, error, message):
    with pytest.raises(error, match=message):
        TokenBudgetBatchSampler(*arguments, **options)


def test_nothing_is_left_where_all_would_be_dropped():
    sampler = TokenBudgetBatchSampler([3, 3], 9, world_size=2, drop_last=True)
    for use in (len, list):
        with pytest.raises(
            ValueError, match="there are 1 batches, and world_size=2: drop_last=True would drop them all"
        ):
            use(sampler)
    with pytest.raises(ValueError, match="epoch must be from 0 to"):
        sampler.set_epoch(-1)


def test_lengths_are_copied():
    lengths = np.array([3, 4, 5])
    sampler = TokenBudgetBatchSampler(lengths, 5)
    lengths[:] = -1
    assert sorted(sampler) == [[0], [1], [2]]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(workers):
    sampler = TokenBudgetBatchSampler(realistic(300), 4096)
    assert isinstance(sampler, torch.utils.data.Sampler)
    loader = torch.utils.data.DataLoader(range(300), batch_sampler=sampler, num_workers=workers)
    batches = list(sampler)
    assert len(loader) == len(batches)
    assert [batch.tolist() for batch in loader] == batches


@pytest.mark.parametrize("drop_last", [True, False])
def test_accelerate_hands_out_all_ranks_batches(drop_last):
    from accelerate.data_loader import BatchSamplerShard, DataLoaderShard

    lengths, options = realistic(500), {"max_tokens": 4096, "world_size": 3, "drop_last": drop_last}
    for rank, expected in enumerate(all_ranks(lengths, options, epoch=2)):
        sampler = TokenBudgetBatchSampler(lengths, **options, rank=None)
        shard = BatchSamplerShard(sampler, num_processes=3, process_index=rank)
        assert (shard.batch_size, shard.drop_last) == (None, drop_last)
        loader = DataLoaderShard(range(500), batch_sampler=shard)
        loader.set_epoch(2)
        assert sampler.epoch == 2
        assert list(shard) == expected
        assert len(shard) == len(expected)


def test_a_dataset_in_place_of_its_lengths():
    rows = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    stored = datasets.Dataset.from_list(rows)
    for data in (rows, stored, {"input_ids": [[1, 2], [3]]}, [[1, 2], (3,)]):
        assert TokenBudgetBatchSampler(data, 4, shuffle=False).batches().to_lists() == [[0, 1]]
    assert list(LengthGroupedSampler(2, lengths=stored).lengths) == [2, 1]
    with pytest.raises(ValueError, match="first argument is the batch size, not a Dataset"):
        LengthGroupedSampler(stored)


def test_the_plan_is_not_changed_by_who_was_given_the_batches():
    sampler = TokenBudgetBatchSampler([5, 3, 8, 2, 6], 16)
    sampler.batches().values[:] = 0
    assert sorted(row for batch in sampler for row in batch) == [0, 1, 2, 3, 4]
