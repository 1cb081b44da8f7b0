"""`trim=True`: the reference's batch, without the columns at its sides that all rows mask."""

import copy
import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchEncoding

import quadrat
from quadrat.batching.trim import Trimmed
from support.compare import assert_same_batch, both, generator_states, seed_everything
from support.strategies import make_tokenizer

COLLATORS = (
    *("DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForLanguageModeling"),
    *("DataCollatorForSeq2Seq", "DataCollatorForMultipleChoice"),
)


def made_of(array: Any, row: dict[str, Any]) -> dict[str, Any]:
    return {name: array(value) if isinstance(value, list) else value for name, value in row.items()}


FORMS = {
    "lists": lambda rows: rows,
    "arrays": lambda rows: [made_of(np.array, row) for row in rows],
    "tensors": lambda rows: [made_of(torch.tensor, row) for row in rows],
    "encodings": lambda rows: [BatchEncoding(row) for row in rows],
    "arrow": pa.Table.from_pylist,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
}


@st.composite
def stored(draw: Any, kind: str, *, left: bool) -> list[dict[str, Any]]:
    """Rows that were stored padded to one length, on one side, and sometimes have masked tokens within."""
    width, count = draw(st.integers(1, 12)), draw(st.integers(1, 5))

    def row() -> dict[str, Any]:
        size = draw(st.integers(0, width))
        mask = [draw(st.sampled_from([1, 1, 1, 0])) for _ in range(size)]
        ids = [draw(st.integers(3, 50)) * real for real in mask]
        labels = [one if real else -100 for one, real in zip(ids, mask, strict=True)]
        rest = [0] * (width - size), [0] * (width - size), [-100] * (width - size)
        both_sides = zip((ids, mask, labels), rest, strict=True)
        ids, mask, labels = (padding + part if left else part + padding for part, padding in both_sides)
        made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": [1 - one for one in mask]}
        return made | ({"labels": labels} if kind == "DataCollatorForTokenClassification" else {})

    rows = [row() for _ in range(count)]
    if kind == "DataCollatorForMultipleChoice":
        rows = [{name: [one[name] for one in rows] for name in rows[0]} for rows in (rows, rows[::-1])]
    if kind in {"DataCollatorForMultipleChoice", "DataCollatorWithPadding"}:
        return [{**row, "labels": at} for at, row in enumerate(rows)]
    if kind == "DataCollatorForSeq2Seq":  # with a decoder: of another width, or by chance of the same
        size = draw(st.sampled_from([width, 3]))
        return [{**row, "labels": [7] * size, "decoder_input_ids": [7] * size} for row in rows]
    return rows


def without_padding(batch: Any, multiple_of: int, apart: tuple[str, ...]) -> Any:
    """The reference's batch, cut as the docs say."""
    mask = np.asarray(batch["attention_mask"])
    width = mask.shape[-1]
    used = [at for at in range(width) if mask[..., at].any()]
    if not used:
        return batch
    size = used[-1] - used[0] + 1
    size = min(width, size + -size % multiple_of)
    first = min(used[0], width - size)
    for name, value in batch.items():
        if value.shape[: mask.ndim] == mask.shape and name not in apart and name != "decoder_input_ids":
            part = value[..., first : first + size]
            batch[name] = part.clone() if isinstance(part, torch.Tensor) else part.copy()
    return batch


@pytest.mark.parametrize("kind", COLLATORS)
@given(data=st.data(), left=st.booleans(), form=st.sampled_from([*FORMS]), multiple_of=st.sampled_from([None, 1, 4]))
def test_the_reference_without_columns_that_are_masked(kind, data, left, form, multiple_of):
    rows = data.draw(stored(kind, left=left))
    tokenizer = make_tokenizer(padding_side="left" if left else "right", mask_token="[UNK]")
    options: dict[str, Any] = {"pad_to_multiple_of": multiple_of}
    if kind != "DataCollatorForMultipleChoice":
        options["return_tensors"] = data.draw(st.sampled_from(["pt", "np"]))
    reference, make = both(kind, tokenizer, **options)[0], getattr(quadrat, kind)
    collators = [make(tokenizer, **options, trim=True)]
    if options.get("return_tensors") != "np":
        collators.append(make(tokenizer, **options, trim=True, deferred=True))
    for _ in range(2):  # a new kind of batch, and a known one
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy, in transformers 4
            seed_everything(3)
            expected = reference(copy.deepcopy(rows))
            after = generator_states()
            expected = without_padding(expected, multiple_of or 1, ("labels",) if "Seq2Seq" in kind else ())
            for collator in collators:
                seed_everything(3)
                found = collator(FORMS[form](copy.deepcopy(rows)))
                assert generator_states() == after
                if collator.deferred:
                    assert isinstance(found, quadrat.deferred.DeferredBatch)
                    found = pickle.loads(pickle.dumps(found)).to("cpu")
                assert_same_batch(expected, found)


