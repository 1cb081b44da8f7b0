"""Mistakes that several functions refuse alike; numbers that fit nowhere are not cut off without a word."""

import datasets
import numpy as np
import pytest
import torch

import quadrat
from quadrat.batching.token_budget import usual_sampler


def test_reprs():
    dataset = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]]})
    sampler = quadrat.TokenBudgetBatchSampler([1, 2], 8)
    assert repr(sampler) == "TokenBudgetBatchSampler(rows=2, max_tokens=8, world_size=1, rank=0, epoch=0)"
    assert repr(quadrat.data.BatchedDataset(dataset, sampler)) == "BatchedDataset(rows=2, columns=None, epoch=0)"
    patch = quadrat.patch_transformers()
    assert repr(patch) == "<quadrat.patch_transformers(): in force>"
    patch.undo()
    assert repr(patch) == "<quadrat.patch_transformers(): undone>"


IDS, SHORT_ROWS = np.arange(6).reshape(2, 3), [[1], [2, 3]]
MASKING = {"mask_token_id": 3, "vocab_size": 99}
PHILOX = {**MASKING, "rng": "philox"}
OWN = type("OwnGenerator", (torch.Generator,), {})()
ONE_ROW = quadrat.Ragged.from_rows([[1]])
BYTES = quadrat.Ragged(torch.ones(3).to(torch.float8_e4m3fn), torch.tensor([0, 1, 3]))
HALF = quadrat.Ragged(torch.ones(3, dtype=torch.float16), torch.tensor([0, 1, 3]))


