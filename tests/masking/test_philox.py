"""rng="philox": a mask depends on seed, epoch, row key and position alone; epochs; options that are refused."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
import quadrat
from support import samples
from support.compare import frozen, generator_states
from support.masking import MASK_VOCABULARY, OwnSpecialTokens, make_masking_tokenizer, make_pair
from support.strategies import ROW_FORMS, PadsInItsOwnWay

NAME = "DataCollatorForLanguageModeling"
TOKENIZER = make_masking_tokenizer()
ROWS = [np.random.default_rng(n).integers(7, 400, size=n).tolist() for n in (5, 1, 40, 129, 33, 0, 12)]


def make(tokenizer: Any = TOKENIZER, **options: Any) -> Any:
    return make_pair(tokenizer, {"rng": "philox", "mlm_probability": 0.4, **options}, NAME, both=False)


def key_of(row: list[int]) -> int:
    out = np.empty(1, np.uint64)
    oracles.row_keys([np.array(row, np.int64)], out)
    return int(out[0])


def masked_row(
    row: list[int], words: Any, *, key: int | None = None, seed: int = 0, epoch: int = 0, collator: Any
) -> tuple[list[int], list[int]]:
    """(ids, labels) of one row by the kernel's oracle."""
    ids, labels = np.array(row, np.int64), np.empty(len(row), np.int64)
    oracles.philox_mask(
        ids,
        np.array(words, np.uint8),
        labels,
        seed=seed,
        epoch=epoch,
        row_key=key_of(row) if key is None else key % 2**64,
        probabilities=(collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob),
        mask_id=MASK_VOCABULARY["[MASK]"],
        vocab_size=len(MASK_VOCABULARY),
    )
    return ids.tolist(), labels.tolist()


def unpadded(batch: Any, lengths: list[int], layout: str = "right") -> list[tuple[list[int], list[int]]]:
    """(ids, labels) of each row, padded on a side or "flat", and that padding is no label."""
    ids, labels = (np.array(batch[name].tolist(), np.int64) for name in ("input_ids", "labels"))
    places = [(row, slice(ids.shape[1] - n, None) if layout == "left" else slice(n)) for row, n in enumerate(lengths)]
    if layout == "flat":
        places = [(0, slice(end - n, end)) for n, end in zip(lengths, np.cumsum(lengths), strict=True)]
    rows = [(ids[place].tolist(), labels[place].tolist()) for place in places]
    for place in places:
        labels[place] = -100
    assert (labels == -100).all()
    return rows


rows_of_ids = st.lists(st.lists(st.integers(0, 399), min_size=1, max_size=40), min_size=1, max_size=3)


