"""AttentionCost, and batches, shapes, streams and packs by it or by a second size: what their docstrings promise."""

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given

import quadrat
from quadrat.batching import AttentionCost, plan_packs

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}
LENGTHS = st.lists(st.integers(1, 300), min_size=2, max_size=60)


def of_matrices(model):
    """The parameters of the matrices that a token is multiplied with: those of linear layers."""
    return sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear))


@given(widths=st.lists(st.integers(0, 10_000), max_size=20), crossover=st.floats(0.1, 1e6))
def test_a_row_costs_its_tokens_and_their_square(widths, crossover):
    cost = AttentionCost(crossover)
    assert cost.of_rows(widths).tolist() == [round(width * (1 + width / crossover)) for width in widths]
    windowed = AttentionCost(crossover, windowed=1.0, window=100).of_rows(widths).tolist()
    assert windowed == [round(width * (1 + min(width, 100) / crossover)) for width in widths]


def test_of_a_model_and_of_its_config():
    config = transformers.LlamaConfig(vocab_size=50, **SIZES)
    model, base = transformers.LlamaForCausalLM(config), transformers.LlamaModel(config)
    assert AttentionCost.of(config) == AttentionCost.of(base) == AttentionCost(of_matrices(base) / (2 * 2 * 64))
    assert AttentionCost.of(model) == AttentionCost(of_matrices(model) / (2 * 2 * 64)), "the head counts too"
    tied = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, tie_word_embeddings=True, **SIZES))
    assert AttentionCost.of(tied) == AttentionCost.of(model)


def test_grouped_heads_and_a_size_of_heads():
    config = transformers.LlamaConfig(num_key_value_heads=1, head_dim=32, **SIZES)
    assert AttentionCost.of(config) == AttentionCost(of_matrices(transformers.LlamaModel(config)) / (2 * 2 * 4 * 32))


def test_a_window_counts_where_attention_skips_what_it_masks():
    config = transformers.MistralConfig(sliding_window=16, **SIZES)
    cost = AttentionCost.of(config)
    assert (cost.windowed, cost.window) == (0.0, 0)
    config._attn_implementation = "flash_attention_2"  # which need not be installed
    assert AttentionCost.of(config) == AttentionCost(cost.crossover, windowed=1.0, window=16)
    assert config._attn_implementation == "flash_attention_2"


def test_attention_that_stores_scores_takes_longer():
    options = {"attn_implementation": "eager", "attention_probs_dropout_prob": 0.0}
    eager = transformers.BertModel(transformers.BertConfig(vocab_size=50, **SIZES, **options))
    fused = transformers.BertModel(
        transformers.BertConfig(vocab_size=50, **SIZES, **{**options, "attn_implementation": "sdpa"})
    )
    assert AttentionCost.of(fused).crossover == 4 * AttentionCost.of(eager).crossover
    drops = transformers.BertModel(transformers.BertConfig(vocab_size=50, **SIZES, attn_implementation="sdpa"))
    assert AttentionCost.of(drops) == AttentionCost.of(eager), "on a CPU"


def test_of_experts_those_that_are_chosen():
    few, many = (
        AttentionCost.of(transformers.MixtralConfig(num_local_experts=8, num_experts_per_tok=chosen, **SIZES)).crossover
        for chosen in (2, 4)
    )
    assert many - few == pytest.approx(2 * 3 * 64 * 128 * 2 / (2 * 2 * 64))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (transformers.T5Config(), "a model of T5Config has an encoder and a decoder: give the crossover as a number"),
        (transformers.MambaConfig(), "a model of MambaConfig has no attention heads: give the crossover as a number"),
        ([1], "a list has no config of transformers: give the crossover as a number"),
        ("auto", "attention must be a number of tokens, or a model or its config, not 'auto'"),
        (True, "attention must be a number of tokens, or a model or its config, not True"),
    ],
)
def test_what_has_no_cost(given, message):
    with pytest.raises(TypeError, match=message):
        quadrat.TokenBudgetBatchSampler([1, 2], 8, attention=given)


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), AttentionCost(5.0, 2.0, 3)])
def test_numbers_out_of_range(bad):
    with pytest.raises(ValueError, match="attention must be a number of tokens above 0"):
        quadrat.TokenBudgetBatchSampler([1, 2], 8, attention=bad)
    with pytest.raises(ValueError, match="attention must be a number of tokens above 0"):
        quadrat.BatchedStream([], 8, attention=bad)


def test_a_cost_that_is_too_large():
    with pytest.raises(ValueError, match="row 1 has 4000000000 tokens, whose cost"):
        quadrat.TokenBudgetBatchSampler([1, 4_000_000_000], 2**60, attention=0.5)


