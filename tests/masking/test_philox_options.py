"""rng="philox": epochs, also in workers, and options, keys and features that are refused."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from support.masked_rows import ROWS, TOKENIZER, make, unpadded
from support.masking import make_masking_tokenizer
from support.strategies import PadsInItsOwnWay


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
    plain.set_epoch(2)
    assert plain.epoch == 2, "harmless where nothing depends on it"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_see_the_epoch(method: str) -> None:
    """The same masks in any number of processes, and workers that live on mask anew."""
    features = [{"input_ids": row, "idx": number} for number, row in enumerate(ROWS * 2)]
    collator, alone = make(row_key="idx"), make(row_key="idx")
    loader = torch.utils.data.DataLoader(
        features,
        batch_size=3,
        collate_fn=collator,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=method,
    )
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


@pytest.mark.parametrize("name", ["DataCollatorForWholeWordMask", "DataCollatorForPermutationLanguageModeling"])
def test_collators_without_it(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no rng='philox'"):
        getattr(quadrat, name)(TOKENIZER, rng="philox")