def masked(**options):
    return quadrat.mask_tokens(IDS, **{**PHILOX, **options})


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (TypeError, lambda: masked(lengths=[1.5, 2.0]), "lengths must be integers, one per row, not float64"),
        (ValueError, lambda: masked(lengths=[-1, 2]), "row 0 has the negative length -1"),
        (ValueError, lambda: masked(lengths=[2**62, 1]), "such a batch does not fit into memory"),
        (ValueError, lambda: masked(lengths=[1, 4]), "row 1"),
        (ValueError, lambda: masked(row_keys=[1]), "one row key for each of 2 rows"),
        (TypeError, lambda: masked(row_keys=[1, 0.5]), "row 1 has the key 0.5: row keys are integers"),
        (TypeError, lambda: masked(row_keys=np.ones(2)), "row keys are integers, not float64"),
        (ValueError, lambda: masked(special_tokens_mask=torch.zeros(2, 3)), "must be integers or bools"),
        (TypeError, lambda: masked(special_ids=[3.7]), "special_ids must be an int, not 3.7"),
        (TypeError, lambda: masked(special_ids="12"), "special_ids must be an int, not '1'"),
        (ValueError, lambda: masked(special_ids=[2**70]), "special_ids must be from 0"),
        (TypeError, lambda: masked(mask_token_id=3.0), "mask_token_id must be an int, not 3.0"),
        (ValueError, lambda: masked(mask_token_id=2**63), "mask_token_id must be from"),
        (TypeError, lambda: masked(vocab_size=9.5), "vocab_size must be an int, not 9.5"),
        (ValueError, lambda: masked(vocab_size=2**80), "vocab_size must be from 1"),
        (ValueError, lambda: masked(rng="numpy"), "rng must be 'torch' or 'philox'"),
        (ValueError, lambda: masked(rng="torch", epoch=2), 'are for rng="philox"'),
        (ValueError, lambda: masked(generator=np.random.default_rng(0)), "uses no generator"),
        (TypeError, lambda: masked(rng="torch", generator=torch.Generator()), "generator must be a numpy.random"),
        (ValueError, lambda: quadrat.mask_tokens(torch.ones(2).long(), generator=OWN, **MASKING), "not known"),
        (ValueError, lambda: masked(padding_side="top"), "side"),
        (TypeError, lambda: masked(seed=1.5), "seed must be an int"),
        (ValueError, lambda: masked(seed=-1), "seed must be from 0"),
        (TypeError, lambda: masked(epoch=0.5), "epoch must be an int"),
        (ValueError, lambda: masked(seed=2**64), "seed must be from 0"),
        (ValueError, lambda: masked(epoch=2**32), "epoch must be from 0"),
        (ValueError, lambda: quadrat.mask_tokens(quadrat.Ragged(IDS, np.array([0, 1, 2])), **PHILOX), "must be 1-D"),
        (ValueError, lambda: quadrat.mask_tokens(ONE_ROW, lengths=[1], **PHILOX), "not for a Ragged"),
        (TypeError, lambda: quadrat.pad(SHORT_ROWS, max_length=2.0), "length must be an int, not 2.0"),
        (TypeError, lambda: quadrat.pad(SHORT_ROWS, max_length="2"), "length must be an int, not '2'"),
        (TypeError, lambda: quadrat.pad(SHORT_ROWS, pad_to_multiple_of=2.0), "multiple_of must be an int, not 2.0"),
        (ValueError, lambda: quadrat.pad(SHORT_ROWS, max_length=2**63), f"no memory holds rows of {2**63} tokens"),
        (ValueError, lambda: quadrat.pad(SHORT_ROWS, pad_to_multiple_of=2**70), f"no memory holds rows of {2**70} tok"),
        (ValueError, lambda: quadrat.attention_mask(SHORT_ROWS, max_length=2**63), "no memory holds rows"),
        (OverflowError, lambda: quadrat.flatten(SHORT_ROWS, pad_to_multiple_of=2**64), "more than int32 cu_seqlens"),
        (TypeError, lambda: quadrat.flatten(SHORT_ROWS, position_ids_start=0.5), "position_ids_start must be an int"),
        (TypeError, lambda: quadrat.Ragged.of_lengths(np.arange(3), [1.0, 2.0]), "lengths must be integers"),
        (ValueError, lambda: quadrat.Ragged.of_lengths(np.arange(3), [4, -1]), "row 1 has the negative length -1"),
        (TypeError, lambda: quadrat.pad(["abc"]), "row 0 is the str 'abc': .* tokenize text first$"),
        (TypeError, lambda: quadrat.evaluation.without_padding(5), "compute_metrics must be a function, not 5"),
        (OverflowError, lambda: quadrat.pad(HALF, padding_value=1e6), "does not fit the dtype float16"),
        (OverflowError, lambda: quadrat.pad(HALF, padding_value=2049), "does not fit the dtype float16; give 2049.0"),
        (OverflowError, lambda: quadrat.pad(BYTES, padding_value=-100), "does not fit the dtype torch.float8_e4m3fn"),
        (OverflowError, lambda: quadrat.pad(HALF, padding_value=10**400), "does not fit"),
        (OverflowError, lambda: quadrat.pad([[1.0], [2.0, 3.0]], padding_value=1e300, dtype="float32"), "float32"),
    ],
)
def test_are_refused(error, call, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("function", [quadrat.pad, quadrat.flatten, quadrat.Ragged.from_rows])
@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, "rows", {}, "not str"),
        (TypeError, [[1], None], {}, "row 1 is the NoneType None"),
        (TypeError, [[1], [1, 2.5]], {}, "row 1, position 1"),
        (TypeError, [[1], [2, "x"]], {}, "row 1, position 1"),
        (TypeError, [[1], [1.5]], {"dtype": "int64"}, "row 1"),
        (TypeError, [[1]], {"dtype": "complex64"}, "complex64"),
        (OverflowError, [[1], [1, 2**63]], {}, "row 1, position 1"),
        (OverflowError, [[1], [1, 2**70]], {}, "row 1, position 1"),
        (OverflowError, [[1], [1, 128]], {"dtype": "int8"}, "row 1"),
        (ValueError, [[1]], {"return_tensors": "tf"}, "'tf'"),
        (TypeError, [[1], [1], np.ones((2, 2)).T], {}, "row 2 is the ndarray"),
        (TypeError, [[1], np.ones((1, 2))], {}, r"row 1 has tokens of the shape \(2,\), row 0 of \(\)"),
        (TypeError, [[True], [1]], {}, "different kinds"),
        (OverflowError, [np.array([-1])], {"dtype": "uint64"}, "row 0"),
    ],
)
def test_rows_that_no_function_takes(function, error, rows, options, message):
    with pytest.raises(error, match=message):
        function(rows, **options)


@pytest.mark.parametrize(
    "plan",
    [
        lambda rows: quadrat.TokenBudgetBatchSampler(rows, 8),
        lambda rows: quadrat.TokenBudgetBatchSampler(rows, 8, overlong="alone"),
        lambda rows: quadrat.batching.plan_packs(rows, 8),
        lambda rows: quadrat.PackedDataset(rows, 8),
        lambda rows: usual_sampler(rows, 8),
    ],
)
def test_no_rows(plan):
    empty = datasets.Dataset.from_dict({"input_ids": [[1]]}).select([])
    for rows in ([], empty):
        with pytest.raises(ValueError, match=r"lengths are empty: there are no rows to (batch|pack)"):
            plan(rows)


@pytest.mark.parametrize("value", [65504, -65504.0, float("inf"), float("-inf")])
def test_what_fits_a_small_float_is_taken(value):
    assert quadrat.pad(HALF, padding_value=value)[0, 1] == value
    largest = float(np.finfo(np.float32).max)
    assert quadrat.pad([[1.0], [2.0, 3.0]], padding_value=largest, dtype="float32")[0, 1] == np.float32(largest)


def test_lengths_may_be_any_integers():
    expected = masked(lengths=[1, 3])
    for lengths in (np.array([1, 3], np.uint8), torch.tensor([1, 3], dtype=torch.int16), (1, 3)):
        assert np.array_equal(masked(lengths=lengths).input_ids, expected.input_ids)
