"""quadrat.mask_tokens: what the reference's collators do to padded ids, and what they cannot be asked."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_value, generator_states
from support.masking import make_masking_tokenizer, seed_everything

TOKENIZER = make_masking_tokenizer()
COMMON = {"mask_token_id": TOKENIZER.mask_token_id, "vocab_size": len(TOKENIZER)}


def ids_of(shape, framework, dtype="int64"):
    ids = np.random.default_rng(sum(shape)).integers(0, 400, size=shape).astype(dtype)
    return ids if framework == "np" else torch.from_numpy(ids)


def seeded(framework, seed):
    return np.random.default_rng(seed) if framework == "np" else torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("framework", ["pt", "np"])
@given(
    st.tuples(st.integers(1, 4), st.integers(0, 40)),
    st.sampled_from([(0.15, 0.8, 0.1), (1, 0.5, 0.5), (0.5, 1, 0), (0.5, 0, 1), (0, 0.8, 0.1)]),
    st.booleans(),
    st.sampled_from([None, 3]),
)
def test_as_the_collator(framework, shape, probabilities, has_mask, seed):
    options = dict(zip(("mlm_probability", "mask_replace_prob", "random_replace_prob"), probabilities, strict=True))
    collator = transformers.DataCollatorForLanguageModeling(TOKENIZER, return_tensors=framework, **options)
    ids = ids_of(shape, framework)
    special = ids % 3 == 0 if has_mask else None
    method = collator.torch_mask_tokens if framework == "pt" else collator.numpy_mask_tokens
    collator.generator = None if seed is None else seeded(framework, seed)
    seed_everything(1)
    expected = method(ids.clone() if framework == "pt" else ids.copy(), special_tokens_mask=special)
    after = generator_states()
    seed_everything(1)
    before = ids.tolist()
    got = quadrat.mask_tokens(
        ids,
        special_tokens_mask=special,
        special_ids=() if has_mask else TOKENIZER.all_special_ids,
        generator=None if seed is None else seeded(framework, seed),
        **COMMON,
        **options,
    )
    assert generator_states() == after
    assert ids.tolist() == before
    assert_same_value("input_ids", expected[0], got.input_ids)
    assert_same_value("labels", expected[1], got.labels)


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_ragged_rows_are_masked_as_their_values(framework):
    values, offsets = ids_of((60,), framework, "int32"), ids_of((3,), framework)
    offsets[:] = 0 if framework == "np" else torch.tensor(0)
    offsets[1], offsets[2] = 25, 60
    rows = quadrat.Ragged(values, offsets)
    expected = quadrat.mask_tokens(values, generator=seeded(framework, 1), **COMMON)
    got = quadrat.mask_tokens(rows, generator=seeded(framework, 1), **COMMON)
    for name in ("input_ids", "labels"):
        assert_same_value(name, getattr(expected, name), getattr(got, name).values)
        assert getattr(got, name).offsets.tolist() == offsets.tolist()
    assert "int64" in str(got.labels.values.dtype)
    special = quadrat.Ragged(values % 2, offsets)
    masked = quadrat.mask_tokens(rows, special_tokens_mask=special, mlm_probability=1, **COMMON)
    assert ((masked.labels.values == -100) == (values % 2 == 1)).all()


def test_a_slice_of_ragged_rows_draws_for_its_own_tokens():
    rows = quadrat.Ragged.from_rows([[10, 11], [12, 13, 14], [15]])
    expected = quadrat.mask_tokens(np.array([12, 13, 14, 15]), generator=seeded("np", 4), **COMMON)
    got = quadrat.mask_tokens(rows[1:], generator=seeded("np", 4), **COMMON)
    assert got.labels.values.tolist() == expected.labels.tolist()
    assert got.labels.offsets.tolist() == [0, 3, 4]
    with pytest.raises(ValueError, match="other rows than input_ids"):
        quadrat.mask_tokens(rows, special_tokens_mask=quadrat.Ragged.from_rows([[0, 0, 0], [1, 1], [0]]), **COMMON)


def test_whole_words_are_masked_or_not():
    ids = np.arange(10, 22).reshape(2, 6)
    offsets = np.array([[(0, 2), (2, 4), (5, 6), (6, 7), (7, 9), (10, 12)]] * 2)
    for seed in range(20):
        labels = quadrat.mask_tokens(
            ids, offset_mapping=offsets, mlm_probability=0.5, generator=seeded("np", seed), **COMMON
        ).labels
        masked = labels != -100
        for word in ([0, 1], [2, 3, 4], [5]):
            assert (masked[:, word].all(1) == masked[:, word].any(1)).all()


def test_any_shape():
    for shape in [(), (0,), (7,), (2, 3, 4)]:
        got = quadrat.mask_tokens(np.zeros(shape, np.int64), mlm_probability=1, **COMMON)
        assert got.labels.shape == shape
        assert (got.labels == 0).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mlm_probability": 1.5}, ValueError, "mlm_probability must be between 0 and 1"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, ValueError, "must not exceed 1 together"),
        ({"vocab_size": 0}, ValueError, "vocab_size"),
        ({"special_tokens_mask": np.zeros((2, 2), np.int64)}, ValueError, "special_tokens_mask"),
        ({"special_tokens_mask": np.zeros((2, 3))}, ValueError, "special_tokens_mask"),
        ({"offset_mapping": np.zeros((2, 3), np.int64)}, ValueError, "offset_mapping"),
        ({"generator": torch.Generator()}, TypeError, "generator must be a numpy.random.Generator"),
        ({"input_ids": np.zeros((2, 3))}, TypeError, "input_ids must be integers, not float64"),
        ({"input_ids": torch.zeros((2, 3))}, TypeError, "input_ids must be integers"),
    ],
)
def test_bad_input(change, error, message):
    with pytest.raises(error, match=message):
        quadrat.mask_tokens(**({"input_ids": np.zeros((2, 3), np.int64)} | COMMON | change))


def test_a_generator_that_is_not_known_is_refused():
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match="not known"):
            quadrat.mask_tokens(torch.zeros((2, 3), dtype=torch.int64), **COMMON)
    finally:
        torch.set_default_dtype(torch.float32)