ROWS = [
    {"input_ids": [5, 6, 0, 0], "attention_mask": [1, 1, 0, 0]},
    {"input_ids": [7, 0, 0, 0], "attention_mask": [1, 0, 0, 0]},
]


def test_what_falls_back_and_extra_columns():
    """A column that only transformers takes; one for each token, one of classes, one of pairs of tokens."""
    more = {"odd": ["a"], "weights": [0.5] * 4, "labels": [0.0, 1.0, 1.0, 0.0], "pairs": [[1] * 4] * 4}
    tokenizer = make_tokenizer()
    batch = quadrat.DataCollatorWithPadding(tokenizer, trim=True)([{**row, **more, "odd": 3 + 0.5j} for row in ROWS])
    shapes = {name: tuple(value.shape) for name, value in batch.items()}
    pairs = (2, 2)
    assert shapes == {
        "input_ids": pairs,
        "attention_mask": pairs,
        "odd": (2,),
        "weights": pairs,
        "labels": (2, 4),
        "pairs": (2, 2, 2),
    }


def test_labels_that_count_are_kept():
    rows = [{**row, "labels": row["input_ids"]} for row in ROWS]
    tokenizer = make_tokenizer()
    with pytest.warns(UserWarning, match="labels of masked tokens are not -100.*such batches are not trimmed"):
        batch = quadrat.DataCollatorForTokenClassification(tokenizer, trim=True)(rows)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 4)
    causal = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False, trim=True)(rows)  # makes its own labels
    assert causal["labels"].tolist() == [[5, 6], [7, -100]]


@pytest.mark.parametrize("made", [False, True])
def test_columns_of_a_decoder_are_not_the_tokens(made):
    """Stored, or made by the collator's model; labels go with them."""
    model = SimpleNamespace(prepare_decoder_input_ids_from_labels=lambda labels: labels + 1) if made else None
    rows = [{**row, "labels": [1, 2, 3, 4]} | ({} if made else {"decoder_input_ids": [1, 2, 3, 4]}) for row in ROWS]
    batch = quadrat.DataCollatorForSeq2Seq(make_tokenizer(), model, trim=True)(rows)
    shapes = {name: value.shape[1] for name, value in batch.items()}
    assert shapes == {"input_ids": 2, "attention_mask": 2, "decoder_input_ids": 4, "labels": 4}


def test_a_collator_of_seq2seq_for_a_model_without_a_decoder():
    """As many scripts have it: labels are those of the tokens."""
    rows = [{**row, "labels": [one or -100 for one in row["input_ids"]]} for row in ROWS]
    batch = quadrat.DataCollatorForSeq2Seq(make_tokenizer(), trim=True)(rows)
    assert batch["labels"].tolist() == [[5, 6], [7, -100]]
    counted = [{**row, "labels": [1, 2, 3, 4]} for row in ROWS]
    with pytest.warns(UserWarning, match="labels of masked tokens are not -100"):
        assert quadrat.DataCollatorForSeq2Seq(make_tokenizer(), trim=True)(counted)["input_ids"].shape == (2, 4)


def test_without_a_mask_nothing_is_known_to_be_padding():
    tokenizer = make_tokenizer(model_input_names=("input_ids",))
    batch = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False, trim=True)([[5, 0], [5, 6]])
    assert batch["input_ids"].tolist() == [[5, 0], [5, 6]]


def test_joined_rows_have_no_padding():
    for kind in (quadrat.DataCollatorForLanguageModeling, quadrat.DataCollatorForTokenClassification):
        options = {"mlm": False} if kind is quadrat.DataCollatorForLanguageModeling else {}
        with pytest.raises(ValueError, match="padding_free has no columns of padding for trim to cut"):
            kind(make_tokenizer(), padding_free=True, trim=True, **options)(ROWS)


def test_any_collator_and_its_names():
    def collate(rows: Any) -> Any:
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    assert Trimmed(collate)(ROWS)["input_ids"].tolist() == [[5, 6], [7, 0]]
    kept = Trimmed(quadrat.DataCollatorWithPadding(make_tokenizer(), pad_to_multiple_of=3))
    assert pickle.loads(pickle.dumps(kept))(ROWS)["input_ids"].shape == (2, 3)
    assert kept.pad_to_multiple_of == 3
    assert Trimmed(lambda rows: rows)(ROWS) is ROWS
