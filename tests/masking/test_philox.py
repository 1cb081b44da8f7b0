"""rng="philox": a row's mask depends on seed, epoch, row key and position alone, whatever the batch around it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
import quadrat
from support.compare import frozen, generator_states
from support.masked_rows import ROWS, TOKENIZER, make, masked_row, split, unpadded
from support.masking import OwnSpecialTokens, make_masking_tokenizer
from support.strategies import PadsInItsOwnWay

FORMS: dict[str, Any] = {
    "list": list,
    "array": lambda row: np.array(row, np.int64),
    "int32 array": lambda row: np.array(row, np.int32),
    "tensor": lambda row: torch.tensor(row, dtype=torch.int64),
}
ids = st.integers(0, 399)
rows_of_ids = st.lists(st.lists(ids, min_size=1, max_size=40), min_size=1, max_size=3)


@given(
    rows=rows_of_ids,
    layout=st.sampled_from(["right", "left", "flat"]),
    form=st.sampled_from(sorted(FORMS)),
    framework=st.sampled_from(["pt", "np"]),
    multiple=st.sampled_from([None, 8]),
    special=st.sampled_from(["ids", "column"]),
    row_key=st.sampled_from([None, "idx"]),
    seed=st.integers(0, 2**64 - 1) | st.none(),
    epoch=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_each_row_is_masked_as_if_alone(
    *, rows, layout, form, framework, multiple, special, row_key, seed, epoch, data
) -> None:
    tokenizer = make_masking_tokenizer(padding_side="left" if layout == "left" else "right")
    collator = make(
        tokenizer,
        seed=seed,
        row_key=row_key,
        return_tensors=framework,
        pad_to_multiple_of=multiple,
        padding_free=layout == "flat",
        replacement=data.draw(st.sampled_from([(0.8, 0.1), (0.3, 0.7), (1.0, 0.0), (0.0, 1.0)])),
    )
    collator.set_epoch(epoch)
    lengths = [len(row) for row in rows]
    flags = [[token in tokenizer.all_special_ids for token in row] for row in rows]
    if special == "column":
        flags = data.draw(st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for n in lengths)))
    keys = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(rows), max_size=len(rows)))
    features = [{"input_ids": FORMS[form](row)} for row in rows]
    for feature, key, flag in zip(features, keys, flags, strict=True):
        if row_key is not None:
            feature["idx"] = key
        if special == "column":
            feature["special_tokens_mask"] = [int(one) for one in flag]
    before, states = frozen(features), generator_states()
    for _ in range(2):  # decided on, then by recipe
        batch = collator(features)
        got = split(batch, lengths) if layout == "flat" else unpadded(batch, lengths, side=layout)
        how = {"seed": seed or 0, "epoch": epoch, "collator": collator}
        assert got == [
            masked_row(row, np.where(flag, 2, 1), key=key if row_key else None, **how)
            for row, flag, key in zip(rows, flags, keys, strict=True)
        ]
        assert "idx" not in batch
    assert frozen(features) == before
    assert generator_states() == states
    assert collator.generator is None


@pytest.mark.parametrize("source", ["offset_mapping", "word_ids"])
@pytest.mark.parametrize("layout", ["right", "left", "flat"])
@given(rows_of_ids, st.integers(0, 2**32 - 1))
def test_whole_words(source: str, layout: str, rows: list[list[int]], seed: int) -> None:
    tokenizer = make_masking_tokenizer(padding_side="left" if layout == "left" else "right")
    options = {"whole_word_mask": True, "replacement": (1.0, 0.0)}  # what 5.x makes of any other
    collator = make(tokenizer, seed=seed, padding_free=layout == "flat", **options)
    numbers = np.random.default_rng(seed)
    features, expected = [], []
    for row in rows:
        word_of = np.cumsum(numbers.integers(0, 2, len(row))).tolist()
        offsets = [(3 * at + 2 * word, 3 * at + 3 + 2 * word) for at, word in enumerate(word_of)]
        features.append({"input_ids": row, source: offsets if source == "offset_mapping" else word_of})
        special = np.array([token in tokenizer.all_special_ids for token in row], np.uint8)
        words = np.empty(len(row), np.uint8)
        oracles.word_starts(np.array(features[-1][source]), special, words)
        expected.append(masked_row(row, words, seed=seed, collator=collator))
    lengths = [len(row) for row in rows]
    batch = collator(features)
    assert (split(batch, lengths) if layout == "flat" else unpadded(batch, lengths, side=layout)) == expected
    assert set(batch["input_ids"].reshape(-1).tolist()) <= {*range(400)}


def labels_by_row(collator: Any, features: list[Any]) -> list[Any]:
    return unpadded(collator(features), [len(feature["input_ids"]) for feature in features])


def test_order_and_batches_do_not_matter() -> None:
    collator = make(row_key="idx")
    features = [{"input_ids": row, "idx": number} for number, row in enumerate(ROWS)]
    expected = labels_by_row(collator, features)
    assert labels_by_row(collator, features[::-1]) == expected[::-1]
    assert [labels_by_row(collator, [feature])[0] for feature in features] == expected
    assert labels_by_row(collator, features[:3]) + labels_by_row(collator, features[3:]) == expected


def test_what_does_matter() -> None:
    features = [{"input_ids": [50] * 200, "idx": number} for number in range(2)]

    def labels(epoch: int = 0, **options: Any) -> list[Any]:
        collator = make(**{"row_key": "idx", **options})
        collator.set_epoch(epoch)
        return [row for _, row in labels_by_row(collator, features)]

    one, two = labels()
    assert one != two, "keys differ"
    assert labels() == [one, two]
    assert labels(epoch=1)[0] not in (one, two)
    assert labels(seed=1)[0] not in (one, two)
    equal = make()(features)["labels"].tolist()
    assert equal[0] == equal[1], "by their tokens they are the same row"
    assert one[:100] != one[100:], "positions differ"


def test_all_forms_of_a_batch() -> None:
    rows = [row for row in ROWS if row]
    collator, lengths = make(), [len(row) for row in rows]
    expected = unpadded(collator([{"input_ids": row} for row in rows]), lengths)
    for batch in (
        {"input_ids": rows},
        quadrat.Ragged.from_rows(rows),
        rows,
        [torch.tensor(row) for row in rows],
        [torch.tensor(row, dtype=torch.int16) for row in rows],
    ):
        assert unpadded(collator(batch), lengths) == expected
    collator = make(row_key="idx")
    expected = unpadded(collator([{"input_ids": row, "idx": -i} for i, row in enumerate(rows)]), lengths)
    for wrap in (np.int32, torch.tensor, lambda i: np.array(i, np.int64), lambda i: i % 2**64):
        features = [{"input_ids": row, "idx": wrap(-i)} for i, row in enumerate(rows)]
        assert unpadded(collator(features), lengths) == expected
        flat = make(row_key="idx", padding_free=True)
        assert split(flat(features), lengths) == expected
    assert unpadded(collator({"input_ids": rows, "idx": [-i for i in range(len(rows))]}), lengths) == expected


class Halves(quadrat.DataCollatorForLanguageModeling):
    """Masks in its own way, and otherwise as its base."""

    def torch_mask_tokens(self, inputs: Any, special_tokens_mask: Any = None, offset_mapping: Any = None) -> Any:
        assert special_tokens_mask is None
        special = (inputs % 2).clone()
        return super().torch_mask_tokens(inputs, special, offset_mapping)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("row_key", [None, "idx"])
def test_batches_that_take_no_fast_path(side: str, row_key: str | None) -> None:
    rows = [row for row in ROWS if row]
    lengths = [len(row) for row in rows]
    features = [{"input_ids": row, "idx": i} if row_key else {"input_ids": row} for i, row in enumerate(rows)]

    def check(collator: Any, special: Any, features: Any = features) -> None:
        torch.manual_seed(0)
        states = generator_states()
        collator.set_epoch(5)
        for _ in range(2):
            batch = collator(features)
            how = {"seed": 3, "epoch": 5, "collator": collator}
            words = [[2 if special(token) else 1 for token in row] for row in rows]
            expected = [masked_row(row, words[i], key=i if row_key else None, **how) for i, row in enumerate(rows)]
            assert (split(batch, lengths) if collator.padding_free else unpadded(batch, lengths, side=side)) == expected
            assert "idx" not in batch
        assert generator_states() == states

    def tokenizer(**options: Any) -> Any:
        return make_masking_tokenizer(padding_side=side, **options)

    options = {"seed": 3, "row_key": row_key}
    usual = set(TOKENIZER.all_special_ids)
    for framework in ("pt", "np"):
        check(make(tokenizer(cls=PadsInItsOwnWay), return_tensors=framework, **options), usual.__contains__)
        for flat in (False, True):
            own = make(tokenizer(cls=OwnSpecialTokens), return_tensors=framework, padding_free=flat, **options)
            check(own, lambda token: token % 7 == 0)
    halves = Halves(tokenizer(), rng="philox", mlm_probability=0.4, **options)
    check(halves, lambda token: token % 2)
    further = make(tokenizer(cls=PadsInItsOwnWay), pad_values={"more": 0.5}, **options)
    check(further, usual.__contains__, [{**one, "more": [1.5]} for one in features])