def test_batches_cost_alike():
    lengths = np.clip(np.random.default_rng(0).lognormal(5.5, 1.0, 5000), 32, 4096).astype(int)
    cost = AttentionCost(1000.0)

    def spread(**options):
        batches = list(quadrat.TokenBudgetBatchSampler(lengths, 16384, **options))
        costs = [len(batch) * int(cost.of_rows([lengths[batch].max()])[0]) for batch in batches]
        return float(np.quantile(costs, 0.9) / np.median(costs))

    assert spread(attention=cost) == spread(attention=1000) < 1.1
    assert spread() > 1.5


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_batches_of_equal_cost(ranks):
    lengths = np.clip(np.random.default_rng(1).lognormal(5.5, 1.0, 4000), 32, 2048).astype(int)
    cost = AttentionCost(500.0)
    shares = [
        list(quadrat.TokenBudgetBatchSampler(lengths, 16384, world_size=ranks, rank=rank, attention=cost))
        for rank in range(ranks)
    ]
    costs = np.array(
        [[len(batch) * int(cost.of_rows([lengths[batch].max()])[0]) for batch in share] for share in shares]
    )
    assert np.sort(costs.min(0) / costs.max(0))[2] > 0.9


@given(lengths=LENGTHS, crossover=st.none() | st.floats(1.0, 1000.0), weighted=st.booleans(), arrow=st.booleans())
def test_streams_give_each_row_once_by_cost(lengths, crossover, weighted, arrow):
    rows = [{"input_ids": [row] * length, "images": row % 7} for row, length in enumerate(lengths)]
    source = datasets.Dataset.from_list(rows).to_iterable_dataset() if arrow else rows
    options = {"attention": crossover, "weights": "images" if weighted else None, "window": 16}
    stream = quadrat.BatchedStream(source, 400, **options)
    batches = [[row["input_ids"][0] for row in batch] for batch in stream]
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches if crossover is None else []:
        widths = [lengths[row] + row % 7 * weighted for row in batch]
        assert len(batch) * max(widths) <= 400
    state = stream.state_dict()
    other = quadrat.BatchedStream(source, 400, **{**options, "attention": 77.0, "weights": "images"})
    with pytest.raises(ValueError, match="attention"):
        other.load_state_dict(state)


def test_weights_are_tokens_besides_those_of_a_row():
    rows = [{"input_ids": [5, 6, 7], "images": 4}, {"input_ids": [5], "images": 0}]
    table = datasets.Dataset.from_list(rows)
    for data in (rows, table, table.data.table, table.to_dict()):
        assert quadrat.lengths(data, weights="images").tolist() == [7, 1]
        assert quadrat.lengths(data, weights=[1, 2]).tolist() == [4, 3]
        assert quadrat.lengths(data, weights=torch.tensor([1, 2])).tolist() == [4, 3]


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1], ValueError, "there are 1 weights for 2 rows"),
        ([1, -2], ValueError, "row 1 has the negative weight -2"),
        ([1.5, 2.0], TypeError, "weights must be integers, one per row, not float64"),
        ("pictures", ValueError, "no column 'pictures'"),
    ],
)
def test_weights_that_do_not_fit(weights, error, message):
    with pytest.raises(error, match=message):
        quadrat.lengths([{"input_ids": [5], "images": 1}] * 2, weights=weights)


@pytest.mark.parametrize("strategy", ["best_fit", "in_order"])
@given(rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=40))
def test_packs_have_two_limits(strategy, rows):
    lengths, counts = [length for length, _ in rows], [count for _, count in rows]
    packs = plan_packs(lengths, 60, strategy, counts=counts, max_count=6).to_lists()
    assert sorted(row for pack in packs for row in pack) == list(range(len(rows)))
    for pack in packs:
        assert sum(lengths[row] for row in pack) <= 60
        assert sum(counts[row] for row in pack) <= 6
    items = [{"input_ids": [1] * length} for length in lengths]
    dataset = quadrat.PackedDataset(items, 60, strategy=strategy, counts=counts, max_count=6)
    assert sum(len(pack["seq_lengths"]) for pack in dataset) == len(rows)
    for epoch in (0, 1, 5):
        dataset.set_epoch(epoch)
        assert len(dataset) == len(packs), "in each epoch"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": [1, 2]}, "give counts and max_count, or neither"),
        ({"max_count": 3}, "give counts and max_count, or neither"),
        ({"counts": [1, 4], "max_count": 3}, "row 1 has the count 4, above max_count=3"),
        ({"counts": [1], "max_count": 3}, "there are 1 counts for 2 rows"),
        ({"counts": [1, -1], "max_count": 3}, "row 1 has the negative count -1"),
        ({"counts": [1, 1], "max_count": 3, "strategy": "first_fit"}, "strategy='best_fit' or 'in_order'"),
        ({"counts": [1, 1], "max_count": 3, "overlong": "split"}, "of whole rows"),
        ({"counts": [2**40, 2**40], "max_count": 2**41}, "max_count must be at most"),
    ],
)
def test_counts_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        plan_packs([3, 4], 8, **options)
