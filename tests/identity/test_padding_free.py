"""padding_free=True on the language-modelling collator: what the reference masks when it is given one flat row."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_batch, generator_states, seed_everything
from support.masking import OwnSpecialTokens, make_masking_tokenizer, make_pair

TOKENIZERS = {
    "usual": make_masking_tokenizer(),
    "pad is eos": make_masking_tokenizer(pad_token="[EOS]"),
    "own special tokens": make_masking_tokenizer(cls=OwnSpecialTokens),
}
OPTIONS = st.fixed_dictionaries(
    {
        "return_tensors": st.sampled_from(["pt", "np"]),
        "pad_to_multiple_of": st.sampled_from([None, None, 8]),
        "mlm_probability": st.sampled_from([0.15, 0.5, 1]),
    }
)


@st.composite
def batches(draw: Any) -> list[dict[str, Any]]:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    ids = [draw(st.lists(st.integers(0, 12), min_size=n, max_size=n)) for n in lengths]
    rows: list[dict[str, Any]] = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in ids]
    if draw(st.booleans()):
        for row in rows:
            row["special_tokens_mask"] = [int(token % 5 == 0) for token in row["input_ids"]]
    if draw(st.booleans()):
        for row in rows:
            row["token_type_ids"] = [token % 2 for token in row["input_ids"]]
    return rows


def flat(rows: list[dict[str, Any]], name: str, framework: str, multiple: int | None = None, value: int = 0) -> Any:
    numbers = [number for row in rows for number in row[name]]
    numbers += [value] * (-len(numbers) % (multiple or 1))
    return np.array([numbers]) if framework == "np" else torch.tensor([numbers])


def assert_extra_outputs(batch: Any, rows: list[dict[str, Any]], multiple: int | None) -> None:
    lengths = [len(row["input_ids"]) for row in rows]
    total = sum(lengths)
    positions = [i for length in lengths for i in range(length)]
    assert batch["position_ids"][0, :total].tolist() == positions
    assert batch["cu_seq_lens_q"].tolist() == np.cumsum([0, *lengths]).tolist()
    assert batch["max_length_k"] == max(lengths)
    assert batch["seq_idx"][0, :total].tolist() == [i for i, length in enumerate(lengths) for _ in range(length)]
    assert batch["seq_idx"][0, total:].tolist() == [-1] * (-total % (multiple or 1))
    assert "attention_mask" not in batch
    if "token_type_ids" in rows[0]:
        assert batch["token_type_ids"][0, :total].tolist() == [t for row in rows for t in row["token_type_ids"]]


EVERYTHING = {"padding_free": quadrat.Flattening(kwargs_for="transformers", return_seq_idx=True)}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(batches(), OPTIONS, st.booleans())
def test_masked(name, rows, options, bare):
    tokenizer, framework, multiple = TOKENIZERS[name], options["return_tensors"], options["pad_to_multiple_of"]
    reference = make_pair(tokenizer, options)[0]
    collator = quadrat.DataCollatorForLanguageModeling(tokenizer, **options, **EVERYTHING)
    if bare:
        rows = [{"input_ids": row["input_ids"]} for row in rows]
    ids = flat(rows, "input_ids", framework, multiple, tokenizer.pad_token_id)
    special = None
    if "special_tokens_mask" in rows[0]:
        special = flat(rows, "special_tokens_mask", framework, multiple, 1)
    elif multiple and name == "own special tokens":
        return  # whether padding is special there is the tokenizer's own affair
    seed_everything(2)
    method = reference.torch_mask_tokens if framework == "pt" else reference.numpy_mask_tokens
    expected = method(ids, special_tokens_mask=special)
    after = generator_states()
    seed_everything(2)
    got = collator([row["input_ids"] for row in rows] if bare else rows)
    assert generator_states() == after
    assert list(got)[:2] == ["input_ids", "labels"]
    assert_same_batch(expected[0], got["input_ids"], "input_ids")
    assert_same_batch(expected[1], got["labels"], "labels")
    assert_extra_outputs(got, rows, multiple)


@pytest.mark.parametrize("mask_padding", ["token", "length"])
@given(batches(), st.sampled_from(["pt", "np"]), st.sampled_from(sorted(TOKENIZERS)))
def test_causal(mask_padding, rows, framework, name):
    tokenizer = TOKENIZERS[name]
    collator = quadrat.DataCollatorForLanguageModeling(
        tokenizer, mlm=False, mask_padding=mask_padding, return_tensors=framework, **EVERYTHING
    )
    got = collator(rows)
    assert_same_batch(flat(rows, "input_ids", framework), got["input_ids"], "input_ids")
    ignored = {tokenizer.pad_token_id} if mask_padding == "token" else set()
    expected = [
        -100 if i == 0 or token in ignored else token for row in rows for i, token in enumerate(row["input_ids"])
    ]
    assert got["labels"].tolist() == [expected]
    assert_extra_outputs(got, rows, None)


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 1, 1, 2, None]), min_size=1, max_size=10), min_size=1, max_size=4),
    st.sampled_from(["word_ids", "offset_mapping"]),
    st.sampled_from(["pt", "np"]),
    st.sampled_from([None, 8]),
)
def test_whole_words_end_with_their_row(words, column, framework, multiple):
    tokenizer = TOKENIZERS["usual"]
    options = {"whole_word_mask": True, "mlm_probability": 0.5, "return_tensors": framework}
    options["replacement"] = (1.0, 0.0)  # 4.57 refuses any other, and 5.x makes it this
    collator = make_pair(tokenizer, {**options, "padding_free": True, "pad_to_multiple_of": multiple}, both=False)
    rows = []
    for row in words:
        special = [int(word is None) for word in row]
        offsets, end = [], 0
        for before, word in zip([-1, *row], row, strict=False):
            start = 0 if word is None else end + (word != before)
            end = 0 if word is None else start + 1
            offsets.append((start, end))
        values = row if column == "word_ids" else offsets
        rows.append({"input_ids": [10 + i for i in range(len(row))], "special_tokens_mask": special, column: values})
    for seed in range(5):
        seed_everything(seed)
        masked = np.asarray(collator(rows)["labels"])[0] != -100
        start = 0
        for row in words:
            inside = masked[start : start + len(row)].tolist()
            for before, word, was, now in zip(row, row[1:], inside, inside[1:], strict=False):
                assert word is None or word != before or was == now
            assert not any(now for word, now in zip(row, inside, strict=True) if word is None)
            start += len(row)
        assert not masked[start:].any()


def test_masks_of_special_tokens_of_another_length():
    collator = quadrat.DataCollatorForLanguageModeling(TOKENIZERS["usual"], padding_free=True)
    with pytest.raises(ValueError, match="special_tokens_mask"):
        collator([{"input_ids": [8, 9], "special_tokens_mask": [0]}])


KNOWN = {
    "causal": (quadrat.DataCollatorForLanguageModeling, {"mlm": False}),
    "causal, length": (quadrat.DataCollatorForLanguageModeling, {"mlm": False, "mask_padding": "length"}),
    "masked": (quadrat.DataCollatorForLanguageModeling, {"mlm_probability": 0.5}),
    "philox": (quadrat.DataCollatorForLanguageModeling, {"mlm_probability": 0.5, "rng": "philox"}),
    "labels": (quadrat.DataCollatorForTokenClassification, {}),
}


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", KNOWN)
def test_is_known_after_the_first_batch(name, framework):
    """Until an option, the tokenizer or the columns change: then the batch is that of a new collator."""
    cls, options = KNOWN[name]
    tokenizer = make_masking_tokenizer()
    options = {**options, "padding_free": True, "return_tensors": framework}
    collator = cls(tokenizer, **options)
    rows = [{"input_ids": [7, 8, 9, 7][:n], "attention_mask": [1] * n} for n in (3, 4, 1)]
    if name == "labels":
        rows = [{**row, "labels": row["input_ids"]} for row in rows]

    def check(remembered: int = 1) -> None:
        expected = []
        for instance in (cls(tokenizer, **options), collator):
            seed_everything(4)
            expected.append(instance(rows))
        assert_same_batch(*expected)
        quadrat.stats(reset=True)
        seed_everything(4)
        assert_same_batch(expected[0], collator(rows))
        assert quadrat.stats()[:3] == (1, remembered, 0)

    check()
    flattenings = quadrat.Flattening(return_position_ids=False), quadrat.Flattening(return_seq_idx=True)
    for option, value in [*(("padding_free", how) for how in flattenings), ("pad_to_multiple_of", 8)]:
        setattr(collator, option, value)
        options[option] = value
        check()
    tokenizer.pad_token = "[EOS]"
    check()
    rows = [
        {**row, "token_type_ids": row["input_ids"], "special_tokens_mask": [0] * len(row["input_ids"])} for row in rows
    ]
    check()
    for row in rows:
        del row["attention_mask"]
    check()
    with pytest.raises(ValueError, match="cannot join column 'extra'"):
        collator([{**row, "extra": 1} for row in rows])
    with pytest.raises((TypeError, ValueError), match="input_ids"):
        collator([{**row, "input_ids": "text"} for row in rows])
    check()


@pytest.mark.parametrize("name", ["causal", "masked"])
def test_columns_of_a_known_kind_are_refused_as_rows_are(name):
    cls, options = KNOWN[name]
    collator = cls(make_masking_tokenizer(), padding_free=True, **options)
    rows = {"input_ids": [[7, 8], [9]]}
    collator(rows)
    with pytest.raises((TypeError, ValueError), match="input_ids"):
        collator({"input_ids": [[7, 8], [0.5]]})
    collator(rows)
