"""The public functions on rows that lie, raise, or change while they are read: a result, or an error that says why."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_outcome, outcome
from support.hostile_features import VALUES, Description, batches, changes_itself, make, rows_of_values
from support.strategies import make_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")

_MASKING: dict[str, Any] = {"mask_token_id": 3, "vocab_size": 99}
_PADDED = [[5, 6, 0], [7, 0, 0]]
CALLS = {
    "pad": quadrat.pad,
    "pad left": lambda rows: quadrat.pad(rows, padding_side="left", pad_to_multiple_of=4, return_tensors="pt"),
    "pad to floats": lambda rows: quadrat.pad(rows, dtype="float32"),
    "flatten": quadrat.flatten,
    "flatten aligned": lambda rows: quadrat.flatten(rows, align_to=4),
    "attention_mask": quadrat.attention_mask,
    "from_rows": quadrat.Ragged.from_rows,
    "of_lengths": lambda rows: quadrat.Ragged.of_lengths(quadrat.pad(_PADDED).reshape(-1), rows[0]),
    "index": lambda rows: quadrat.Ragged.from_rows(_PADDED)[rows[0]],
    "unpad": lambda rows: quadrat.unpad(quadrat.pad(_PADDED), lengths=rows[0]),
    "unpad by a mask": lambda rows: quadrat.unpad(quadrat.pad(_PADDED), mask=rows[0]),
    "mask_tokens": lambda rows: quadrat.mask_tokens(rows[0], **_MASKING),
    "special ids": lambda rows: quadrat.mask_tokens(quadrat.pad(_PADDED), special_ids=rows[0], **_MASKING),
    "row keys": lambda rows: quadrat.mask_tokens(quadrat.pad(_PADDED), row_keys=rows[0], rng="philox", **_MASKING),
    "align": lambda rows: quadrat.align(rows[0], quadrat.pad(_PADDED).reshape(-1), pad_to_multiple_of=4),
    "pack": lambda rows: quadrat.batching.plan_packs(rows[0], 16),
    "token budget": lambda rows: list(quadrat.TokenBudgetBatchSampler(rows[0], 64)),
    "lengths": lambda rows: quadrat.lengths({"input_ids": rows}),
}
# RuntimeError: NumPy's, for a list that changes while it is read.
_USUAL = (TypeError, ValueError, OverflowError, IndexError, RuntimeError)


@given(st.sampled_from(list(CALLS)), rows_of_values())
def test_a_result_or_an_error(call, rows):
    kind, error = outcome(CALLS[call], [VALUES[row.kind](row.values, row.number, row.error) for row in rows])
    if kind == "raised" and not isinstance(error, (*_USUAL, *(row.error for row in rows))):
        raise error


@given(batches(), st.sampled_from(["pt", "np", None]), st.booleans())
def test_tokenizer_pad(batch: Description, framework, by_columns):
    values = [value for row in batch.values for value in row.values.values()]
    assume(not any(value.kind == "itself" for value in values))  # a batch of lists would have no end to compare
    tokenizer = make_tokenizer()
    given_as = [make(batch), make(batch)]
    if by_columns:
        try:
            given_as = [{name: [row[name] for row in rows] for name in rows[0]} for rows in given_as]
        except Exception:  # rows that are no mappings, or do not let themselves be read
            given_as = [make(batch), make(batch)]
    expected = outcome(lambda rows: tokenizer.pad(rows, return_tensors=framework), given_as[0])
    got = outcome(lambda rows: quadrat.tokenizers.tokenizer_pad(tokenizer, rows, return_tensors=framework), given_as[1])
    if not changes_itself(batch):
        assert_same_outcome(expected, got)
