"""quadrat.mask_tokens: what the reference's collators do to padded ids, and what they cannot be asked."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat.ops import mask_tokens as mask_tokens_module
from support.compare import assert_same_batch, default_dtype, generator_states, seed_everything
from support.masking import make_masking_tokenizer
from support.on_device import emulated_launches
from support.ragged import array

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
    assert_same_batch(expected[0], got.input_ids, "input_ids")
    assert_same_batch(expected[1], got.labels, "labels")


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_ragged_rows_are_masked_as_their_values(framework):
    """Those of a slice are its own."""
    values, offsets = ids_of((70,), framework, "int32"), array([0, 10, 35, 70], "int64", framework)
    rows, values = quadrat.Ragged(values, offsets)[1:], values[10:]
    expected = quadrat.mask_tokens(values, generator=seeded(framework, 1), **COMMON)
    got = quadrat.mask_tokens(rows, generator=seeded(framework, 1), **COMMON)
    for name in ("input_ids", "labels"):
        assert_same_batch(getattr(expected, name), getattr(got, name).values, name)
        assert getattr(got, name).offsets.tolist() == [0, 25, 60]
    assert "int64" in str(got.labels.values.dtype)
    special = quadrat.Ragged(values % 2, got.labels.offsets)
    masked = quadrat.mask_tokens(rows, special_tokens_mask=special, mlm_probability=1, **COMMON)
    assert ((masked.labels.values == -100) == (values % 2 == 1)).all()
    with pytest.raises(ValueError, match="input_ids differ in length"):
        quadrat.mask_tokens(rows, special_tokens_mask=special[:1], **COMMON)


@pytest.mark.parametrize("rng", ["torch", "philox"])
def test_whole_words_are_masked_or_not(rng):
    ids = np.arange(10, 22).reshape(2, 6)
    offsets = np.array([[(0, 2), (2, 4), (5, 6), (6, 7), (7, 9), (10, 12)]] * 2)
    seen = set()
    for number in range(20):
        draws = {"generator": seeded("np", number)} if rng == "torch" else {"rng": rng, "epoch": number}
        labels = quadrat.mask_tokens(ids, offset_mapping=offsets, mlm_probability=0.5, **draws, **COMMON).labels
        masked = labels != -100
        seen |= {tuple(row) for row in masked.tolist()}
        for word in ([0, 1], [2, 3, 4], [5]):
            assert (masked[:, word].all(1) == masked[:, word].any(1)).all()
    assert len(seen) > 4


@pytest.mark.parametrize("rng", ["torch", "philox"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 4), (0, 3), (3, 0)])
def test_any_shape(shape, rng):
    got = quadrat.mask_tokens(np.zeros(shape, np.int64), mlm_probability=1, rng=rng, **COMMON)
    assert got.labels.shape == shape
    assert (got.labels == 0).all()


@pytest.mark.parametrize("by_counter", [False, True])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mlm_probability": 1.5}, ValueError, "mlm_probability must be between 0 and 1"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, ValueError, "must not exceed 1 together"),
        ({"vocab_size": 0}, ValueError, "vocab_size"),
        ({"special_tokens_mask": np.zeros((2, 2), np.int64)}, ValueError, "special_tokens_mask"),
        ({"special_tokens_mask": np.zeros((2, 3))}, ValueError, "special_tokens_mask"),
        ({"offset_mapping": np.zeros((2, 3), np.int64)}, ValueError, "offset_mapping"),
        ({"input_ids": np.zeros((2, 3))}, TypeError, "input_ids must be integers, not float64"),
        ({"input_ids": torch.zeros((2, 3))}, TypeError, "input_ids must be integers"),
    ],
)
def test_bad_input(change, error, message, by_counter):
    with pytest.raises(error, match=message):
        quadrat.mask_tokens(
            **({"input_ids": np.zeros((2, 3), np.int64)} | (BY_COUNTER if by_counter else COMMON) | change)
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_probabilities_are_of_the_default_dtype(dtype):
    ids = torch.full((40, 50), 9)
    ours, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    with default_dtype(dtype):
        masked = quadrat.mask_tokens(ids, generator=ours, **COMMON)
        chosen = torch.bernoulli(torch.full(ids.shape, 0.15), generator=theirs)
    assert torch.equal(masked.labels != -100, chosen.bool())


ROWS = [np.random.default_rng(n).integers(5, 400, size=n) for n in (5, 0, 40, 130, 33)]
BY_COUNTER = {**COMMON, "rng": "philox", "seed": 3, "epoch": 2, "mlm_probability": 0.4}


def padded(side, width, framework="np"):
    """The rows in `[rows, width]`, padding with ids that masking must not see."""
    matrix = np.full((len(ROWS), width), 77)
    for row, ids in zip(matrix, ROWS, strict=True):
        row[width - len(ids) if side == "left" else 0 :][: len(ids)] = ids
    return matrix if framework == "np" else torch.from_numpy(matrix)


def each_alone(**options):
    """(ids, labels) of each row masked by itself."""
    keys = options.pop("row_keys", None) or [None] * len(ROWS)
    masked = [
        quadrat.mask_tokens(ids, row_keys=key if key is None else [key], **BY_COUNTER, **options)
        for ids, key in zip(ROWS, keys, strict=True)
    ]
    return [(output.input_ids.tolist(), output.labels.tolist()) for output in masked]


@pytest.fixture
def device(monkeypatch):
    """The way of CUDA tensors, on tensors of the CPU: their kernels compiled as C++."""

    def use(on_device):
        places = mask_tokens_module._mask_on_gpu if on_device else mask_tokens_module.mask_places
        monkeypatch.setattr(mask_tokens_module, "mask_places", places)

    with emulated_launches():
        yield use


@pytest.mark.parametrize("where", ["np", "pt", "device"])
@pytest.mark.parametrize("keys", [None, [4, -1, 2**62, 0, 9]])
def test_by_counter_a_row_is_masked_as_if_alone(where, keys, device):
    special = [0, 8, 77]
    expected = each_alone(row_keys=keys, special_ids=special)
    assert any(label != -100 for _, labels in expected for label in labels)
    device(where == "device")
    framework = "np" if where == "np" else "pt"
    lengths = [len(ids) for ids in ROWS]
    for side in ("right", "left"):
        for width in (130, 135):
            batch = padded(side, width, framework)
            sizes = torch.tensor(lengths) if framework == "pt" else lengths
            got = quadrat.mask_tokens(
                batch, lengths=sizes, padding_side=side, row_keys=keys, special_ids=special, **BY_COUNTER
            )
            ids, labels = got.input_ids.tolist(), got.labels.tolist()
            for row, length in enumerate(lengths):
                inside = slice(width - length, None) if side == "left" else slice(0, length)
                assert (ids[row][inside], labels[row][inside]) == expected[row]
                assert labels[row].count(-100) == expected[row][1].count(-100) + width - length
            assert batch.tolist() == padded(side, width).tolist()
            assert type(got.labels) is type(batch)
    rows = quadrat.Ragged.from_rows([[7, 7, 7], *ROWS], return_tensors=framework)[1:]
    got = quadrat.mask_tokens(rows, row_keys=keys, special_ids=special, **BY_COUNTER)
    assert list(zip(got.input_ids.to_lists(), got.labels.to_lists(), strict=True)) == expected


@pytest.mark.parametrize("where", ["np", "pt", "device"])
def test_by_counter_special_tokens_are_not_masked(where, device):
    device(where == "device")
    ids = np.arange(10, 130).reshape(2, 60)
    flags = ids % 3 == 0
    inputs = (ids, flags) if where == "np" else (torch.from_numpy(ids), torch.from_numpy(flags))
    got = quadrat.mask_tokens(inputs[0], special_tokens_mask=inputs[1], **BY_COUNTER | {"mlm_probability": 1})
    assert ((np.asarray(got.labels) == -100) == flags).all()


def test_the_collator_and_the_function_mask_alike():
    rows = [ids.tolist() for ids in ROWS if len(ids)]
    collator = quadrat.DataCollatorForLanguageModeling(TOKENIZER, rng="philox", seed=3, mlm_probability=0.4)
    collator.set_epoch(2)
    batch = collator([{"input_ids": row} for row in rows])
    plain = quadrat.DataCollatorForLanguageModeling(TOKENIZER, mlm=False)([{"input_ids": row} for row in rows])
    got = quadrat.mask_tokens(
        plain["input_ids"],
        lengths=[len(row) for row in rows],
        special_ids=TOKENIZER.all_special_ids,
        **BY_COUNTER,
    )
    assert torch.equal(got.input_ids, batch["input_ids"])
    assert torch.equal(got.labels, batch["labels"])
