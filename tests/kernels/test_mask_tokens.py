"""mask_tokens, compiled, against its oracle, which gets what the generator's own library draws from the same state."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from quadrat.support.generators import NUMPY, NUMPY_LEGACY, TORCH

MASK_ID = -5
TO_BE_DRAWN = -7  # no id: where a random token goes

probabilities = st.sampled_from([0.15, 0.5, 0.8, 0.0, 1.0]) | st.floats(0, 1)
shapes = st.tuples(st.integers(0, 4), st.integers(0, 12)) | st.sampled_from(
    [(1, 156), (2, 156), (1, 623), (1, 624), (1, 625), (3, 700)]
)


@dataclass
class Case:
    seed: int
    shape: tuple[int, int]
    p: float
    mask: float
    random: float  # of those that do not become the mask
    has_random: bool
    vocab_size: int
    special_ids: list[int]
    has_special: bool
    has_offsets: bool

    def __post_init__(self) -> None:
        numbers = np.random.default_rng(self.seed)
        self.ids = numbers.integers(0, 200, size=self.shape)
        self.special = numbers.choice(np.array([0, 0, 0, 0, 1, 2], np.uint8), size=self.shape)
        self.offsets = numbers.integers(0, 2, size=(*self.shape, 2))

    def words(self) -> np.ndarray:
        """What masking is told of each token, by the oracles of the kernels before it."""
        special, words = self.special.copy(), np.empty(self.shape, np.uint8)
        if not self.has_special:
            oracles.special_tokens(self.ids.reshape(-1), self.special_ids, special.reshape(-1))
        if not self.has_offsets:
            return np.where(special != 0, 2, 1).astype(np.uint8)
        for row in range(self.shape[0]):
            oracles.word_starts(self.offsets[row], special[row], words[row])
        return words

    def write(self, guarded: Any, source: int, generator: Any) -> tuple[np.ndarray, np.ndarray]:
        ids, labels = guarded("int64", self.shape), guarded("int64", self.shape)
        special, offsets = guarded("uint8", self.shape), guarded("int64", (*self.shape, 2))
        ids.array[:], special.array[:], offsets.array[:] = self.ids, self.special, self.offsets
        replacement = self.mask, self.random if self.has_random else None, MASK_ID, self.vocab_size
        _core.MaskedLabels(source, generator, self.p, replacement, self.special_ids).write(
            ids.address,
            labels.address,
            *self.shape,
            *(False, False, 0, 0),
            special.address if self.has_special else 0,
            offsets.address if self.has_offsets else 0,
        )
        assert ids.intact()
        assert labels.intact()
        assert special.holds(self.special)
        assert offsets.holds(self.offsets)
        return ids.array, labels.array

    def expected(self, trials: Any, integers: Any, every_word: bool) -> tuple[np.ndarray, np.ndarray]:
        """`trials` and `integers` draw from the library, in the order of the reference collator."""
        words, nothing = self.words(), np.zeros(self.shape, bool)
        drawn = [trials(np.where(words == 1, self.p, 0.0)), trials(np.full(self.shape, self.mask)), nothing, nothing]
        if self.has_random:
            drawn[2] = trials(np.full(self.shape, self.random))
            drawn[3] = np.full(self.shape, TO_BE_DRAWN)
            if every_word:
                drawn[3] = integers(self.shape)
            else:
                masked, _ = self.masked(words, drawn)
                drawn[3][masked == TO_BE_DRAWN] = integers(np.count_nonzero(masked == TO_BE_DRAWN))
        return self.masked(words, drawn)

    def masked(self, words: np.ndarray, drawn: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        ids, labels = self.ids.copy(), np.empty(self.shape, np.int64)
        oracles.mask_tokens(ids, words, tuple(drawn), MASK_ID, labels)
        return ids, labels


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    shape=shapes,
    p=probabilities,
    mask=probabilities,
    random=probabilities,
    has_random=st.sampled_from([True, True, False]),
    vocab_size=st.integers(1, 300) | st.integers(1, 2**28 - 1),
    special_ids=st.lists(st.integers(0, 210) | st.just(2**28 - 1), max_size=9),
    has_special=st.booleans(),
    has_offsets=st.booleans(),
)


def assert_alike(got: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]) -> None:
    for array, other in zip(got, expected, strict=True):
        assert np.array_equal(array, other)


@given(cases, st.integers(0, 700))
def test_masks_as_the_oracle_from_torch(guarded: Any, case: Case, step: int) -> None:
    ours, theirs = (torch.Generator().manual_seed(case.seed) for _ in range(2))
    for generator in (ours, theirs):
        torch.randint(9, (step,), generator=generator)

    def trials(p: np.ndarray) -> np.ndarray:
        return torch.bernoulli(torch.from_numpy(p).float(), generator=theirs).bool().numpy()

    def integers(shape: Any) -> np.ndarray:
        return torch.randint(case.vocab_size, shape, generator=theirs).numpy()

    got = case.write(guarded, TORCH, ours)
    assert_alike(got, case.expected(trials, integers, every_word=True))
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("source", [NUMPY, NUMPY_LEGACY])
@given(cases, st.sampled_from([np.random.MT19937, np.random.PCG64, np.random.Philox]))
def test_masks_as_the_oracle_from_numpy(guarded: Any, source: int, case: Case, bits: Any) -> None:
    make = np.random.Generator if source == NUMPY else np.random.RandomState
    ours = make(bits(case.seed))
    theirs = copy.deepcopy(ours)
    draw = theirs.integers if source == NUMPY else theirs.randint

    def trials(p: np.ndarray) -> np.ndarray:
        return theirs.binomial(1, p, size=p.shape).astype(bool)

    def integers(shape: Any) -> np.ndarray:
        return draw(low=0, high=case.vocab_size, size=shape, dtype=np.int64)

    got = case.write(guarded, source, ours)
    assert_alike(got, case.expected(trials, integers, every_word=False))
    np.testing.assert_equal(ours._bit_generator.state, theirs._bit_generator.state)


@pytest.mark.parametrize("vocab_size", [0, -1, 2**28, 2**63 - 1])
def test_refuses_a_vocabulary_that_is_drawn_from_otherwise(vocab_size: int) -> None:
    with pytest.raises(ValueError, match="vocab_size"):
        _core.MaskedLabels(TORCH, torch.Generator(), 0.5, (0.8, 0.5, 3, vocab_size), [])


@pytest.mark.parametrize("special_id", [-1, -(2**63), 2**28, 2**40])
def test_refuses_special_tokens_that_no_set_of_bits_should_hold(special_id: int) -> None:
    with pytest.raises(ValueError, match="special_ids"):
        _core.MaskedLabels(TORCH, torch.Generator(), 0.5, (0.8, 0.5, 3, 9), [2, special_id])
