"""quadrat.batching: plan_shapes, what samplers and streams make of a plan, and FixedShapes."""

import functools
import itertools
import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given

import quadrat
from quadrat.batching import FixedShapes, ShapePlan, plan_shapes
from support.strategies import make_tokenizer
from support.tiny_models import tiny


def tokens_of(lengths, shapes):
    """What batches of these shapes compute, by the definition of the docstring."""
    total, below = 0, 0
    for rows, width in shapes:
        count = sum(below < max(length, 1) <= width for length in lengths)
        total, below = total + -(-count // rows) * rows * width, width
    return total


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(0, 70) | st.integers(0, 20), min_size=1, max_size=40))
    multiple = draw(st.sampled_from([1, 4, 8]))
    most = draw(st.none() | st.integers(1, 6))
    return lengths, -(-max(*lengths, 1) // multiple) * multiple + draw(st.integers(0, 150)), multiple, most


@given(cases(), st.integers(1, 4))
def test_no_plan_of_as_many_shapes_is_better(case, shapes):
    """All choices of widths that are lengths of rows, rounded up."""
    lengths, max_tokens, multiple, most = case
    plan = plan_shapes(lengths, max_tokens, shapes, pad_to_multiple_of=multiple, max_batch_size=most)
    widths = sorted({-(-max(length, 1) // multiple) * multiple for length in lengths})
    all_shapes = [(min(max_tokens // width, most or max_tokens), width) for width in widths]
    assert set(plan.shapes) <= set(all_shapes)
    choices = [
        [*some, all_shapes[-1]] for size in range(shapes) for some in itertools.combinations(all_shapes[:-1], size)
    ]
    assert tokens_of(lengths, plan.shapes) == min(tokens_of(lengths, choice) for choice in choices)
    assert plan.computed[len(plan.shapes)] == tokens_of(lengths, plan.shapes)
    assert plan.waste == 1 - sum(lengths) / plan.computed[len(plan.shapes)]


@given(cases())
def test_the_waste_of_any_shape_is_that_of_sorted_rows(case):
    lengths, max_tokens, multiple, most = case
    plan = plan_shapes(lengths, max_tokens, pad_to_multiple_of=multiple, max_batch_size=most)
    left, computed = sorted((max(length, 1) for length in lengths), reverse=True), 0
    while left:
        width = -(-left[0] // multiple) * multiple
        rows = min(max_tokens // width, len(left), most or len(left))
        computed, left = computed + rows * width, left[rows:]
    assert plan.computed[None] == computed


def lognormal(rows, scale=1.0):
    return np.clip(np.random.default_rng(0).lognormal(5, scale, rows), 1, 1024).astype(np.int64)


def test_what_is_shown():
    plan = plan_shapes(lognormal(3000), 8192, 3)
    assert repr(plan).startswith(f"ShapePlan({plan.shapes[0][0]} x {plan.shapes[0][1]}, ")
    assert f"3 {plan.waste:.1%}" in str(plan)
    shown = list(plan.computed)
    assert shown == [1, 2, 3, 4, 8, None]
    assert [plan.computed[at] for at in shown] == sorted(plan.computed.values(), reverse=True)


@pytest.mark.parametrize("shapes", [1, 2, 4])
def test_totals_of_joined_rows(shapes):
    lengths = lognormal(3000)
    plan = plan_shapes(lengths, 4000, shapes, padded=False)
    assert plan.shapes[-1][1] == 4000
    assert plan.longest == lengths.max()
    assert plan.waste < 0.08
    sampler = quadrat.TokenBudgetBatchSampler(lengths, 4000, padded=False, shapes=plan)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in sampler:
            assert len(batch) <= plan.shapes[0][0]
            plan.fitting(len(batch), int(lengths[batch].sum()))  # does not raise


@given(cases(), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 2))
def test_batches_of_the_shapes(case, shapes, ranks, shuffle, drop_last, epoch):  # noqa: PLR0917
    lengths, max_tokens, multiple, most = case
    ranks = min(ranks, len(lengths))
    sampler = quadrat.TokenBudgetBatchSampler(
        lengths, max_tokens, shapes=shapes, multiple_of=multiple, max_batch_size=most, world_size=ranks, rank=None,
        shuffle=shuffle, drop_last=drop_last,
    ) if max_tokens >= 8 and (multiple > 1 or -(-max(lengths) // 8) * 8 <= max_tokens) else None  # fmt: skip
    if sampler is None:
        return
    sampler.set_epoch(epoch)
    try:
        batches = list(sampler)
    except ValueError as error:
        assert "drop_last=True would drop them all" in str(error)  # noqa: PT017
        return
    assert len(sampler) == len(batches)
    assert len(batches) % ranks == 0
    seen = [row for batch in batches for row in batch]
    assert drop_last or set(seen) == set(range(len(lengths)))
    assert len(seen) == len(set(seen)) or all(len(batch) == 1 for batch in batches)
    plan, widths = sampler.shapes, [width for _, width in sampler.shapes.shapes]
    for batch in batches:
        rows, width = plan.fitting(len(batch), max(lengths[row] for row in batch))
        fits = {next(one for one in widths if one >= lengths[row]) for row in batch}
        assert fits == {width}  # no row is padded more than the plan says
        assert rows * width <= max_tokens
    if ranks == 1 and not drop_last:
        assert sum(np.prod(plan.fitting(len(b), max(lengths[r] for r in b))) for b in batches) == tokens_of(
            lengths, plan.shapes
        )


def test_a_state_of_another_plan():
    lengths = lognormal(50)
    state = quadrat.TokenBudgetBatchSampler(lengths, 4096, shapes=2).state_dict()
    quadrat.TokenBudgetBatchSampler(lengths, 4096, shapes=2).load_state_dict(pickle.loads(pickle.dumps(state)))
    with pytest.raises(ValueError, match="shapes is"):
        quadrat.TokenBudgetBatchSampler(lengths, 4096, shapes=3).load_state_dict(state)


ROWS = [{"input_ids": [5] * length, "labels": [7] * length} for length in (5, 3, 8, 2, 6)]
PLAN, TOTALS = ShapePlan([(4, 4), (3, 8)]), ShapePlan([(2, 8)], padded=False)


@pytest.mark.parametrize("tensors", ["pt", "np"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_filled_batches(tensors, side):
    tokenizer = make_tokenizer(padding_side=side)
    collator = quadrat.DataCollatorForTokenClassification(tokenizer, return_tensors=tensors)
    plain, batch = collator(ROWS[3:]), FixedShapes(collator, PLAN)(ROWS[3:])
    assert list(batch) == list(plain)
    for name, fill in {"input_ids": tokenizer.pad_token_id, "attention_mask": 0, "labels": -100}.items():
        assert batch[name].shape == (3, 8)
        assert type(batch[name]) is type(plain[name])
        assert batch[name].dtype == plain[name].dtype
        assert batch[name][:2, :6].tolist() == plain[name].tolist()
        assert (batch[name][:2, 6:] == fill).all()
        assert (batch[name][2, 1:] == fill).all()
    assert batch["attention_mask"][2].sum() == 1
    same = FixedShapes(collator, ShapePlan([(2, 6)]))(ROWS[3:])
    assert all((same[name] == plain[name]).all() for name in plain)


def test_other_columns_are_filled_as_the_collator_pads_them():
    rows = [{**row, "weights": [0.5] * len(row["input_ids"])} for row in ROWS[3:]]
    collator = quadrat.DataCollatorForTokenClassification(make_tokenizer(), pad_values={"weights": 9.0})
    batch = FixedShapes(collator, PLAN)(rows)
    assert batch["weights"][0].tolist() == [0.5] * 2 + [9.0] * 6
    assert batch["weights"][2].tolist() == [9.0] * 8
    named = [{**row, "name": "abc"} for row in ROWS[3:]]
    batch = FixedShapes(quadrat.DataCollatorWithPadding(make_tokenizer(), return_tensors="np"), PLAN)(named)
    assert batch["name"][: len(named)].tolist() == ["abc"] * len(named)


def rows_of_padding(end, total, longest):
    """Where rows of padding end, each as long as the longest row may be."""
    return [min(at, total) for at in range(end + longest, end + longest * (-(-(total - end) // longest) + 1), longest)]


def as_expected(batch, expected, plan, end, count):
    """As with `total_length`, but that padding is rows of its own, and that lengths are the plan's."""
    [(most, total)], longest = plan.shapes, plan.longest
    bounds = most + 1 + -(-total // longest)
    assert list(batch) == list(expected)
    for name, value in expected.items():
        if name.startswith("cu_seq"):
            found = batch[name].tolist()
            more = rows_of_padding(end, total, longest)
            assert found == [*value.tolist(), *more, *[total] * (bounds - count - 1 - len(more))], name
            assert batch[name].dtype == value.dtype
            assert max(np.diff(found)) <= longest
        elif name == "position_ids":
            padding = [place % longest for place in range(total - end)]
            assert batch[name].flatten().tolist() == [*value.flatten().tolist()[:end], *padding]
        elif name.startswith("max_"):
            assert batch[name] == longest
        elif hasattr(value, "dtype"):
            assert (batch[name] == value).all(), name
            assert batch[name].dtype == value.dtype
        else:
            assert batch[name] == value


LAYOUTS = [{"return_flash_attn_kwargs": True}, {"kwargs_for": "mask"}, {"kwargs_for": "megatron"}, {}]


@pytest.mark.parametrize("options", LAYOUTS)
@pytest.mark.parametrize("tensors", ["pt", "np"])
@pytest.mark.parametrize("longest", [6, 9, 40])
def test_joined_batches(options, tensors, longest):
    options = {**options, "return_seq_idx": True, "return_tensors": tensors}
    plan = ShapePlan([(6, 40)], padded=False, longest=longest)
    batch = FixedShapes(quadrat.DataCollatorWithFlattening(**options), plan)(ROWS[:2])
    as_expected(batch, quadrat.DataCollatorWithFlattening(**options, total_length=40)(ROWS[:2]), plan, 8, 2)


@pytest.mark.parametrize("names", [None, "flash_attn", "varlen_attn", "megatron", "mask"])
@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_joined_rows_without_a_collator(names, tensors):
    options = {"kwargs_for": names, "return_tensors": tensors, "padding_value": 7}
    plan = ShapePlan([(4, 32)], padded=False, longest=6)
    rows = [np.ones((5, 2), np.int32), np.full((3, 2), 4, np.int32)]
    batch = FixedShapes(functools.partial(quadrat.flatten, **options), plan)(rows)
    expected = quadrat.flatten(rows, **options, total_length=32)
    assert type(batch) is type(expected)
    named = (lambda made: made) if names else (lambda made: made._asdict())
    as_expected(named(batch), named(expected), plan, 8, 2)
    assert FixedShapes(quadrat.flatten, plan)([[1, 2], [3]]).values.tolist() == [1, 2, 3] + [0] * 29


@pytest.mark.parametrize("names", [None, "megatron", "flash_attn"])
def test_joined_rows_with_places_of_their_own(names):
    """The last place ends with the batch, so padding is in it, and the longest place is the total."""
    rows = [[1, 2, 3, 4, 5], [6, 7, 8]]
    flatten = functools.partial(quadrat.flatten, align_to=4, kwargs_for=names)
    batch = FixedShapes(flatten, ShapePlan([(3, 16)], padded=False, longest=8))(rows)
    expected = flatten(rows, total_length=16)
    batch, expected = (one if names else one._asdict() for one in (batch, expected))
    for name, value in expected.items():
        if name.startswith("cu_seq"):
            assert batch[name].tolist() == [*value.tolist(), *[value[-1]] * 3], name
        elif name.startswith("max_"):
            assert batch[name] == (8 if name == "max_length" else 16), name
        elif name == "position_ids":
            assert batch[name].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3]
        else:
            assert np.array_equal(batch[name], value), name


@pytest.mark.parametrize("strategy", ["best_fit", "in_order"])
def test_packs_of_one_shape(strategy):
    packs = quadrat.PackedDataset(ROWS * 5, 16, strategy=strategy)
    collator = quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    filled, shapes = FixedShapes(collator, ShapePlan([packs.shape], padded=False, longest=8)), set()
    for epoch in range(3):
        packs.set_epoch(epoch)
        rows, total = packs.shape
        assert (rows, total) == (max(len(pack["seq_lengths"]) for pack in packs), 16)
        batches = [filled([pack]) for pack in packs]
        shapes |= {tuple((name, getattr(one, "shape", one)) for name, one in batch.items()) for batch in batches}
    assert len(shapes) == 1


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_losses_of_joined_rows_are_those_before_they_were_filled(kind):
    """With far more padding than the positions that GPT-2 has."""
    model, collator = tiny(kind).eval(), quadrat.DataCollatorWithFlattening()
    plan = ShapePlan([(8, 600)], padded=False, longest=60)
    losses = [model(**one(ROWS)).loss for one in (collator, FixedShapes(collator, plan))]
    torch.testing.assert_close(losses[1], losses[0])
    assert quadrat.check_packing(model, FixedShapes(collator, plan))


def rows_alone(module, query, key, value, *_, cu_seq_lens_q, **options):
    """Attention that computes rows, and leaves NaN in memory elsewhere, as kernels for GPUs may."""
    out = torch.full_like(query, torch.nan)
    for first, last in itertools.pairwise(cu_seq_lens_q.tolist()):
        if first < last:
            one = (tensor[:, :, first:last] for tensor in (query, key, value))
            out[:, :, first:last] = torch.nn.functional.scaled_dot_product_attention(
                *one, is_causal=True, enable_gqa=True
            )
    return out.transpose(1, 2), None


def test_gradients_where_attention_computes_rows_alone():
    transformers.AttentionInterface.register("rows_alone", rows_alone)
    model, options = tiny("llama", "rows_alone").eval(), {"return_flash_attn_kwargs": True}
    collator, gradients = quadrat.DataCollatorWithFlattening(**options), []
    filled = FixedShapes(collator, ShapePlan([(6, 64)], padded=False, longest=9))
    for one in (collator, filled, quadrat.DataCollatorWithFlattening(**options, total_length=64)):
        model.zero_grad()
        model(**one(ROWS)).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for expected, found in zip(*gradients[:2], strict=True):
        torch.testing.assert_close(found, expected)
    assert any(one.isnan().any() for one in gradients[2])


@pytest.mark.parametrize("joined", [True, False])
def test_one_number_per_row(joined):
    rows = [{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}]
    collator = (
        quadrat.DataCollatorWithFlattening(scalar_labels=True)
        if joined
        else quadrat.DataCollatorWithPadding(make_tokenizer())
    )
    batch = FixedShapes(collator, ShapePlan([(4, 16)], padded=not joined))(rows)
    assert batch["labels"].tolist() == [1, 0, -100, -100]
    assert batch["labels"].dtype == torch.int64
    with pytest.raises(ValueError, match="labels are floats"):
        FixedShapes(collator, ShapePlan([(4, 16)], padded=not joined))([{**row, "label": 0.5} for row in rows])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: plan_shapes([], 8), ValueError, "lengths are empty"),
        (lambda: plan_shapes([9], 8), ValueError, "row 0 has 9 tokens, more than max_tokens=8 allow"),
        (lambda: plan_shapes([5], 8, 0), ValueError, "shapes must be from 1"),
        (lambda: plan_shapes([5], 8, 1.0), TypeError, "shapes must be an int"),
        (lambda: plan_shapes([5], 4), ValueError, "multiple_of=8 is above max_tokens=4"),
        (lambda: plan_shapes(range(1, 40_000), 10**6, pad_to_multiple_of=1), ValueError, "39999 different widths"),
        (lambda: plan_shapes([2**60], 2**61), ValueError, "too many tokens to count"),
        (
            lambda: plan_shapes(range(5001, 10_001), 10_000, 5000, pad_to_multiple_of=1), ValueError,
            "5000 shapes of 5000 widths are too many to compare: give shapes=838 or fewer, or a larger pad_to_multiple",
        ),
        (lambda: ShapePlan([]), ValueError, "shapes must be .rows, width. by rising width"),
        (lambda: ShapePlan([(1, 8), (2, 4)]), ValueError, "by rising width"),
        (lambda: ShapePlan([(0, 8)]), ValueError, "by rising width"),
        (lambda: quadrat.TokenBudgetBatchSampler([9], 64, shapes=PLAN), ValueError, "row 0 has 9 tokens, and"),
        (lambda: quadrat.TokenBudgetBatchSampler([5], 16, shapes=PLAN), ValueError, "batches of 24 tokens and 4 rows"),
        (lambda: quadrat.TokenBudgetBatchSampler([5], 64, padded=False, shapes=PLAN), ValueError, "for padded=True"),
        (lambda: quadrat.BatchedStream([], 64, shapes=2), TypeError, "lengths of a stream are not known"),
        (lambda: FixedShapes(quadrat.DataCollatorWithFlattening(deferred=True), PLAN), TypeError, "deferred"),
        (lambda: FixedShapes(lambda rows: {"input_ids": torch.ones(5, 8)}, PLAN)([]), ValueError, "5 x 8 fits none of"),
        (lambda: ShapePlan([(1.5, 8)]), TypeError, "the rows of a shape must be an int, not 1.5"),
        (lambda: ShapePlan([(8, True)]), TypeError, "the width of a shape must be an int, not True"),
        (lambda: quadrat.TokenBudgetBatchSampler([1], True), TypeError, "max_tokens must be an int, not True"),
        (
            lambda: FixedShapes(quadrat.flatten, TOTALS)([[1], [2], [3]]), ValueError,
            r"3 rows and 3 tokens fits none of the shapes of ShapePlan\(2 x 8\): choose rows with TokenBudgetBatch",
        ),
        (lambda: FixedShapes(quadrat.flatten, TOTALS)([[1] * 9]), ValueError, "1 rows and 9 tokens fits none"),
        (lambda: FixedShapes(lambda rows: {"input_ids": torch.ones(2, 8)}, PLAN)([]), ValueError, "no attention_mask"),
        *(
            (functools.partial(FixedShapes(functools.partial(quadrat.flatten, padding_value=fill), TOTALS), rows),
            ValueError, "'values' filled with .*does not fit the dtype")
            for rows, fill in itertools.product(([[5]], [np.array([5])], [torch.tensor([5])]), (0.5, math.nan, 2**63))
        ),
    ],
)  # fmt: skip
def test_says_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_copies_and_attributes():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    filled = pickle.loads(pickle.dumps(FixedShapes(collator, PLAN)))
    assert filled.plan == PLAN
    assert filled.pad_to_multiple_of is None
    assert filled([{"input_ids": [5] * 3}])["input_ids"].shape == (4, 4)


@given(st.lists(st.integers(0, 8), max_size=60), st.integers(1, 20), st.booleans())
def test_a_stream_of_the_shapes(lengths, window, shuffle):
    rows = [{"input_ids": [number] * length, "number": number} for number, length in enumerate(lengths)]
    stream = quadrat.BatchedStream(rows, 32, shapes=PLAN, window=window, shuffle=shuffle)
    batches = list(stream)
    assert sorted(row["number"] for batch in batches for row in batch) == list(range(len(rows)))
    for batch in batches:
        sizes = [len(row["input_ids"]) for row in batch]
        assert PLAN.fitting(len(sizes), max(sizes))
        assert max(sizes) <= 4 or min(sizes) > 4
    if batches:
        other, running = quadrat.BatchedStream(rows, 32, shapes=PLAN, window=window, shuffle=shuffle), iter(stream)
        taken = [next(running) for _ in range(len(batches) // 2)]
        other.load_state_dict(stream.state_dict())
        assert [*taken, *other] == batches


def test_a_stream_holds_back_what_is_not_full():
    rows = [{"input_ids": [1] * length} for length in lognormal(4000, 0.5).tolist()]
    plan = plan_shapes(rows, 4096, 4)
    stream = quadrat.BatchedStream(rows, 4096, shapes=plan, window=500)
    batches = [plan.fitting(len(batch), max(len(row["input_ids"]) for row in batch)) for batch in stream]
    assert sum(rows * width for rows, width in batches) < 1.1 * plan.computed[4]
