"""Rows to be masked by counter-based draws, and what they become, for the CPU's and the GPU's kernel alike."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import oracles
from quadrat.ops._philox import PhiloxOptions

MASK_ID = -5
HOW = PhiloxOptions(seed=0, epoch=0, mlm_probability=0.15, mask=0.8, random=0.1, mask_id=3, vocab_size=9)

probabilities = st.sampled_from([0.15, 0.5, 0.0, 1.0]) | st.floats(0, 1)


@dataclass
class Case:
    """A padded or flat batch: row i has lengths[i] tokens from start[i] on."""

    numbers: int  # seeds the ids and words
    lengths: list[int]
    layout: str  # "right", "left" or "flat"
    gap: int  # by which it is wider than the longest row, or longer than all
    whole_words: bool
    seed: int
    epoch: int
    p: float
    mask: float
    share: float  # of the rest, that becomes random
    vocab_size: int

    def __post_init__(self) -> None:
        numbers = np.random.default_rng(self.numbers)
        self.random = (1 - self.mask) * self.share
        self.rows = len(self.lengths)
        self.width = max(self.lengths, default=0) + self.gap
        if self.layout == "flat":
            self.start = [sum(self.lengths[:row]) for row in range(self.rows)]
            self.count = sum(self.lengths) + (self.gap if self.rows else 0)
        else:
            left = self.layout == "left"
            self.start = [row * self.width + left * (self.width - n) for row, n in enumerate(self.lengths)]
            self.count = self.rows * self.width
        self.offsets = np.cumsum([0, *self.lengths])
        self.ids = numbers.integers(0, 200, size=self.count)
        self.keys = numbers.integers(0, 2**64, size=self.rows, dtype=np.uint64)
        kinds = [0, 0, 1, 1, 2] if self.whole_words else [1, 1, 1, 2]
        self.words = numbers.choice(np.array(kinds, np.uint8), size=self.count)

    @property
    def options(self) -> PhiloxOptions:
        return PhiloxOptions(self.seed, self.epoch, self.p, self.mask, self.random, MASK_ID, self.vocab_size)

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """(ids, labels) by the oracle, row by row."""
        ids, labels = self.ids.copy(), np.full(self.count, -100)
        for first, length, key in zip(self.start, self.lengths, self.keys, strict=True):
            row = slice(first, first + length)
            oracles.philox_mask(
                ids[row],
                self.words[row],
                labels[row],
                seed=self.seed,
                epoch=self.epoch,
                row_key=int(key),
                probabilities=(self.p, self.mask, self.random),
                mask_id=MASK_ID,
                vocab_size=self.vocab_size,
            )
        return ids, labels


# Around the sizes of a vector of draws, 32 and 4 * 32.
lengths = st.integers(0, 9) | st.sampled_from([31, 32, 33, 64, 127, 128, 129, 200, 257])
cases = st.builds(
    Case,
    numbers=st.integers(0, 2**32 - 1),
    lengths=st.lists(lengths, max_size=4),
    layout=st.sampled_from(["right", "left", "flat"]),
    gap=st.sampled_from([0, 0, 1, 5]),
    whole_words=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    p=probabilities,
    mask=probabilities,
    share=probabilities,
    vocab_size=st.integers(1, 300) | st.integers(1, 2**28 - 1),
)
