"""Whole-word masking by offsets: as the installed transformers does it, and where that fails."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat.installed.originals import ORIGINALS
from support.compare import (
    assert_identical,
    assert_same_batch,
    assert_same_outcome,
    both,
    generator_states,
    outcome,
    seed_everything,
)
from support.masking import bare_rows, make_masking_tokenizer, make_pair, masking_tokenizers

WHOLE_WORDS = {"whole_word_mask": True, "replacement": (1.0, 0.0)}


def replacements() -> list[tuple[float, float]]:
    """The constructor of 4.57 fails where it means to warn that masked words are not replaced at random."""
    kind, _ = outcome(lambda options: make_pair(make_masking_tokenizer(), options), {"whole_word_mask": True})
    return [(1.0, 0.0)] * 2 + [(0.8, 0.1)] * (kind == "returned")


OPTIONS = st.fixed_dictionaries(
    {
        "whole_word_mask": st.just(True),
        "mlm_probability": st.sampled_from([0.15, 0.5, 0, 1]),
        "replacement": st.sampled_from(replacements()),
        "return_tensors": st.sampled_from(["pt", "np"]),
        "seed": st.sampled_from([None, 5]),
    }
)


@st.composite
def offsets(draw: Any, length: int) -> list[Any]:
    """Character offsets of tokens: words of some pieces, special tokens (0, 0) in between."""
    pairs, end = [], 0
    for _ in range(length):
        kind = draw(st.sampled_from(["piece", "piece", "word", "special"]))
        start = 0 if kind == "special" else end + (kind == "word")
        end = 0 if kind == "special" else start + draw(st.integers(0, 3))
        pairs.append((start, end))
    return pairs


@st.composite
def word_features(draw: Any, *, equal: bool, form: str | None = None) -> list[dict[str, Any]]:
    count, longest = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    lengths = [longest if equal else draw(st.integers(1, longest)) for _ in range(count)]
    form = form or draw(st.sampled_from(["list", "list", "array", "tensor"]))
    has_special = draw(st.booleans())
    rows = []
    for length in lengths:
        pairs = draw(offsets(length))
        row: dict[str, Any] = {
            "input_ids": draw(st.lists(st.integers(0, 30), min_size=length, max_size=length)),
            "attention_mask": [1] * length,
            "offset_mapping": [list(pair) for pair in pairs] if draw(st.booleans()) else pairs,
        }
        if has_special:
            row["special_tokens_mask"] = [int(pair == (0, 0)) for pair in pairs]
        if form == "array":
            row = {name: np.array(value) for name, value in row.items()}
        elif form == "tensor":
            row = {name: torch.tensor(value) for name, value in row.items()}
        rows.append(row)
    return rows


@given(masking_tokenizers(), word_features(equal=True), OPTIONS)
def test_rows_of_one_length(tokenizer, batch, options):
    assert_identical(*make_pair(tokenizer, options), batch)


def padded(rows: list[list[Any]], side: str, value: Any, framework: str) -> Any:
    width = max(map(len, rows))
    filled = [[value] * (width - len(row)) for row in rows]
    both = [row + fill if side == "right" else fill + row for row, fill in zip(rows, filled, strict=True)]
    return np.array(both) if framework == "np" else torch.tensor(both)


def by_hand(reference: Any, tokenizer: Any, batch: list[dict[str, Any]], pairs: list[Any]) -> tuple[Any, Any]:
    """What the reference makes of a batch whose offsets somebody padded."""
    framework = reference.return_tensors
    ids = padded([row["input_ids"] for row in batch], tokenizer.padding_side, tokenizer.pad_token_id, framework)
    if "special_tokens_mask" in batch[0]:
        special = padded([row["special_tokens_mask"] for row in batch], tokenizer.padding_side, 1, framework)
    else:
        rows = [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in ids.tolist()]
        special = np.array(rows) if framework == "np" else torch.tensor(rows)
    mask_tokens = reference.torch_mask_tokens if framework == "pt" else reference.numpy_mask_tokens
    return mask_tokens(ids, special, padded(pairs, tokenizer.padding_side, (0, 0), framework))


def assert_as_by_hand(batch: Any, options: Any, side: str, pairs: list[Any]) -> None:
    tokenizer = make_masking_tokenizer(padding_side=side)
    reference, collator = make_pair(tokenizer, options | {"seed": None})
    seed_everything(3)
    expected = by_hand(reference, tokenizer, batch, pairs)
    after = generator_states()
    seed_everything(3)
    for _ in range(2):
        got = collator(batch)
        assert list(got) == ["input_ids", "attention_mask", "labels"]
        names = ("input_ids", "labels")
        assert_same_batch(dict(zip(names, expected, strict=True)), {name: got[name] for name in names})
        assert generator_states() == after
        seed_everything(3)


@given(word_features(equal=False, form="list"), OPTIONS, st.sampled_from(["right", "left"]))
def test_rows_of_different_lengths(batch, options, side):
    assert_as_by_hand(batch, options, side, [[tuple(pair) for pair in row["offset_mapping"]] for row in batch])


def ids_to_offsets(word_ids: list[int | None]) -> list[tuple[int, int]]:
    """Offsets that part where the words do."""
    pairs: list[tuple[int, int]] = []
    for before, word in zip([None, *word_ids], word_ids, strict=False):
        start = pairs[-1][1] if pairs and word == before else (pairs[-1][1] if pairs else 0) + 1
        pairs.append((start, start + 1))
    return pairs


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, None]), min_size=1, max_size=12), min_size=1, max_size=4),
    OPTIONS,
    st.sampled_from(["right", "left"]),
)
def test_word_ids(word_ids, options, side):
    """Tokens without a word are special; offsets beside them would merge all words, and are not looked at."""
    batch = [
        {
            "input_ids": list(range(10, 10 + len(row))),
            "attention_mask": [1] * len(row),
            "special_tokens_mask": [int(word is None) for word in row],
            "offset_mapping": [(i, i + 1) for i in range(len(row))],
            "word_ids": row,
        }
        for row in word_ids
    ]
    assert_as_by_hand(batch, options, side, [ids_to_offsets(row) for row in word_ids])


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"offset_mapping": [(0, 1), (1, 2)]}, ValueError),
        ({"offset_mapping": [(0, 1), (1, 2), None]}, ValueError),
        ({"offset_mapping": [(0, 1), (1, 2), (2, 3, 4)]}, ValueError),
        ({"word_ids": [0, "x", 1]}, ValueError),
        ({"word_ids": [0, 1]}, ValueError),
    ],
)
def test_broken_words_are_an_error_that_names_the_column(broken, error):
    collator = make_pair(make_masking_tokenizer(), WHOLE_WORDS)[1]
    batch = [{"input_ids": [10, 11]}, {"input_ids": [10, 11, 12]}]
    fine: dict[str, Any] = {"offset_mapping": [(0, 1), (1, 2)], "word_ids": [0, 0]}
    for row, values in zip(batch, ({name: fine[name] for name in broken}, broken), strict=True):
        row.update(values)
    state = torch.get_rng_state()
    with pytest.raises(error, match=next(iter(broken))):
        collator(batch)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_offsets_the_error_is_the_reference_s():
    reference, collator = make_pair(make_masking_tokenizer(), WHOLE_WORDS)
    assert_identical(reference, collator, [{"input_ids": [10, 11]}])


@given(word_features(equal=True))
def test_offsets_are_left_out_without_whole_words(batch):
    tokenizer = make_masking_tokenizer()
    for mlm in (True, False):
        assert_identical(*both("DataCollatorForLanguageModeling", tokenizer, mlm=mlm), batch)


def test_the_constructor_is_the_reference_s():
    def construct(module: Any) -> Any:
        collator = module.DataCollatorForLanguageModeling(
            make_masking_tokenizer(), whole_word_mask=True, mask_replace_prob=0.8
        )
        return collator.mask_replace_prob

    assert_same_outcome(outcome(construct, transformers), outcome(construct, quadrat))


def masks_words(module: Any, tokenizer: Any, options: dict[str, Any]) -> Any:
    """`DataCollatorForWholeWordMask` of 5.x; where transformers has dropped it, what it was."""
    cls = getattr(module, "DataCollatorForWholeWordMask", module.DataCollatorForLanguageModeling)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # early 5.x announce that it goes
        collator = cls(tokenizer, **options)
    collator.mlm = collator.whole_word_mask = True
    return collator


NAMED = "DataCollatorForWholeWordMask"
OPTIONS_OF_NAMED = st.fixed_dictionaries(
    {"mlm_probability": st.sampled_from([0.15, 0.5, 0.0, 1.0]), "return_tensors": st.sampled_from(["pt", "np"])},
    optional={"seed": st.sampled_from([0, 5]), "mlm": st.just(False), "mask_replace_prob": st.sampled_from([0.5, 0.9])},
)


@pytest.mark.skipif(NAMED in ORIGINALS, reason="that of transformers 4.x finds words by tokens: test_whole_word.py")
@given(tokenizer=masking_tokenizers(), batch=word_features(equal=True) | bare_rows(), options=OPTIONS_OF_NAMED)
def test_the_collator_of_that_name(tokenizer, batch, options):
    reference, collator = (masks_words(module, tokenizer, options) for module in (transformers, quadrat))
    instance = quadrat.DataCollatorForWholeWordMask(tokenizer, **options)
    assert vars(instance) == vars(collator)  # all is forced from the start
    assert_identical(reference, pickle.loads(pickle.dumps(instance)), batch)


def test_a_patch_replaces_the_collator_of_4_alone():
    theirs = getattr(transformers, NAMED, None)
    with quadrat.patch_transformers():
        inside = getattr(transformers, NAMED, None)
    assert inside is (quadrat.DataCollatorForWholeWordMask if NAMED in ORIGINALS else theirs)
