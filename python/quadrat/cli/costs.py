"""The cost of batches: the tokens that a model computes for them, padding included."""

from dataclasses import dataclass

import numpy as np

from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray

# Up to this share of padding, or of a loop's time, nothing is worth the effort.
LITTLE = 0.05


@dataclass(frozen=True)
class Cost:
    """The cost of one pass over all rows."""

    batches: int
    tokens: int  # of the rows
    computed: int  # of the batches, padding included
    scores: float  # pairs of positions that attention compares

    @property
    def padding(self) -> float:
        """The share of computed tokens that is padding; 0 where nothing is computed."""
        return 1 - self.tokens / self.computed if self.computed else 0.0

    @property
    def factor(self) -> float:
        """Computed tokens for each token of the rows."""
        return self.computed / self.tokens if self.tokens else 1.0


def cost_of(lengths: IntArray, batches: Ragged) -> Cost:
    """The cost of batches of row numbers, one batch a row, that are padded to their longest row."""
    longest = np.maximum.reduceat(lengths[batches.values], batches.offsets[:-1])
    sizes = batches.lengths * longest
    return Cost(len(batches), int(lengths.sum()), int(sizes.sum()), float((sizes * longest.astype(np.float64)).sum()))
