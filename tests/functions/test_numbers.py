"""Numbers that are no lengths, ids, widths or paddings: a clear error, and nothing cut off without a word."""

import numpy as np
import pytest
import torch

import quadrat

IDS, ROWS = np.arange(6).reshape(2, 3), [[1], [2, 3]]
MASKING = {"mask_token_id": 3, "vocab_size": 99}
PHILOX = {**MASKING, "rng": "philox"}
HALF = quadrat.Ragged(torch.ones(3, dtype=torch.float16), torch.tensor([0, 1, 3]))


def mask(**options):
    return quadrat.mask_tokens(IDS, **{**PHILOX, **options})


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (
            TypeError,
            lambda: mask(lengths=[1.5, 2.0]),
            "lengths must be integers in a 1-D array, not float64 in a 1-D array",
        ),
        (TypeError, lambda: mask(lengths=torch.tensor([1.0, 2.0])), "lengths must be integers .* not float32"),
        (TypeError, lambda: mask(lengths=np.array([True, True])), "lengths must be integers .* not bool"),
        (TypeError, lambda: mask(lengths=["1", "2"]), "lengths must be integers"),
        (ValueError, lambda: mask(lengths=[-1, 2]), "row 0 has the negative length -1"),
        (ValueError, lambda: mask(lengths=[2**62, 1]), "no memory holds such a batch"),
        (ValueError, lambda: mask(lengths=[1]), "lengths must be 2 numbers"),
        (TypeError, lambda: mask(row_keys=[1.0, 2.0]), "row 0 has the key 1.0: row keys are integers"),
        (TypeError, lambda: mask(row_keys=np.ones(2)), "row keys are integers, not float64"),
        (ValueError, lambda: mask(special_tokens_mask=np.zeros((2, 3))), "must be integers or bools"),
        (ValueError, lambda: mask(special_tokens_mask=torch.zeros(2, 3)), "must be integers or bools"),
        (TypeError, lambda: mask(special_ids=[3.7]), "special_ids must be an int, not 3.7"),
        (TypeError, lambda: mask(special_ids="12"), "special_ids must be an int, not '1'"),
        (ValueError, lambda: mask(special_ids=[2**70]), "special_ids must be from 0"),
        (TypeError, lambda: mask(mask_token_id=3.0), "mask_token_id must be an int, not 3.0"),
        (ValueError, lambda: mask(mask_token_id=2**63), "mask_token_id must be from"),
        (TypeError, lambda: mask(vocab_size=9.5), "vocab_size must be an int, not 9.5"),
        (ValueError, lambda: mask(vocab_size=2**80), "vocab_size must be from 1"),
        (TypeError, lambda: mask(seed=1.5), "seed must be an int"),
        (ValueError, lambda: mask(seed=2**64), "seed must be from 0"),
        (ValueError, lambda: mask(epoch=2**32), "epoch must be from 0"),
        (ValueError, lambda: quadrat.mask_tokens(quadrat.Ragged(IDS, np.array([0, 1, 2])), **PHILOX), "one dimension"),
        (TypeError, lambda: quadrat.pad(ROWS, max_length=2.0), "length must be an int, not 2.0"),
        (TypeError, lambda: quadrat.pad(ROWS, max_length="2"), "length must be an int, not '2'"),
        (TypeError, lambda: quadrat.pad(ROWS, pad_to_multiple_of=2.0), "multiple_of must be an int, not 2.0"),
        (ValueError, lambda: quadrat.pad(ROWS, max_length=2**63), f"no memory holds rows of {2**63} tokens"),
        (ValueError, lambda: quadrat.pad(ROWS, pad_to_multiple_of=2**70), f"no memory holds rows of {2**70} tokens"),
        (ValueError, lambda: quadrat.attention_mask(ROWS, max_length=2**63), "no memory holds rows"),
        (ValueError, lambda: quadrat.flatten(ROWS, pad_to_multiple_of=2**64), "no memory holds rows"),
        (TypeError, lambda: quadrat.flatten(ROWS, position_ids_start=0.5), "position_ids_start must be an int"),
        (OverflowError, lambda: quadrat.flatten(ROWS, position_ids_start=2**63), "beyond int64"),
        (TypeError, lambda: quadrat.attention_mask(np.array([1.0, 2.0])), "lengths must be integers"),
        (TypeError, lambda: quadrat.unpad(IDS, lengths=[1.5, 2]), "lengths must be integers"),
        (TypeError, lambda: quadrat.unpad(IDS, lengths=np.array([True, False])), "lengths must be integers"),
        (TypeError, lambda: quadrat.Ragged.of_lengths(np.arange(3), [1.0, 2.0]), "lengths must be integers"),
        (ValueError, lambda: quadrat.Ragged.of_lengths(np.arange(3), [4, -1]), "row 1 has the negative length -1"),
        (OverflowError, lambda: quadrat.pad(HALF, padding_value=1e6), "does not fit the dtype torch.float16"),
        (OverflowError, lambda: quadrat.pad(HALF, padding_value=10**400), "does not fit"),
        (OverflowError, lambda: quadrat.pad([[1.0], [2.0, 3.0]], padding_value=1e300, dtype="float32"), "float32"),
    ],
)
def test_are_refused(error, call, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("value", [65504, -65504.0, float("inf"), float("-inf")])
def test_what_fits_a_small_float_is_taken(value):
    assert quadrat.pad(HALF, padding_value=value)[0, 1] == value
    largest = float(np.finfo(np.float32).max)
    assert quadrat.pad([[1.0], [2.0, 3.0]], padding_value=largest, dtype="float32")[0, 1] == np.float32(largest)


def test_lengths_may_be_any_integers():
    expected = mask(lengths=[1, 3])
    for lengths in (np.array([1, 3], np.uint8), torch.tensor([1, 3], dtype=torch.int16), (1, 3)):
        assert np.array_equal(mask(lengths=lengths).input_ids, expected.input_ids)