@given(
    rows=rows_of_ids,
    layout=st.sampled_from(["right", "left", "flat"]),
    form=st.sampled_from(["list", "array", "int32", "tensor"]),
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
    features = [{"input_ids": ROW_FORMS[form](row)} for row in rows]
    for feature, key, flag in zip(features, keys, flags, strict=True):
        if row_key is not None:
            feature["idx"] = key
        if special == "column":
            feature["special_tokens_mask"] = [int(bit) for bit in flag]
    before, states = frozen(features), generator_states()
    for _ in range(2):  # decided on, then by recipe
        batch = collator(features)
        how = {"seed": seed or 0, "epoch": epoch, "collator": collator}
        assert unpadded(batch, lengths, layout) == [
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
    assert unpadded(batch, lengths, layout) == expected
    assert set(batch["input_ids"].reshape(-1).tolist()) <= {*range(400)}


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
        assert unpadded(flat(features), lengths, "flat") == expected
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
            assert unpadded(batch, lengths, "flat" if collator.padding_free else side) == expected
            assert "idx" not in batch
        assert generator_states() == states

    def tokenizer(**options: Any) -> Any:
        return make_masking_tokenizer(padding_side=side, **options)

    options = {"seed": 3, "row_key": row_key}
    usual = set(TOKENIZER.all_special_ids)
    for framework in ("pt", "np"):
        check(make(tokenizer(cls=PadsInItsOwnWay), return_tensors=framework, **options), usual.__contains__)
        for flat in (False, True):
            own_collator = make(tokenizer(cls=OwnSpecialTokens), return_tensors=framework, padding_free=flat, **options)
            check(own_collator, lambda token: token % 7 == 0)
    halves = Halves(tokenizer(), rng="philox", mlm_probability=0.4, **options)
    check(halves, lambda token: token % 2)
    further = make(tokenizer(cls=PadsInItsOwnWay), pad_values={"more": 0.5}, **options)
    with pytest.raises(ValueError, match="pads in its own way"):
        further([{**feature, "more": [1.5]} for feature in features])


def test_not_masked_not_drawn() -> None:
    features = [{"input_ids": row} for row in ROWS]
    plain = quadrat.DataCollatorForLanguageModeling(TOKENIZER, mlm=False)(features)
    batch = quadrat.DataCollatorForLanguageModeling(TOKENIZER, mlm=False, rng="philox")(features)
    assert torch.equal(batch["labels"], plain["labels"])


def test_epochs() -> None:
    collator, features = make(), [{"input_ids": [50] * 100}]
    first = collator(features)["labels"]
    assert collator.epoch == 0
    collator.set_epoch(np.int64(3))
    assert collator.epoch == 3
    third = collator(features)["labels"]
    assert not torch.equal(first, third)
    for again in (pickle.loads(pickle.dumps(collator)), copy.deepcopy(collator), copy.copy(collator)):
        assert again.epoch == 3
        assert torch.equal(again(features)["labels"], third)
        again.set_epoch(0)
        assert torch.equal(again(features)["labels"], first)
    assert torch.equal(collator(features)["labels"], third), "copies have epochs of their own"
    for wrong, error in ((-1, ValueError), (2**32, ValueError), (1.5, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="epoch"):
            collator.set_epoch(wrong)
    assert collator.epoch == 3
    plain = quadrat.DataCollatorForLanguageModeling(TOKENIZER)
    with pytest.warns(UserWarning, match='give DataCollatorForLanguageModeling rng="philox"'):
        plain.set_epoch(2)
    assert plain.epoch == 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_see_the_epoch(method: str) -> None:
    """The same masks in any number of processes, and workers that live on mask anew."""
    features = [{"input_ids": row, "idx": number} for number, row in enumerate(ROWS * 2)]
    collator, alone = make(row_key="idx"), make(row_key="idx")
    options = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": method}
    loader = torch.utils.data.DataLoader(features, batch_size=3, collate_fn=collator, **options)
    seen = []
    for epoch in (0, 1, 7, 1):
        collator.set_epoch(epoch)
        alone.set_epoch(epoch)
        seen.append([batch["labels"].tolist() for batch in loader])
        whole = unpadded(alone(features), [len(feature["input_ids"]) for feature in features])
        rows = [row for labels in seen[-1] for row in labels]
        assert [row[: len(ids)] for row, (ids, _) in zip(rows, whole, strict=True)] == [row for _, row in whole]
    assert seen[0] != seen[1] != seen[2]
    assert seen[1] == seen[3]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rng": "numpy"}, ValueError, "rng must be 'torch' or 'philox'"),
        ({"seed": -1}, ValueError, "seed must be from 0"),
        ({"seed": 2**64}, ValueError, "seed must be from 0"),
        ({"seed": 1.5}, TypeError, "seed must be an int"),
        ({"row_key": 3}, TypeError, "row_key must be the name"),
        ({"rng": "torch", "row_key": "idx"}, ValueError, 'row_key is for rng="philox"'),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.parametrize("cls", [None, PadsInItsOwnWay])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mlm_probability", 1.5, "mlm_probability must be between 0 and 1, not 1.5"),
        ("random_replace_prob", 0.3, "must not exceed 1 together: 0.8 \\+ 0.3"),
    ],
)
def test_options_that_become_wrong(cls: Any, name: str, value: float, message: str) -> None:
    """The reference looks at them when a collator is made; they can be set later."""
    tokenizer = TOKENIZER if cls is None else make_masking_tokenizer(cls=cls)
    for deferred in (False, True):
        collator = make(tokenizer, deferred=deferred)
        setattr(collator, name, value)
        with pytest.raises(ValueError, match=message):
            collator([{"input_ids": row} for row in ROWS if row])


@pytest.mark.parametrize("flat", [False, True])
def test_keys_that_cannot_be(flat: bool) -> None:
    collator = make(row_key="idx", padding_free=flat)
    with pytest.raises(ValueError, match=r"row_key='idx': the features have no such column.*remove_unused_columns"):
        collator([{"input_ids": [7, 8]}])
    with pytest.raises(ValueError, match="row_key='idx'"):
        collator([[7, 8]])
    for key in (1.5, "one", [1], None):
        with pytest.raises(TypeError, match="row 1 has the key"):
            collator([{"input_ids": [7, 8], "idx": 3}, {"input_ids": [7, 8], "idx": key}])


@pytest.mark.parametrize(
    "features",
    [[], [{}], [{"input_ids": ["a"]}], [{"input_ids": [7]}, {"input_ids": [8, 2**70]}], [{"input_ids": [1.5]}]],
)
def test_features_that_cannot_be(features: list[Any]) -> None:
    """The errors are those without it."""
    errors = []
    for rng in ("torch", "philox"):
        with pytest.raises((ValueError, IndexError)) as caught:
            make(rng=rng)(features)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


def test_a_matrix_alone_does_not_say_where_rows_are() -> None:
    for method, matrix in (("torch_mask_tokens", torch.ones(2, 3).long()), ("numpy_mask_tokens", np.ones((2, 3), int))):
        with pytest.raises(ValueError, match="where each row begins and ends"):
            getattr(make(), method)(matrix)


@pytest.mark.parametrize("name", samples.BARE[1:])
def test_collators_without_it(name: str) -> None:
    with pytest.raises(TypeError, match=f"'rng'. {name} has no rng: "):
        getattr(quadrat, name)(TOKENIZER, rng="philox")
