"""DataCollatorForSeq2Seq == that of the installed transformers."""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils import PaddingStrategy

from support.compare import assert_identical, both
from support.strategies import WRAPPERS, features, row_columns, tokenizers


class Decoder:
    """A model that shifts labels to the right, for torch and for NumPy."""

    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        if isinstance(labels, torch.Tensor):
            return torch.cat([labels.new_zeros(len(labels), 1), labels], dim=1)[:, :-1].masked_fill(labels == -100, 0)
        return np.concatenate([np.zeros((len(labels), 1), labels.dtype), labels], axis=1)[:, :-1]


class Fails:
    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        raise NotImplementedError("not this model")


MODELS = st.sampled_from([None, None, Decoder(), Decoder(), Fails(), object()])
STRATEGIES = ["longest", "max_length", "do_not_pad", False, PaddingStrategy.MAX_LENGTH, PaddingStrategy.DO_NOT_PAD]
OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 6 + STRATEGIES + ["max_length", "wrong"]),
        "max_length": st.sampled_from([None, None, None, 4, 9, 12]),
        "pad_to_multiple_of": st.sampled_from([None, None, 1, 4, 8, True, 0]),
        "label_pad_token_id": st.sampled_from([-100] * 6 + [0, -1, 2**40, 2**62 + 1, 2**63, -1.0, None]),
        "return_tensors": st.sampled_from(["pt"] * 4 + ["np"] * 3 + [None]),
    }
)
PER_CALL = st.sampled_from([None] * 4 + ["pt", "np", "wrong"])


@st.composite
def targets(draw: Any) -> list[Any]:
    """Features with rows of labels as long as they like, now and then of one length, None, empty or of other kinds."""
    batch = draw(features())
    name = draw(st.sampled_from(["labels"] * 3 + ["label"]))
    most = draw(st.sampled_from([9, 9, 9, 0, 15]))
    sizes = [draw(st.integers(0, most))] * len(batch)
    if draw(st.integers(0, 3)):
        sizes = draw(st.lists(st.integers(0, most), min_size=len(batch), max_size=len(batch)))
    form = draw(st.sampled_from(["list"] * 4 + ["array", "tensor", "tuple"]))
    element = draw(st.sampled_from(["int"] * 6 + ["small", "bool", "float"]))
    labels = draw(row_columns(sizes, form, element))
    nothing = draw(st.integers(0, 9))
    if nothing == 0:
        labels = [None] * len(batch)
    elif nothing == 1:
        labels[draw(st.integers(0, len(labels) - 1))] = draw(st.sampled_from([None, 7, "text", [1, "x"], [1, 0.5]]))
    if draw(st.integers(0, 15)) > 0:
        batch = [{key: value for key, value in row.items() if key not in ("label", "labels")} for row in batch]
    first = draw(st.booleans())
    rows = [{name: label, **row} if first else {**row, name: label} for row, label in zip(batch, labels, strict=True)]
    if draw(st.integers(0, 15)) == 0:
        del rows[draw(st.integers(0, len(rows) - 1))][name]
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 4 + sorted(WRAPPERS)))]
    return [wrapper(row) for row in rows]


@given(tokenizers(), targets(), OPTIONS, MODELS, PER_CALL)
def test_seq2seq(tokenizer, batch, options, model, per_call):
    reference, collator = both("DataCollatorForSeq2Seq", tokenizer, model, **options)
    assert_identical(lambda rows: reference(rows, per_call), lambda rows: collator(rows, per_call), batch)


@given(tokenizers(), features(), OPTIONS, MODELS)
def test_without_labels(tokenizer, batch, options, model):
    assert_identical(*both("DataCollatorForSeq2Seq", tokenizer, model, **options), batch)


@given(st.lists(st.tuples(targets(), PER_CALL), min_size=2, max_size=5), tokenizers(), MODELS)
def test_return_tensors_change_from_call_to_call(calls, tokenizer, model):
    reference, collator = both("DataCollatorForSeq2Seq", tokenizer, model)
    for batch, per_call in [*calls, *calls]:
        assert_identical(
            lambda rows, to=per_call: reference(rows, return_tensors=to),
            lambda rows, to=per_call: collator(rows, return_tensors=to),
            batch,
        )
